"""`fjord spool`: what waits in a spool, what was set aside, and writing to it from a shell."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

import fjord
from fjord.cli import output
from fjord.cli.arguments import Numeric, StreamName, TableName, TypeName
from fjord.cli.failing import EXIT_ERROR, EXIT_USAGE, explained
from fjord.cli.progress import Bar
from fjord.cli.push import given
from fjord.cli.where import Json
from fjord.client.spool.files import check_owner
from fjord.clock import SystemClock
from fjord.errors import DurabilityError

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


@app.command()
def status(directory: Directory, as_json: Json = False) -> None:
    """Prints what waits in each file of a spool and since when, and what somebody has to look at.

    Works beside writers and the forwarder. Ends with 1 if there are alerts.

    Example: fjord spool status /var/spool/fjord
    """
    from fjord.cli import spool_reports as reports

    with explained(), Bar("reading files") as bar:
        found = reports.status(directory, SystemClock().wall_us(), bar.update)
    if as_json:
        output.print_json(reports.status_json(found))
    else:
        names = ["file", "records", "bytes", "oldest", "set aside"]
        output.print_rows(names, reports.status_rows(found), as_json=False)
        for line in reports.status_lines(found):
            output.print_line(line)
    if found.alerts or found.unreadable:
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

    Example: fjord spool dump /var/spool/fjord --aside --json
    """
    from fjord.cli import spool_reports as reports

    with explained():
        for shown in itertools.islice(reports.dump(directory, is_aside=aside), limit):
            if as_json:
                output.print_json(reports.shown_json(shown))
            else:
                output.print_line(*reports.shown_cells(shown))


@app.command()
def verify(directory: Directory, as_json: Json = False) -> None:
    """Checks every line of every file of a spool, beside writers and the forwarder.

    Ends with 2 if something is damaged. Torn lines are no damage: who wrote them was told of an
    error, or died.

    Example: fjord spool verify /var/spool/fjord
    """
    from fjord.cli import spool_reports as reports

    damaged = total = 0
    with explained(), Bar("verifying") as bar:
        for one in reports.verify(directory, bar.update):
            total += 1
            damaged += one.is_damaged
            if as_json:
                output.print_json(asdict(one))
            else:
                output.print_line(reports.checked_line(one))
    if not as_json:
        what = f"damaged: {damaged} of {total} files" if damaged else f"whole: {total} files"
        output.print_line(what)
    if damaged:
        raise typer.Exit(EXIT_USAGE)


@app.command()
def retry(directory: Directory, as_json: Json = False) -> None:
    """Lets everything be sent again that was set aside and is whole.

    Records of files that are still written to come later, when all others of the file are sent.
    Ends with 1 if torn or damaged ones stay where they are.

    Example: fjord spool retry /var/spool/fjord
    """
    from fjord.cli import spool_reports as reports
    from fjord.client.spool import retrying

    records = left = 0
    with explained(), _told(directory):
        for one in itertools.chain(
            reports.still_open(directory), retrying.retry(directory, SystemClock().wall_us())
        ):
            records += one.records
            left += one.left
            if as_json:
                output.print_json(asdict(one))
            else:
                output.print_line(reports.retried_line(one))
    if not as_json:
        output.print_line(f"{output.counted(records, 'record')} to be sent again, {left} left")
    if left:
        raise typer.Exit(EXIT_ERROR)


# -- writing --------------------------------------------------------------------------------------


@app.command(cls=Numeric)
def push(
    directory: Directory,
    table: TableName,
    key: Key,
    value: Given = None,
    type_: Typed = None,
) -> None:
    """Writes a job to a spool, which is made if it is not there; returns when it is on disk.

    Example: fjord spool push /var/spool/fjord pages http://example.com/a
    """
    with explained(), _opened(directory) as spool:
        spool.jobs(table).push(key, given(value, type_))


@app.command(cls=Numeric)
def append(
    directory: Directory,
    table: StreamName,
    value: Given = None,
    key: Annotated[str, typer.Option(help="Its key.")] = "",
    type_: Typed = None,
) -> None:
    """Writes a message to a spool, which is made if it is not there; returns when it is on disk.

    Example: fjord spool append /var/spool/fjord events "signed up" --key user:7
    """
    with explained(), _opened(directory) as spool:
        spool.stream(table).append(given(value, type_), key=key)


@app.command("set", cls=Numeric)
def set_(
    directory: Directory,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="The key/value table.", show_default=False)
    ],
    key: Key,
    value: Given = None,
    type_: Typed = None,
) -> None:
    """Writes a value to a spool, which is made if it is not there; returns when it is on disk.

    Example: fjord spool set /var/spool/fjord settings retries 3 --type integer
    """
    with explained(), _opened(directory) as spool:
        spool.kv(table).set(key, given(value, type_))


def _opened(directory: str) -> fjord.Spool:
    if os.path.exists(directory):
        check_owner(directory)  # files of somebody else would be in the way of who writes here
    return fjord.spool(directory, sync="each")


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
