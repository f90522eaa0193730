"""`fjord doctor`, `fjord backup` and `fjord restore`: looking after a data directory."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from fjord.cli.failing import EXIT_USAGE, explained
from fjord.cli.progress import Bar
from fjord.engine import Settings
from fjord.engine import backup as backups
from fjord.engine import doctor as doctors
from fjord.engine.backup import Manifest

Data = Annotated[str, typer.Option(help="The data directory.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def doctor(data: Data, as_json: Json = False) -> None:
    """Compares the index of a directory with a replay of its journal.

    Works beside a running daemon. Ends with 2 if they differ.

    Example: fjord doctor --data /var/lib/fjord
    """
    with explained(), Bar("replaying the journal") as bar:
        found = doctors.examine(data, Settings(progress=bar.update))
    if as_json:
        typer.echo(json.dumps(asdict(found), default=_hex))
    else:
        typer.echo(f"{found.entries} entries compared, up to seq {found.applied_seq}")
        for one in found.differences:
            shown = "missing" if one.index is None else one.index.hex()
            wanted = "missing" if one.replay is None else one.replay.hex()
            typer.echo(f"{one.tree} {one.key!r}: index {shown}, journal {wanted}")
        if found.difference_count:
            typer.echo(
                f"{found.difference_count} entries differ. Stop the daemon and remove "
                "the index directory; the next start rebuilds it."
            )
        else:
            typer.echo("index and journal agree")
    if found.difference_count:
        raise typer.Exit(EXIT_USAGE)


def backup(
    to: Annotated[str, typer.Argument(help="A new directory.", show_default=False)],
    data: Data,
    as_json: Json = False,
) -> None:
    """Copies what is durable to a new directory, beside a running daemon or without one.

    Example: fjord backup /backups/monday --data /var/lib/fjord
    """
    with explained(), Bar("copying") as bar:
        manifest = backups.back_up(data, to, Settings(progress=bar.update))
    _tell("backed up", manifest, as_json=as_json)


def restore(
    backup_: Annotated[str, typer.Argument(metavar="BACKUP", help="A backup.", show_default=False)],
    data: Annotated[str, typer.Option(help="The data directory to make; new or empty.")],
    as_json: Json = False,
) -> None:
    """Makes a data directory from a backup; the first start rebuilds the index.

    Example: fjord restore /backups/monday --data /var/lib/fjord
    """
    with explained(), Bar("copying") as bar:
        manifest = backups.restore(backup_, data, Settings(progress=bar.update))
    _tell("restored", manifest, as_json=as_json)


def _tell(what: str, manifest: Manifest, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**asdict(manifest), "bytes": manifest.bytes}))
        return
    created = datetime.fromtimestamp(manifest.created_us / 1_000_000, tz=UTC)
    typer.echo(
        f"{what} everything up to seq {manifest.seq}: {len(manifest.segments)} segments, "
        f"{manifest.bytes} bytes, taken at {created:%Y-%m-%d %H:%M:%S} UTC"
    )


def _hex(value: object) -> str:
    assert isinstance(value, bytes)
    return value.hex()
