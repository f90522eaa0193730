"""The dead letters from the shell: showing them, sending them back, throwing them away."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import typer

from fjord.cli import arguments, job_output, output
from fjord.cli.arguments import TableName
from fjord.cli.failing import explained, tell
from fjord.cli.progress import Bar
from fjord.cli.where import DAEMON, Data, Json, To, database
from fjord.errors import UsageError

KeyPrefix = Annotated[str, typer.Option(help="Only those whose key begins so.")]
OfDomain = Annotated[str, typer.Option("--domain", help="Only those of this domain.")]
WithReason = Annotated[str, typer.Option(help="Only those with this in their reason.")]
Before = Annotated[
    str, typer.Option(help="Only those that died before this date, as 2026-01-31T12:00:00Z.")
]
Limit = Annotated[int | None, typer.Option(help="At most so many.", min=1, show_default="all")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")]
All = Annotated[bool, typer.Option("--all", help="All of them; needed where nothing picks some.")]


def dead(
    table: TableName,
    limit: Limit = None,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Shows jobs that failed too often or were buried, in the order in which they were pushed.

    Example: fjord jobs dead pages --limit 20

    Example: fjord jobs dead pages --json
    """
    with explained(), database(to, data, read_only=True) as db:
        found = itertools.islice(db.jobs(table).dead(), limit)
        job_output.print_dead(found, as_json=as_json)


def redrive(
    table: TableName,
    key_prefix: KeyPrefix = "",
    domain: OfDomain = "",
    reason: WithReason = "",
    before: Before = "",
    limit: Limit = None,
    rate: Annotated[
        float | None,
        typer.Option(
            help="At most so many a second.", min=0.001, show_default="as fast as it goes"
        ),
    ] = None,
    delay: Annotated[
        float, typer.Option(parser=arguments.seconds(), help="Seconds that they wait first.")
    ] = 0.0,
    dry_run: DryRun = False,
    all_: All = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Lets dead jobs wait again, as if they had never failed.

    One whose key waits again meanwhile is dropped: the newer job stands for it.

    Example: fjord jobs redrive pages --reason "exit code 7" --rate 50

    Example: fjord jobs redrive pages --all --dry-run
    """
    with explained():
        picked = _picked(key_prefix, domain, reason, before, limit, everything=all_)
        with database(to, data) as db, Bar("redriving") as bar:
            found = db.jobs(table).redrive(
                **picked,
                rate=rate,
                delay=delay,
                dry_run=dry_run,
                progress=lambda done: bar.update(done, limit),
            )
        _tell(table, found.matched, revived=found.revived, dry_run=dry_run, as_json=as_json)


def discard(
    table: TableName,
    key_prefix: KeyPrefix = "",
    domain: OfDomain = "",
    reason: WithReason = "",
    before: Before = "",
    limit: Limit = None,
    dry_run: DryRun = False,
    all_: All = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Throws dead jobs away for good.

    Example: fjord jobs discard pages --before 2026-01-01T00:00:00Z --dry-run
    """
    with explained():
        picked = _picked(key_prefix, domain, reason, before, limit, everything=all_)
        with database(to, data) as db, Bar("discarding") as bar:
            found = db.jobs(table).discard(
                **picked, dry_run=dry_run, progress=lambda done: bar.update(done, limit)
            )
        _tell(table, found.matched, discarded=found.discarded, dry_run=dry_run, as_json=as_json)


def _picked(
    key_prefix: str,
    domain: str,
    reason: str,
    before: str,
    limit: int | None,
    *,
    everything: bool,
) -> dict[str, Any]:
    filters = {
        "key_prefix": key_prefix or None,
        "domain": domain or None,
        "reason": reason or None,
        "before": arguments.moment(before),
    }
    if not everything and not any(filters.values()):
        raise UsageError(
            "say which: --key-prefix, --domain, --reason, --before, or --all for all of them"
        )
    return {**filters, "limit": limit}


def _tell(table: str, matched: int, *, dry_run: bool, as_json: bool, **acted: int) -> None:
    if as_json:
        output.print_json({"table": table, "matched": matched, **acted, "dry_run": dry_run})
    elif dry_run:
        tell(f"{matched} dead jobs match; nothing was changed")
    else:
        ((what, count),) = acted.items()
        tell(f"{matched} dead jobs matched, {count} were {what}")
