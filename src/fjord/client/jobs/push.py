"""Building pushes: jobs as columns, without an object for each.

Most pushes have one priority, one delay and no domain for all jobs; then a column is one repeated
value.  Everything else is one pass over the arguments.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, TypeVar

from fjord.client import entries
from fjord.client.calls import check_dicts, check_names, not_a
from fjord.client.entries import Encoded, Key, Seconds
from fjord.client.schemas import Columns, RowMap, Schemas
from fjord.columns import Strings, repeat
from fjord.commands import Push
from fjord.declared import rows as declared_rows
from fjord.jobs import PRIORITY_MAX, Priority
from fjord.values import Value


class PushOptions(TypedDict, total=False):
    """Options of a push."""

    priority: int  # 0 to 255, the smallest first; default Priority.DEFAULT
    delay: Seconds | None  # not before this many seconds have passed
    process_at: datetime | None  # not before then
    expires_at: datetime | None  # not after that
    domain: Key | None  # default: the host of the URI in the key


class PushColumns(TypedDict, total=False):
    """Many jobs: a key and a value for each; the options are lists too, or one for all."""

    keys: Sequence[Key]  # optional for a table that does not merge
    # Default None for all; for declared columns rows, or a list for each column.
    values: Sequence[Value | RowMap] | Columns
    priority: int | Sequence[int]
    delay: Seconds | Sequence[Seconds | None] | None
    process_at: datetime | Sequence[datetime | None] | None
    expires_at: datetime | Sequence[datetime | None] | None
    domain: Key | Sequence[Key | None] | None


Each = TypeVar("Each")
_WHAT: Final = {
    "delay": "a number of seconds, or a timedelta, or a list of one each",
    "process_at": "a datetime with a time zone, or a list of one each",
    "expires_at": "a datetime with a time zone, or a list of one each",
    "domain": "str or bytes, or a list of one each",
}
_OPTIONS: Final = PushOptions.__optional_keys__
_COLUMNS: Final = PushColumns.__optional_keys__
_FIELDS: Final = frozenset({"key", "value", *_OPTIONS})
_PRIORITY: Final = f"a priority is a whole number from 0 to {PRIORITY_MAX}"
_DURATION: Final = (int, float, timedelta)
_SINGLE: Final = (str, bytes, bytearray, memoryview)


def push_rows(
    table: str, rows: Iterable[Mapping[str, Any]], timestamp_us: int, schemas: Schemas
) -> Push | None:
    """Returns the command that pushes jobs given as dicts; None if there are none.

    Raises:
        TypeError: if they are not dicts, or one has an unknown member.
        LocalProtocolError: if one has a column that the table does not have.
        UnknownSchemaError: if the table's columns must be fetched from the server first.
    """
    listed = _jobs(rows)
    given = declared_rows.as_columns(listed)
    names = given.keys()
    columns: Any = {}
    if names <= _FIELDS:
        if "key" in names or not schemas.has_key:
            columns["keys"] = [row.get("key", b"") for row in listed]
        columns["values"] = [row.get("value") for row in listed]
    else:
        _check_names("a job", names, _FIELDS, "value", schemas)
        if "key" in names:
            columns["keys"] = [row.get("key", b"") for row in listed]
        own = {name: column for name, column in given.items() if name not in _FIELDS}
        columns = _with_rows(columns, *schemas.encode_columns(own))
    for name in names & _OPTIONS:
        usual = Priority.DEFAULT if name == "priority" else None
        columns[name] = [row.get(name, usual) for row in listed]
    return push_columns(table, columns, timestamp_us, schemas)


def push_columns(
    table: str, columns: PushColumns, timestamp_us: int, schemas: Schemas
) -> Push | None:
    """Returns the command that pushes jobs given as columns; None if there are none.

    Raises:
        UnknownSchemaError: if the table's columns must be fetched from the server first.
    """
    given = columns.get("values")
    if not columns.keys() <= _COLUMNS:
        columns = _declared(columns, schemas)
    elif isinstance(given, Mapping):
        columns = _with_rows(columns, *schemas.encode_columns(given))
    elif isinstance(given, Sequence) and given and isinstance(given[0], Mapping):
        rows: Any = given  # `encode` refuses others
        columns = _with_rows(columns, *schemas.encode(rows))
    keys, given = columns.get("keys"), columns.get("values")
    if keys is None and given is None:
        raise TypeError("push_many takes a list of dicts, or the columns keys=[...], values=[...]")
    for name, column in (("keys", keys), ("values", given)):
        if isinstance(column, _SINGLE) or not isinstance(column, Collection | None):
            raise TypeError(f"{name} must be a list; this is a single {type(column).__name__}")
    count = len(keys) if keys is not None else len(given or ())
    if count == 0 and not given:
        return None
    types, data = _values(given, count)
    process_at_us, is_relative = _process_dates(columns, count, timestamp_us)
    return Push(
        table=table,
        keys=entries.blank_column(count) if keys is None else Strings.of(entries.key_column(keys)),
        domains=_domains(columns.get("domain"), count),
        types=types,
        values=data,
        priorities=_priorities(columns.get("priority", Priority.DEFAULT), count),
        process_at_us=process_at_us,
        expires_at_us=_dates("expires_at", columns.get("expires_at"), count),
        timestamps_us=repeat(timestamp_us, count),
        relative=is_relative,
    )


def _jobs(given: Any) -> list[Mapping[str, Any]]:
    if isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
        raise not_a("what push_many takes", "a list of dicts", given)
    listed = list(given)
    check_dicts("each job of push_many", 'a dict such as {"key": ..., "value": ...}', listed)
    return listed


# -- columns --------------------------------------------------------------------------------------


def _declared(columns: PushColumns, schemas: Schemas) -> PushColumns:
    _check_names("push_many", columns.keys(), _COLUMNS, "values", schemas)
    given: Any = {name: column for name, column in columns.items() if name not in _COLUMNS}
    found: Any = {name: column for name, column in columns.items() if name in _COLUMNS}
    return _with_rows(found, *schemas.encode_columns(given))


def _check_names(
    what: str, given: Set[str], options: Set[str], values: str, schemas: Schemas
) -> None:
    """Checks the options beside declared columns; unknown columns are found later."""
    if not schemas.names:
        check_names(what, given, options)
    check_names(what, given & options, {*options, *schemas.names} - {values})
    for name in given & options & set(schemas.names):
        raise TypeError(f"{name} is both an option and a column; give the rows as values=[...]")


def _with_rows(columns: PushColumns, rows: Encoded, keys: Encoded) -> PushColumns:
    found: PushColumns = {**columns, "values": rows}
    if keys:
        if "keys" in columns:
            raise TypeError("the key is made of columns of the rows; leave out keys=[...]")
        found["keys"] = keys
    return found


def _values(given: Any, count: int) -> tuple[bytes, Strings]:
    if given is None:
        return bytes(count), entries.blank_column(count)
    _check_count("values", len(given), count)
    types, data = entries.value_column(given)
    return types, Strings.of(data)


def _priorities(given: int | Sequence[int], count: int) -> bytes:
    try:
        if isinstance(given, int):
            each: list[int] = [given]
        else:
            each = list(given)
        found = bytes(each)
    except (TypeError, ValueError) as error:
        raise ValueError(_PRIORITY) from error
    if bool in set(map(type, each)):
        raise ValueError(f"{_PRIORITY}, not True or False")
    if isinstance(given, int):
        return found * count
    _check_count("priority", len(found), count)
    return found


def check_priority(priority: int) -> int:
    """Returns a priority, or raises ValueError."""
    return _priorities(priority, 1)[0]


def _process_dates(columns: PushColumns, count: int, now_us: int) -> tuple[Sequence[int], bool]:
    """Returns process dates, and whether they are delays from now.

    Delays use the server's clock.  If only some jobs have a date, one clock is needed for all of
    them, and then it is the client's.
    """
    delay, process_at = columns.get("delay"), columns.get("process_at")
    dates_us = () if process_at is None else _dates("process_at", process_at, count)
    if not any(dates_us):
        return _numbers("delay", delay, count, _DURATION, entries.delay_us), True
    if delay is None:
        return dates_us, False
    if isinstance(delay, _DURATION):
        raise ValueError(_EITHER)
    delays = _each("delay", delay, count)
    return array("Q", map(_due_us, delays, dates_us, repeat(now_us, count))), False


_EITHER: Final = "give a job either delay or process_at"


def _due_us(delay: Seconds | None, date_us: int, now_us: int) -> int:
    if delay is None:
        return date_us
    if date_us:
        raise ValueError(_EITHER)
    return now_us + entries.delay_us(delay)


def due_us(delay: Seconds | None, process_at: datetime | None) -> tuple[int, bool]:
    """Returns the process date of one job, and whether it is a delay from now."""
    if process_at is None:
        return entries.delay_us(delay), True
    if delay is not None:
        raise ValueError(_EITHER)
    return entries.moment_us(process_at, "process_at"), False


def _dates(
    name: str, given: datetime | Sequence[datetime | None] | None, count: int
) -> Sequence[int]:
    return _numbers(name, given, count, (datetime,), lambda one: entries.moment_us(one, name))


def _numbers(
    name: str, given: Any, count: int, single: tuple[type, ...], read: Callable[[Any], int]
) -> Sequence[int]:
    """Returns a column from one value for all jobs, or from one for each."""
    if given is None or isinstance(given, single):
        return repeat(read(given), count)
    return array("Q", map(read, _each(name, given, count)))


def _domains(given: Key | Sequence[Key | None] | None, count: int) -> Strings:
    if given is None:
        return entries.blank_column(count)
    if isinstance(given, str | bytes):
        return Strings.of([entries.encode_domain(given)] * count)
    each = _each("domain", given, count)
    return Strings.of(entries.encode_keys([b"" if one is None else one for one in each], "domain"))


def _each(name: str, given: Sequence[Each], count: int) -> Sequence[Each]:
    if isinstance(given, str | bytes) or not isinstance(given, Collection):
        raise not_a(name, _WHAT[name], given)
    _check_count(name, len(given), count)
    return given


def _check_count(name: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(f"{name}: {found} for {wanted} jobs")
