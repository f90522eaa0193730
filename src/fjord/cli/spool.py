"""`fjord spool`: what waits in a spool, what was set aside, and writing to it from a shell."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

import fjord
from fjord.cli import arguments, output
from fjord.cli.arguments import Delay, Json, Numeric, Period, StreamName, TableName, TypeName
from fjord.cli.output import EXIT_ERROR, EXIT_USAGE, Bar, explained, tell
from fjord.cli.push import given
from fjord.client.spool.files import PERIOD_SECONDS
from fjord.clock import SystemClock
from fjord.errors import DurabilityError
from fjord.jobs import Priority

app = typer.Typer(
    name="spool",
    help="Shows, verifies and writes to spools: writes that wait for `fjord forward`.",
    no_args_is_help=True,
)

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="The directory of the spool.", show_default=False)
]
Given = Annotated[
    str | None,
    typer.Argument(metavar="VALUE", help="Its data; - reads standard input.", show_default=False),
]
Typed = Annotated[
    TypeName | None,
    typer.Option("--type", help="What VALUE is.", show_default="string, with - buffer"),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.", show_default=False)]
KvName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The key/value table.", show_default=False)
]


@app.command()
def status(directory: Directory, as_json: Json = False) -> None:
    """Prints what waits in each file of a spool and since when, and what somebody has to look at.

    Works beside writers and the forwarder. Ends with 1 if there are alerts, or a file or its first
    line cannot be read.

    Example: fjord spool status /var/spool/fjord
    """
    from fjord.cli import spool_reports as reports

    with explained(), Bar("reading files") as bar:
        found = reports.status(directory, SystemClock().wall_us(), bar.update)
    if as_json:
        output.print_json(reports.status_json(found))
    else:
        names = ["file", "records", "bytes", "oldest", "set aside"]
        output.print_rows(names, reports.status_rows(found))
        for line in reports.status_lines(found):
            output.print_line(line)
    if not found.is_well:
        raise typer.Exit(EXIT_ERROR)


@app.command()
def dump(
    directory: Directory,
    aside: Annotated[
        bool, typer.Option("--aside", help="What was set aside, instead of what waits.")
    ] = False,
    limit: Annotated[int | None, typer.Option(help="At most so many.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Prints what waits in a spool, one line a row, beside writers and the forwarder.

    Ends with 1 if a file cannot be read; the others are printed.

    Example: fjord spool dump /var/spool/fjord --aside --json
    """
    from fjord.cli import spool_reports as reports

    unreadable: list[str] = []

    def note(name: str, error: OSError) -> None:
        unreadable.append(reports.unreadable_line(name, reports.reason_of(error)))

    with explained():
        rows = reports.dump(directory, is_aside=aside, failed=note)
        for shown in itertools.islice(rows, limit):
            if as_json:
                output.print_json(reports.shown_json(shown))
            else:
                output.print_line(*reports.shown_cells(shown))
    for line in unreadable:
        tell(f"fjord: {line}", style="red")
    if unreadable:
        raise typer.Exit(EXIT_ERROR)


@app.command()
def verify(directory: Directory, as_json: Json = False) -> None:
    """Checks every line of every file of a spool, beside writers and the forwarder.

    Ends with 2 if something is damaged, or a file cannot be read. Torn lines are no damage: who
    wrote them was told of an error, or died.

    Example: fjord spool verify /var/spool/fjord
    """
    from fjord.cli import spool_reports as reports

    damaged = unreadable = total = 0
    with explained(), Bar("verifying") as bar:
        for one in reports.verify(directory, bar.update):
            total += not one.problem
            damaged += one.is_damaged
            unreadable += bool(one.problem)
            if as_json:
                output.print_json(asdict(one))
            else:
                output.print_line(reports.checked_line(one))
    if not as_json:
        line = reports.verdict(total=total, damaged=damaged, unreadable=unreadable)
        output.print_line(line)
    if damaged or unreadable:
        raise typer.Exit(EXIT_USAGE)


@app.command()
def retry(directory: Directory, as_json: Json = False) -> None:
    """Lets everything be sent again that was set aside and is whole.

    Records of files that are still written to come later, when all others of the file are sent.
    Ends with 1 if some stay where they are, or a file cannot be read.

    Example: fjord spool retry /var/spool/fjord
    """
    from fjord.cli import spool_reports as reports
    from fjord.client.spool import survey

    records = left = unreadable = 0
    with explained(), _told(directory):
        for one in itertools.chain(
            reports.still_open(directory), survey.retry(directory, SystemClock().wall_us())
        ):
            records += one.records
            left += one.left
            unreadable += not one.is_readable
            if as_json:
                output.print_json(asdict(one))
            else:
                output.print_line(reports.retried_line(one))
    if not as_json:
        text = f"{output.counted(records, 'record')} to be sent again, {left} left"
        if unreadable:
            text += f"; {output.counted(unreadable, 'file')} cannot be read"
        output.print_line(text)
    if left or unreadable:
        raise typer.Exit(EXIT_ERROR)


# -- writing --------------------------------------------------------------------------------------


@app.command(cls=Numeric)
def push(
    directory: Directory,
    table: TableName,
    key: Key,
    value: Given = None,
    type_: Typed = None,
    priority: Annotated[
        str, typer.Option(help=f"0 to 255, smaller first, or a name: {arguments.PRIORITIES}.")
    ] = str(Priority.DEFAULT.value),
    delay: Delay = None,
    period: Period = PERIOD_SECONDS,
) -> None:
    """Writes a job to a spool, which is made if it is not there; returns when it is on disk.

    Example: fjord spool push /var/spool/fjord pages http://example.com/a --delay 5
    """
    with explained():
        found, number = given(value, type_), arguments.priority(priority)
        with _opened(directory, period) as spool:
            spool.jobs(table).push(key, found, priority=number, delay=delay)


@app.command(cls=Numeric)
def append(
    directory: Directory,
    table: StreamName,
    value: Given = None,
    key: Annotated[str, typer.Option(help="Its key.")] = "",
    type_: Typed = None,
    period: Period = PERIOD_SECONDS,
) -> None:
    """Writes a message to a spool, which is made if it is not there; returns when it is on disk.

    Example: fjord spool append /var/spool/fjord events "signed up" --key user:7
    """
    with explained():
        found = given(value, type_)
        with _opened(directory, period) as spool:
            spool.stream(table).append(found, key=key)


@app.command("set", cls=Numeric)
def set_(
    directory: Directory,
    table: KvName,
    key: Key,
    value: Given = None,
    type_: Typed = None,
    period: Period = PERIOD_SECONDS,
) -> None:
    """Writes a value to a spool, which is made if it is not there; returns when it is on disk.

    Example: fjord spool set /var/spool/fjord settings retries 3 --type integer
    """
    with explained():
        found = given(value, type_)
        with _opened(directory, period) as spool:
            spool.kv(table).set(key, found)


@app.command()
def delete(directory: Directory, table: KvName, key: Key, period: Period = PERIOD_SECONDS) -> None:
    """Writes a deletion to a spool, which is made if it is not there; returns when it is on disk.

    Example: fjord spool delete /var/spool/fjord settings retries
    """
    with explained(), _opened(directory, period) as spool:
        spool.kv(table).delete(key)


def _opened(directory: str, period: float) -> fjord.Spool:
    return fjord.spool(directory, sync="each", period=period)


@contextlib.contextmanager
def _told(directory: str) -> Iterator[None]:
    """Turns what the disk refuses into an error that can be told."""
    try:
        yield
    except OSError as error:
        raise DurabilityError(
            f"{directory} cannot be written to: {error.strerror}; run it again when that is put "
            "right"
        ) from error
