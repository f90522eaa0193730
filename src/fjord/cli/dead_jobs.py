"""The dead letters from the shell: showing them, sending them back, throwing them away."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fjord.cli import arguments, job_output, output
from fjord.cli.arguments import DAEMON, Data, Json, TableName, To, database
from fjord.cli.output import EXIT_ERROR, Bar, explained, tell
from fjord.errors import UsageError

if TYPE_CHECKING:
    from fjord.client.job_entries import DeadJob
    from fjord.client.jobs import Jobs

# So many of those that match are shown by a dry run.
SHOWN: Final = 10

Key = Annotated[
    str | None, typer.Option(help="Only those with exactly this key.", show_default=False)
]
Rows = Annotated[
    list[int] | None,
    typer.Option(
        "--row",
        metavar="N",
        min=0,
        max=2**64 - 1,
        help="This one, by the row that `fjord jobs dead` shows; may be repeated.",
        show_default=False,
    ),
]
KeyPrefix = Annotated[str, typer.Option(help="Only those whose key begins so.")]
OfDomain = Annotated[str, typer.Option("--domain", help="Only those of this domain.")]
WithReason = Annotated[str, typer.Option(help="Only those with this in their reason.")]
Before = Annotated[
    str, typer.Option(help="Only those that died before this date, as 2026-01-31T12:00:00Z.")
]
Limit = Annotated[int | None, typer.Option(help="At most so many.", min=1, show_default="all")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say how many there are, and show the first.")
]
All = Annotated[bool, typer.Option("--all", help="All of them; needed where nothing picks some.")]


def dead(
    table: TableName,
    key: Key = None,
    row: Rows = None,
    key_prefix: KeyPrefix = "",
    domain: OfDomain = "",
    reason: WithReason = "",
    before: Before = "",
    limit: Limit = None,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Shows jobs that failed too often or were buried, in the order in which they were pushed.

    The options pick some of them, in the same way as those of redrive and discard.

    Example: fjord jobs dead pages --limit 20

    Example: fjord jobs dead pages --reason "exit code 7" --json
    """
    with explained():
        given = {"key_prefix": key_prefix, "domain": domain, "reason": reason, "before": before}
        picked = _picked(key, row, limit, **given)
        with database(to, data, read_only=True) as db:
            db.table(table)  # one that is not there has no dead jobs, but may be misspelt
            job_output.print_dead(_matching(db.jobs(table), picked), as_json=as_json)


def redrive(
    table: TableName,
    key: Key = None,
    row: Rows = None,
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
        float,
        typer.Option(
            parser=arguments.seconds(high=arguments.DELAY_MAX),
            help="Seconds that they wait first.",
        ),
    ] = 0.0,
    dry_run: DryRun = False,
    all_: All = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Lets dead jobs wait again, as if they had never failed.

    One that has expired, or whose key waits again meanwhile, is dropped: the newer job stands for
    it. Exit code 1 if a job that --row names is not dead.

    Example: fjord jobs redrive pages --reason "exit code 7" --rate 50

    Example: fjord jobs redrive pages --all --dry-run
    """
    with explained():
        given = {"key_prefix": key_prefix, "domain": domain, "reason": reason, "before": before}
        picked = _picked(key, row, limit, **given)
        _check_meant(picked, everything=all_)
        with database(to, data) as db, Bar("redriving") as bar:
            jobs = db.jobs(table)
            if dry_run:
                _preview(table, jobs, picked, as_json=as_json)
                return
            found = jobs.redrive(
                **picked, rate=rate, delay=delay, progress=lambda done: bar.update(done, limit)
            )
        acted = {"revived": found.revived, "dropped": found.dropped}
        _tell(table, found.matched, acted, is_named=bool(row), as_json=as_json)


def discard(
    table: TableName,
    key: Key = None,
    row: Rows = None,
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
    """Throws dead jobs away for good; exit code 1 if a job that --row names is not dead.

    Example: fjord jobs discard pages --before 2026-01-01T00:00:00Z --dry-run
    """
    with explained():
        given = {"key_prefix": key_prefix, "domain": domain, "reason": reason, "before": before}
        picked = _picked(key, row, limit, **given)
        _check_meant(picked, everything=all_)
        with database(to, data) as db, Bar("discarding") as bar:
            jobs = db.jobs(table)
            if dry_run:
                _preview(table, jobs, picked, as_json=as_json)
                return
            found = jobs.discard(**picked, all=all_, progress=lambda done: bar.update(done, limit))
        acted = {"discarded": found.discarded}
        _tell(table, found.matched, acted, is_named=bool(row), as_json=as_json)


def _picked(
    key: str | None, rows: list[int] | None, limit: int | None, **given: str
) -> dict[str, Any]:
    """Returns which jobs are meant, as the library takes it."""
    filters: dict[str, Any] = {name: text for name, text in given.items() if text}
    if "before" in filters:
        filters["before"] = arguments.moment(given["before"])
    if key is not None:
        filters["key"] = key
    if limit is not None:
        filters["limit"] = limit
    if not rows:
        return filters
    if filters:
        raise UsageError("--row names jobs one by one; give it without anything that picks some")
    return {"rows": rows}


def _check_meant(picked: dict[str, Any], *, everything: bool) -> None:
    """Refuses to take all of them for what is meant, unless one says so."""
    if not everything and not picked.keys() - {"limit"}:
        raise UsageError(
            "say which: --key, --row, --key-prefix, --domain, --reason, --before, "
            "or --all for all of them"
        )


def _matching(jobs: Jobs, picked: dict[str, Any]) -> Iterator[DeadJob]:
    if "rows" not in picked:
        return jobs.dead(**picked)
    rows = set(picked["rows"])
    return (job for job in jobs.dead() if job.row in rows)


def _preview(table: str, jobs: Jobs, picked: dict[str, Any], *, as_json: bool) -> None:
    """Says how many jobs would be acted on, and shows the first of them."""
    found = _matching(jobs, picked)
    first = list(itertools.islice(found, SHOWN))
    matched = len(first) + sum(1 for _ in found)
    if as_json:
        shown = [job_output.describe_dead(job) for job in first]
        what = {"table": table, "matched": matched, "dry_run": True, "first": shown}
        output.print_json(what)
        return
    job_output.print_dead(first, as_json=False)
    more = f", the first {SHOWN} are shown" if matched > SHOWN else ""
    match = "matches" if matched == 1 else "match"
    tell(f"{output.counted(matched, 'dead job')} {match}{more}; nothing was changed")


def _tell(
    table: str, matched: int, acted: dict[str, int], *, is_named: bool, as_json: bool
) -> None:
    """Says what became of dead jobs; ends with 1 if one that was named was none."""
    if as_json:
        output.print_json({"table": table, "matched": matched, **acted, "dry_run": False})
    else:
        what = ", ".join(f"{count} {done}" for done, count in acted.items())
        tell(f"{output.counted(matched, 'dead job')} matched: {what}")
    missing = matched - sum(acted.values())
    if is_named and missing:
        tell(f"fjord: {missing} of the rows are not those of dead jobs")
        raise typer.Exit(EXIT_ERROR)
