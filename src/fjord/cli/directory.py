"""`fjord doctor`, `fjord backup`, `fjord restore` and `fjord stats`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from fjord.cli import arguments, output
from fjord.cli.arguments import Directory, Json, argument, check_directory, layout_of
from fjord.cli.output import EXIT_USAGE, Bar, explained, tell
from fjord.client.blocking.database import Database
from fjord.errors import DirectoryError, FjordError
from fjord.kinds import Kind

if TYPE_CHECKING:
    from fjord.engine.backup import Manifest
    from fjord.engine.doctor import Diagnosis


def doctor(data: Directory, as_json: Json = False) -> None:
    """Compares the index of a directory with a replay of its journal.

    A daemon may run. Exit code 2 if they differ, and 1 if there is no index yet.

    Example: fjord doctor --data /var/lib/fjord
    """
    from fjord.engine import doctor as doctors
    from fjord.engine.opening import EngineSettings

    with Bar("replaying the journal") as bar:
        root = layout_of(data).root
        try:
            found = doctors.examine(root, EngineSettings(progress=bar.update))
        except DirectoryError as error:
            # Only the index is missing, which is not a fault of the directory.
            raise FjordError(str(error)) from error
    if as_json:
        output.print_json(asdict(found))
    else:
        _tell_diagnosis(found)
    output.exit_if(found.difference_count, EXIT_USAGE)


def backup(
    to: Annotated[str, argument("TO", "A new directory.")], data: Directory, as_json: Json = False
) -> None:
    """Copies all durable data to a new directory; a daemon may run.

    Example: fjord backup /backups/monday --data /var/lib/fjord
    """
    from fjord.engine import backup as backups
    from fjord.engine.opening import EngineSettings

    with _whole(to), Bar("copying") as bar:
        check_directory(to)
        manifest = backups.back_up(layout_of(data).root, to, EngineSettings(progress=bar.update))
    _tell("backed up", manifest, as_json=as_json)


def restore(
    backup_: Annotated[str, argument("BACKUP", "A backup.")],
    data: Annotated[str, arguments.option("The data directory to create; new or empty.")],
    as_json: Json = False,
) -> None:
    """Makes a data directory from a backup; the first start rebuilds the index.

    Example: fjord restore /backups/monday --data /var/lib/fjord
    """
    from fjord.engine import backup as backups
    from fjord.engine.opening import EngineSettings

    with explained(repairable=False), _whole(data), Bar("copying") as bar:
        check_directory(data)
        manifest = backups.restore(backup_, data, EngineSettings(progress=bar.update))
    _tell("restored", manifest, as_json=as_json)


@contextlib.contextmanager
def _whole(target: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DirectoryError(
            f"{target} could not be written: {error}; remove a partial copy before you try again"
        ) from error


def _tell_diagnosis(found: Diagnosis) -> None:
    output.print_line(f"{found.entries} entries compared, up to seq {found.applied_seq}")
    for one in found.differences:
        shown = "missing" if one.index is None else one.index.hex()
        wanted = "missing" if one.replay is None else one.replay.hex()
        output.print_line(f"{one.tree} {one.key!r}: index {shown}, journal {wanted}")
    if found.difference_count:
        output.print_line(
            f"{found.difference_count} entries differ. Stop the daemon and remove "
            "the index directory; the next start rebuilds it."
        )
    else:
        output.print_line("index and journal agree")


def _tell(what: str, manifest: Manifest, *, as_json: bool) -> None:
    if as_json:
        output.print_json({**asdict(manifest), "bytes": manifest.bytes})
        return
    created = datetime.fromtimestamp(manifest.created_us / 1_000_000, tz=UTC)
    files = f"{len(manifest.segments)} segments"
    if manifest.blocks:
        files += f", {len(manifest.blocks)} files of blocks"
    output.print_line(
        f"{what} everything up to seq {manifest.seq}: {files}, {manifest.bytes} bytes, "
        f"taken at {created:%Y-%m-%d %H:%M:%S} UTC"
    )


# -- `fjord stats` --------------------------------------------------------------------------------


# Tables with dead jobs that are listed.
_NAMED = 10


def stats(node: arguments.Node) -> None:
    """Prints a node's metrics; reports dead jobs on standard error.

    Example: fjord stats

    Example: fjord stats --json
    """
    with node.open(read_only=True) as db:
        numbers = db.stats()
        if node.as_json:
            output.print_json(numbers)
        else:
            _tell_of_the_dead(node, db, numbers)
            rows = ((name, str(number)) for name, number in numbers.items())
            output.print_rows(("name", "number"), rows)


def _tell_of_the_dead(node: arguments.Node, db: Database, numbers: dict[str, int]) -> None:
    if numbers.get("jobs_dead") == 0:
        return  # unknown for a directory whose daemon runs
    where = "" if node.to == arguments.DAEMON else f" --to {node.to}"
    if node.data:
        where = f" --data {node.data}"
    named = 0
    for table in db.tables():
        dead = db.jobs(table.name).count().dead if table.kind == Kind.JOBS else 0
        if dead and named < _NAMED:
            look = f"fjord jobs dead {table.name}{where}"
            count = output.counted(dead, "dead job")
            tell(f"alert: {count} in {table.name}; see: {look}", style="bold red")
        named += dead > 0
    if named > _NAMED:
        more = output.counted(named - _NAMED, "more table")
        tell(f"alert: dead jobs in {more}", style="bold red")
