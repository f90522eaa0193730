"""`fjord push`: jobs from the shell, one at a time or many from JSON lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fjord.cli import arguments, job_lines, lines, output, row_json
from fjord.cli.arguments import At, Delay, TableName, TypeName
from fjord.cli.failing import EXIT_ERROR, explained, tell
from fjord.cli.progress import Bar
from fjord.cli.where import DAEMON, Data, Json, To, database
from fjord.errors import UsageError
from fjord.jobs import Priority
from fjord.values import Value

if TYPE_CHECKING:
    from fjord.client.database import Database


def push(
    table: TableName,
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="What it is about.", show_default=False)
    ] = None,
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE", help="Its data; - reads standard input.", show_default=False
        ),
    ] = None,
    type_: Annotated[
        TypeName | None,
        typer.Option("--type", help="What VALUE is.", show_default="string, with - buffer"),
    ] = None,
    priority: Annotated[
        str, typer.Option(help=f"0 to 255, smaller first, or a name: {arguments.PRIORITIES}.")
    ] = str(Priority.DEFAULT.value),
    delay: Delay = None,
    at: At = "",
    expires: Annotated[
        str, typer.Option(help="The date until which it is of use; then it is gone.")
    ] = "",
    domain: Annotated[
        str, typer.Option(help="Its domain.", show_default="the host of the URI in KEY")
    ] = "",
    row: Annotated[
        str,
        typer.Option(metavar="JSON", help="Its declared columns, as an object; instead of VALUE."),
    ] = "",
    lines_: Annotated[
        str,
        typer.Option("--lines", metavar="FILE", help="Push one job a line of JSON; - reads them."),
    ] = "",
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Adds a job, or merges it with the one that waits under its key; returns when it is on disk.

    A line of FILE is an object with key and, if you like, value, priority, delay, process_at,
    expires_at and domain; declared columns stand beside those. Bad lines are told with their
    numbers, and the rest is pushed; the exit code is 1 then.

    Example: fjord push pages http://example.com/a --priority important --delay 5

    Example: fjord push sites --row '{"uri": "http://example.com/a", "depth": 3}'

    Example: echo '{"key": "a", "value": "x"}' | fjord push pages --lines -
    """
    with explained():
        _check(key, value, row, lines_)
        if lines_:
            _push_lines(table, lines_, to, data, as_json=as_json)
            return
        options = {
            "priority": arguments.priority(priority),
            "expires_at": arguments.moment(expires),
            "domain": domain or None,
            **arguments.one_date(delay, at),
        }
        found = given(value, type_)
        with database(to, data) as db:
            if row:
                _push_row(db, table, key, row, options)
            else:
                db.jobs(table).push(key or "", found, **options)
        if as_json:
            output.print_json({"table": table, "key": key})


def _check(key: str | None, value: str | None, row: str, lines_: str) -> None:
    """Refuses what contradicts itself."""
    if lines_ and (key is not None or row):
        raise UsageError("--lines brings keys and values; give it alone")
    if key is None and not row and not lines_:
        raise UsageError("give a key, or --row, or --lines with a file of jobs")
    if row and value is not None:
        raise UsageError("--row is the value; give no other")


def _push_row(db: Database, table: str, key: str | None, text: str, options: Any) -> None:
    schema = row_json.schema_of(db, table)
    row = row_json.row_of(text, schema)
    if key is None:
        db.jobs(table).push(row, **options)
    elif schema.key:
        raise UsageError(f"the key of table {table} is made of columns; give --row alone")
    else:
        db.jobs(table).push(key, row, **options)


def given(text: str | None, type_: TypeName | None) -> Value:
    """Returns the value that was given; that of standard input for `-`.

    Raises:
        UsageError: if it is none of that type.
    """
    if text is None:
        if type_ not in (None, TypeName.void):
            raise UsageError(f"--type {type_} needs a VALUE")
        return None
    if text != lines.STDIN:
        return arguments.value(text, type_ or TypeName.string)
    read = sys.stdin.buffer.read(lines.VALUE_BYTES_MAX + 1)
    if len(read) > lines.VALUE_BYTES_MAX:
        raise UsageError(f"a value has at most {lines.VALUE_BYTES_MAX} bytes")
    if type_ in (None, TypeName.buffer):
        return read
    try:
        return arguments.value(read.decode(), type_)
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is no {type_}: it is not UTF-8") from error


def _push_lines(table: str, path: str, to: str, data: str, *, as_json: bool) -> None:
    with (
        lines.opened(path) as (file, size),
        database(to, data) as db,
        Bar("pushing") as bar,
    ):
        schema = row_json.schema_of(db, table)
        pushing = job_lines.Pushing(db.jobs(table), bar.update, schema)
        for bad in pushing.run(file, size):
            tell(f"line {bad.number}: {bad.reason}", style="yellow")
    if as_json:
        output.print_json({"table": table, "pushed": pushing.pushed, "bad": pushing.bad})
    else:
        pushed = output.counted(pushing.pushed, "job")
        tell(f"{pushed} pushed, {output.counted(pushing.bad, 'bad line')}")
    if pushing.bad:
        raise typer.Exit(EXIT_ERROR)
