"""`fjord doctor`, `fjord backup` and `fjord restore`: looking after a data directory."""

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

    Works beside a running daemon. Ends with 2 if they differ, and with 1 if there is no index yet.

    Example: fjord doctor --data /var/lib/fjord
    """
    from fjord.engine import doctor as doctors
    from fjord.engine.opening import EngineSettings

    with Bar("replaying the journal") as bar:
        root = layout_of(data).root
        try:
            found = doctors.examine(root, EngineSettings(progress=bar.update))
        except DirectoryError as error:
            # The directory is one: only its index is missing, which is no fault.
            raise FjordError(str(error)) from error
    if as_json:
        output.print_json(asdict(found))
    else:
        _tell_diagnosis(found)
    output.exit_if(found.difference_count, EXIT_USAGE)


def backup(
    to: Annotated[str, argument("TO", "A new directory.")],
    data: Directory,
    as_json: Json = False,
) -> None:
    """Copies what is durable to a new directory, beside a running daemon or without one.

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
    data: Annotated[str, arguments.option("The data directory to make; new or empty.")],
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
    """Tells of a copy that could not be made, as on a full disk."""
    try:
        yield
    except OSError as error:
        raise DirectoryError(
            f"{target} was not made: {error}; if there is something of it, remove that"
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


# -- `fjord stats`: the numbers by which a node is watched ----------------------------------------


# Tables with dead jobs that are named.
_NAMED = 10


def stats(node: arguments.Node) -> None:
    """Prints the numbers by which a node is watched; tells of dead jobs on standard error.

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
    """Says which tables have dead jobs, and how to look at them."""
    if numbers.get("jobs_dead") == 0:
        return  # of a directory beside its writer the sum is not known
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
