"""Jobs from JSON lines: read one by one, pushed many at a time.

A batch is all or nothing, so one that is refused for the sake of a row is pushed in halves until
the row stands alone: it is told with its number, and all others are pushed.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from fjord import limits
from fjord.cli import arguments
from fjord.errors import Code, LocalProtocolError, RefusedError, UsageError
from fjord.values import Value

if TYPE_CHECKING:
    from fjord.client.jobs import Jobs

VALUE_BYTES_MAX: Final = limits.VALUE_BYTES_MAX
# Base64 makes four of three, JSON up to six of one.
LINE_BYTES_MAX: Final = 8 * limits.VALUE_BYTES_MAX
BATCH_ROWS: Final = 1_000
# Bytes of lines, which are never fewer than those of their jobs.
BATCH_BYTES: Final = limits.BATCH_BYTES_MAX // 2
# What one row is refused for; all else is the matter of the whole table, or of the node.
ROW_CODES: Final = frozenset(
    {
        Code.EMPTY_KEY,
        Code.KEY_TOO_LONG,
        Code.BAD_DOMAIN,
        Code.BAD_TYPE,
        Code.BAD_VALUE,
        Code.VALUE_TOO_LARGE,
        Code.BAD_TIMESTAMP,
        Code.BAD_TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that is no job."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """A line that is one."""

    number: int
    job: dict[str, Any]


@contextlib.contextmanager
def opened(path: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """Opens a file of lines, or standard input for `-`; yields it, and its size if that is known.

    Raises:
        UsageError: if it cannot be read.
    """
    if path == "-":
        yield sys.stdin.buffer, None
        return
    try:
        file = open(path, "rb")  # noqa: SIM115 - it is closed below
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    with file:
        found = os.fstat(file.fileno())
        yield file, found.st_size if stat.S_ISREG(found.st_mode) else None


class Pushing:
    """Pushes a file of lines, and counts."""

    def __init__(self, jobs: Jobs, progress: Callable[[int, int | None], None]) -> None:
        self._jobs = jobs
        self._progress = progress
        self.pushed = 0
        self.bad = 0

    def run(self, file: IO[bytes], total: int | None) -> Iterator[Bad]:
        """Pushes all lines of a file of so many bytes; yields those that are bad."""
        rows: list[Row] = []
        read_bytes = batch_bytes = 0
        for number, line in enumerate(_lines(file), start=1):
            read_bytes += len(line)
            found = _parse(number, line)
            if isinstance(found, Bad):
                yield self._count(found)
            elif found is not None:
                rows.append(found)
                batch_bytes += len(line)
            if len(rows) == BATCH_ROWS or batch_bytes > BATCH_BYTES:
                yield from self._push(rows)
                self._progress(read_bytes, total)
                rows, batch_bytes = [], 0
        yield from self._push(rows)

    def _push(self, rows: list[Row]) -> Iterator[Bad]:
        if not rows:
            return
        try:
            self._jobs.push_many([row.job for row in rows])
        except (RefusedError, LocalProtocolError, ValueError) as error:
            if not isinstance(error, ValueError) and error.code not in ROW_CODES:
                raise
            if len(rows) == 1:
                yield self._count(Bad(rows[0].number, str(error)))
                return
            half = len(rows) // 2
            yield from self._push(rows[:half])
            yield from self._push(rows[half:])
        else:
            self.pushed += len(rows)

    def _count(self, bad: Bad) -> Bad:
        self.bad += 1
        return bad


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yields lines; of one that is too long, as much as shows that."""
    while line := file.readline(LINE_BYTES_MAX + 1):
        rest = line
        while len(rest) > LINE_BYTES_MAX and not rest.endswith(b"\n"):
            rest = file.readline(LINE_BYTES_MAX + 1)
        yield line


def _parse(number: int, line: bytes) -> Row | Bad | None:
    """Returns what a line says, None for an empty one."""
    if not line.strip():
        return None
    if len(line) > LINE_BYTES_MAX:
        return Bad(number, f"it has more than {LINE_BYTES_MAX} bytes")
    try:
        return Row(number, job_of(line))
    except UsageError as error:
        return Bad(number, str(error))


def job_of(line: bytes) -> dict[str, Any]:
    """Returns the job of a line, as `Jobs.push_many` takes it.

    Raises:
        UsageError: if it is none; the text says why.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError("it is no JSON object")
    unknown = found.keys() - _FIELDS.keys()
    if unknown:
        raise UsageError(f"a job has no {min(unknown)}; it has {', '.join(_FIELDS)}")
    if "delay" in found and "process_at" in found:
        raise UsageError("delay and process_at both say when; give one of them")
    job = {name: _FIELDS[name](name, value) for name, value in found.items()}
    return {"key": b"", "value": None, **job}


def _key(name: str, value: object) -> str | bytes:
    found = _bytes(value)
    if found is not None:
        return found
    if not isinstance(value, str):
        raise UsageError(f'{name} is a string, or {{"base64": ...}}')
    return value


def _value(name: str, value: object) -> Value:
    found = _bytes(value)
    if found is not None:
        _check_size(found)
        return found
    if value is not None and not isinstance(value, str | int | float):  # a bool is an int
        raise UsageError(f'{name} is null, a string, a number, true, false or {{"base64": ...}}')
    if isinstance(value, str):
        _check_size(value.encode(errors="surrogatepass"))
    return value


def _check_size(value: bytes) -> None:
    """Refuses here what would make a batch too large for a server to take apart."""
    if len(value) > VALUE_BYTES_MAX:
        raise UsageError(f"a value has at most {VALUE_BYTES_MAX} bytes")


def _bytes(value: object) -> bytes | None:
    """Returns what {"base64": ...} stands for, None if it is something else."""
    if not isinstance(value, dict) or value.keys() != {"base64"}:
        return None
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise UsageError(f"base64 that is none: {error}") from error


def _priority(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UsageError(f"{name} is a number from 0 to 255, or a name")
    return arguments.priority(str(value))


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _YEAR:
        raise UsageError(f"{name} is a number of seconds, at most 366 days")
    return value


def _date(name: str, value: object) -> Any:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} is a date such as 2026-01-31T12:00:00Z")
    return arguments.moment(value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} is a string")
    return value


_YEAR: Final = 366 * 24 * 3600
_FIELDS: Final[dict[str, Callable[[str, object], Any]]] = {
    "key": _key,
    "value": _value,
    "priority": _priority,
    "delay": _seconds,
    "process_at": _date,
    "expires_at": _date,
    "domain": _text,
}
