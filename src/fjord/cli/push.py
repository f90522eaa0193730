"""`fjord push`: jobs from the shell, one at a time or many from JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from fjord.cli import arguments, lines, output
from fjord.cli.arguments import Node, TableName, TypeName, argument, option
from fjord.cli.output import Bar
from fjord.client import bulk
from fjord.declared.schema import Schema
from fjord.errors import UsageError
from fjord.values import Value

if TYPE_CHECKING:
    from fjord.client.blocking.database import Database


def push(
    node: Node,
    table: TableName,
    key: Annotated[str | None, argument("KEY", "The key.")] = None,
    value: arguments.Given = None,
    type_: arguments.Typed = None,
    priority: arguments.Level = arguments.DEFAULT_LEVEL,
    delay: arguments.Delay = None,
    at: arguments.At = "",
    expires: Annotated[str, option("The date after which it is dropped.")] = "",
    domain: Annotated[str, option("The domain.", shown="the host of the URI in KEY")] = "",
    row: Annotated[
        str, option("The declared columns as an object, instead of VALUE.", metavar="JSON")
    ] = "",
    lines_: Annotated[
        str, option("Push one job per JSON line; - is standard input.", "--lines", metavar="FILE")
    ] = "",
) -> None:
    """Adds a job, or merges it with a waiting job of its key; returns when it is on disk.

    A line of FILE is an object with key and optionally value, priority, delay, process_at,
    expires_at and domain; declared columns stand beside those. Bad lines are reported with their
    numbers, the rest is pushed, and the exit code is 1.

    Example: fjord push pages http://example.com/a --priority important --delay 5

    Example: fjord push sites --row '{"uri": "http://example.com/a", "depth": 3}'

    Example: echo '{"key": "a", "value": "x"}' | fjord push pages --lines -
    """
    _check(key, value, row, lines_)
    if lines_:
        _push_lines(node, table, lines_)
        return
    options = {
        "priority": arguments.priority(priority),
        "expires_at": arguments.moment(expires),
        "domain": domain or None,
        **arguments.one_date(delay, at),
    }
    found = given(value, type_)
    with node.open() as db:
        if row:
            _push_row(db, table, key, row, options)
        else:
            db.jobs(table).push(key or "", found, **options)
    node.done(table=table, key=key)


def _check(key: str | None, value: str | None, row: str, lines_: str) -> None:
    if lines_ and (key is not None or row):
        raise UsageError("--lines has keys and values; give it alone")
    if key is None and not row and not lines_:
        raise UsageError("give a key, or --row, or --lines with a file of jobs")
    if row and value is not None:
        raise UsageError("--row is the value; give it without VALUE")


def _push_row(db: Database, table: str, key: str | None, text: str, options: Any) -> None:
    schema = lines.schema_of(db, table)
    row = lines.row_of(text, schema)
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


def _push_lines(node: Node, table: str, path: str) -> None:
    with lines.opened(path) as (file, size), node.open() as db, Bar("pushing") as bar:
        schema = lines.schema_of(db, table)
        writer = bulk.job_writer(db.jobs(table), schema, partial(lines.tell_bad, "line"))
        bulk.write_lines(file, reader(schema), writer, lambda done: bar.update(done, size))
    pushed, bad = writer.written, writer.bad
    text = f"{output.counted(pushed, 'job')} pushed, {output.counted(bad, 'bad line')}"
    node.done(text, table=table, pushed=pushed, bad=bad)
    output.exit_if(bad)


# -- jobs from JSON lines -------------------------------------------------------------------------


def reader(schema: Schema) -> Callable[[bytes], dict[str, Any] | None]:
    """Returns a parser of lines, which returns jobs for `Jobs.push_many`."""
    read = lines.json_reader("job", _FIELDS, schema)

    def read_job(line: bytes) -> dict[str, Any] | None:
        job = read(line)
        if job is None:
            return None
        if "delay" in job and "process_at" in job:
            raise UsageError("delay and process_at exclude each other; give one of them")
        return {**({} if schema.key else {"key": b""}), "value": None, **job}

    return read_job


def _priority(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UsageError(f"{name} must be a number from 0 to 255, or a name")
    return arguments.priority(str(value))


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _YEAR:
        raise UsageError(f"{name} must be a number of seconds, at most 366 days")
    return value


def _date(name: str, value: object) -> Any:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} must be a date such as 2026-01-31T12:00:00Z")
    return arguments.moment(value)


_YEAR: Final = 366 * 24 * 3600
_FIELDS: Final[dict[str, lines.Field]] = {
    "key": lines.key,
    "value": lines.value,
    "priority": _priority,
    "delay": _seconds,
    "process_at": _date,
    "expires_at": _date,
    "domain": lines.text,
}
