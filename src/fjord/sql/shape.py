"""The journal table: which columns it has, its rows as jobs, and jobs as its rows.  Pure.

    uri             the key
    domain          the domain
    priority        the priority, 0 to 255
    key_start_date  the process date, in microseconds
    status          NULL or 0: it waits; else when somebody began with it, in microseconds, and 24
                    hours later that counts as failed

A job was inserted at its process date, or now if that is to come.  So jobs that are due keep the
order of their dates, an import that is repeated changes nothing, and what was pushed meanwhile is
newer than what is imported.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fjord import limits, values
from fjord.columns import Strings, repeat
from fjord.commands import JobPage
from fjord.errors import UsageError
from fjord.jobs import PRIORITY_MAX, SECOND_US, domain_of
from fjord.values import Type, Value

# Columns that a table has to have, in the order in which rows are handed on; and some that it may
# have, of which jobs need nothing.
COLUMNS: Final = ("domain", "priority", "key_start_date", "uri", "status")
GENERATED: Final = "next_processing"
UNUSED: Final = ("id", GENERATED)
VALUE: Final = "value"
# The order of the columns of the original table.
ORDER: Final = ("id", "domain", "priority", "key_start_date", "uri", "status")

# Whoever has begun with a row and has not finished by then has failed.
FAILED_US: Final = 24 * 3600 * SECOND_US
# Dates of today in nanoseconds are above it.
_NANOSECONDS: Final = 10**17
_DIGITS_MAX: Final = 20
_JSON_BYTES_MAX: Final = 8 * limits.VALUE_BYTES_MAX


class Odd(NamedTuple):
    """What stands where a plain value should."""

    what: str


Cell = int | str | bytes | Odd | None


class Found(NamedTuple):
    """A row of the table."""

    number: int  # where it is: a line of a dump, or its id
    cells: Sequence[Cell]  # in the order of COLUMNS, then the value if that is asked for


class Job(NamedTuple):
    """A row as a job."""

    key: bytes
    domain: bytes
    priority: int
    process_at_us: int
    inserted_us: int
    type: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How rows become jobs."""

    now_us: int
    is_now: bool = False  # True: who has begun with a row is not waited for
    read_value: Callable[[str, object], Value] | None = None  # None: values are not read

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return COLUMNS if self.read_value is None else (*COLUMNS, VALUE)

    def job(self, cells: Sequence[Cell]) -> Job:
        """Returns the job that a row stands for.

        Raises:
            UsageError: if it stands for none; the text says why.
        """
        domain, priority, start, uri, status = cells[:5]
        start_us = self._date("key_start_date", start)
        level = _number("priority", priority)
        if not 0 <= level <= PRIORITY_MAX:
            raise UsageError(f"priority is 0 to {PRIORITY_MAX}, not {level}")
        process_at_us = max(start_us, self._free_us(status))
        if process_at_us > self.now_us + limits.PROCESS_AHEAD_US_MAX:
            raise UsageError("it is due in more than 366 days, which is the most")
        type_, data = (0, b"") if self.read_value is None else self._value(cells[5])
        return Job(
            _text("uri", uri, limits.JOB_KEY_BYTES_MAX, is_needed=True),
            _text("domain", domain, limits.DOMAIN_BYTES_MAX),
            level,
            process_at_us,
            min(start_us, self.now_us),
            type_,
            data,
        )

    def _free_us(self, status: Cell) -> int:
        """Returns when a row is nobody's any more; 0 if it is nobody's."""
        if status is None or self.is_now or _number("status", status) == 0:
            return 0
        failed_us = self._date("status", status) + FAILED_US
        return failed_us if failed_us > self.now_us else 0

    def _date(self, name: str, cell: Cell) -> int:
        found = _number(name, cell)
        if found < limits.TIMESTAMP_US_MIN:
            raise UsageError(f"{name} {found} is no date in microseconds{_hint(found)}")
        if found > _NANOSECONDS:
            raise UsageError(f"{name} {found} is no date in microseconds; is it in nanoseconds?")
        return found

    def _value(self, cell: Cell) -> tuple[int, bytes]:
        assert self.read_value is not None
        if cell is None:
            return values.encode(None)
        if isinstance(cell, int | Odd):
            raise UsageError("value is no text with JSON in it")
        if len(cell) > _JSON_BYTES_MAX:
            raise UsageError(f"value has more than {_JSON_BYTES_MAX} bytes")
        try:
            found = json.loads(cell)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"value is not valid JSON: {error}") from error
        return values.encode(self.read_value("value", found))


def columns(jobs: Sequence[Job]) -> dict[str, Any]:
    """Returns jobs as a push takes them."""
    keys, domains, priorities, process_at_us, inserted_us, types, data = zip(*jobs, strict=True)
    return {
        "keys": Strings.of(keys),
        "domains": Strings.of(domains),
        "types": bytes(types),
        "values": Strings.of(data),
        "priorities": bytes(priorities),
        "process_at_us": array("Q", process_at_us),
        "expires_at_us": repeat(0, len(jobs)),
        "timestamps_us": array("Q", inserted_us),
    }


def missing(columns: Sequence[str], wanted: Sequence[str] = COLUMNS) -> list[str]:
    """Returns which columns a table should have, and has not."""
    return [name for name in wanted if name not in columns]


def left_out(columns: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Returns which columns of a table are not read, though they may hold something."""
    return [name for name in columns if name not in (*wanted, *UNUSED)]


def _given(name: str, cell: Cell) -> int | str | bytes:
    if cell is None:
        raise UsageError(f"{name} is NULL")
    if isinstance(cell, Odd):
        raise UsageError(f"{name} is {cell.what}")
    return cell


def _number(name: str, cell: Cell) -> int:
    found = _given(name, cell)
    if isinstance(found, int):
        return found
    digits = found.decode("latin-1") if isinstance(found, bytes) else found
    if len(digits) <= _DIGITS_MAX and digits.isascii() and digits.removeprefix("-").isdigit():
        return int(digits)
    raise UsageError(f"{name} is no whole number")


def _text(name: str, cell: Cell, bytes_max: int, *, is_needed: bool = False) -> bytes:
    given = _given(name, cell)
    if isinstance(given, int):
        raise UsageError(f"{name} is a number, and no text")
    try:
        found = given.encode() if isinstance(given, str) else given
        found.decode()
    except UnicodeError as error:
        raise UsageError(f"{name} is not UTF-8") from error
    if len(found) > bytes_max:
        raise UsageError(f"{name} has more than {bytes_max} bytes")
    if is_needed and not found:
        raise UsageError(f"{name} is empty")
    return found


def _hint(found: int) -> str:
    """Returns what a number may be that is too small for a date of today."""
    for unit, factor in (("milliseconds", 1000), ("seconds", 1_000_000)):
        if limits.TIMESTAMP_US_MIN <= found * factor < _NANOSECONDS:
            return f"; is it in {unit}?"
    return ""


# -- jobs as rows ---------------------------------------------------------------------------------


class JournalRow(NamedTuple):
    """A job as a row."""

    domain: str
    priority: int
    key_start_date: int
    uri: str
    status: int | None
    value: str | None  # JSON; None if it is not asked for


def rows(page: JobPage, at: Sequence[int], *, has_value: bool = False) -> list[JournalRow | str]:
    """Returns jobs of a page as rows; a sentence for one that no such table can hold.

    When work on a taken job began is not known; it is said to be so long ago that the row counts
    as failed when the lease is over.

    Args:
        page: jobs that wait, or are taken.
        at: which of them.
        has_value: with their values, as JSON.

    Raises:
        UsageError: if values are asked for, and the table has columns of its own instead.
    """
    found: list[JournalRow | str] = []
    keys, domains = page.keys.rows(), page.domains.rows()
    for one in at:
        key = keys[one]
        try:
            uri, domain = key.decode(), (domains[one] or domain_of(key)).decode()
        except UnicodeDecodeError:
            found.append(f"job {page.rows[one]} is left out: its key or domain is not UTF-8")
            continue
        if "\0" in uri or "\0" in domain:
            found.append(f"job {page.rows[one]} is left out: its key or domain has a zero byte")
            continue
        status = page.moments_us[one] - FAILED_US if page.xids[one] else None
        value = _json_of(page, one) if has_value else None
        row = JournalRow(domain, page.priorities[one], page.process_at_us[one], uri, status, value)
        found.append(row)
    return found


def _json_of(page: JobPage, at: int) -> str:
    if page.types[at] > Type.BOOLEAN:
        raise UsageError("the table has columns of its own; export it without --with-value")
    value = values.decode(page.types[at], page.values[at])
    if isinstance(value, bytes):
        return json.dumps({"base64": base64.b64encode(value).decode()})
    return json.dumps(value)
