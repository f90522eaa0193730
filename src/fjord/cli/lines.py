"""Lines of a file or of standard input: reading them, and what the JSON in them stands for.

A batch is all or nothing, so one that is refused for the sake of a row is sent in halves until the
row stands alone: it is told with its number, and all others are kept.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final, Generic, TypeVar

from fjord import limits
from fjord.errors import Code, LocalProtocolError, RefusedError, UsageError
from fjord.values import Value

What = TypeVar("What")
Field = Callable[[str, object], Any]

STDIN: Final = "-"
VALUE_BYTES_MAX: Final = limits.VALUE_BYTES_MAX
# Base64 makes four of three, JSON up to six of one.
LINE_BYTES_MAX: Final = 8 * limits.VALUE_BYTES_MAX
# So much is asked for at a time; a pipe gives what it has.
READ_BYTES: Final = limits.MIB
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
    """A line that is not what it should be."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Row(Generic[What]):
    """A line that is."""

    number: int
    what: What


@contextlib.contextmanager
def opened(path: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """Opens a file of lines, or standard input for `-`; yields it, and its size if that is known.

    Raises:
        UsageError: if it cannot be read.
    """
    if path == STDIN:
        yield sys.stdin.buffer, None
        return
    try:
        file = open(path, "rb")  # noqa: SIM115 - it is closed below
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    with file:
        found = os.fstat(file.fileno())
        yield file, found.st_size if stat.S_ISREG(found.st_mode) else None


def one_by_one(file: IO[bytes]) -> Iterator[bytes]:
    """Yields lines with their ends; of one that is too long, as much as shows that."""
    while line := _read(file, file.readline, LINE_BYTES_MAX + 1):
        rest = line
        while len(rest) > LINE_BYTES_MAX and not rest.endswith(b"\n"):
            rest = _read(file, file.readline, LINE_BYTES_MAX + 1)
        yield line


def as_they_come(file: Any) -> Iterator[list[bytes]]:
    """Yields lines without their ends: all that are there already, so that none waits for others.

    Of one that is too long there is as much as shows that.
    """
    rest = b""
    while data := _read(file, file.read1, READ_BYTES):
        *whole, rest = (rest + data).split(b"\n")
        rest = rest[: LINE_BYTES_MAX + 1]
        if whole:
            yield whole
    if rest:
        yield [rest]


def _read(file: IO[bytes], read: Callable[[int], bytes], size: int) -> bytes:
    """Reads on in a file.

    Raises:
        UsageError: if that fails: the file is a directory, or its disk is broken.
    """
    try:
        return read(size)
    except OSError as error:
        name = "standard input" if file is sys.stdin.buffer else file.name
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error


def parse(number: int, line: bytes, read: Callable[[bytes], What]) -> Row[What] | Bad:
    """Returns what a line stands for, or why it stands for nothing."""
    if len(line) > LINE_BYTES_MAX:
        return Bad(number, f"it has more than {LINE_BYTES_MAX} bytes")
    try:
        return Row(number, read(line))
    except UsageError as error:
        return Bad(number, str(error))


def in_halves(rows: list[Row[What]], act: Callable[[list[Row[What]]], None]) -> Iterator[Bad]:
    """Acts on rows, in order; yields those that are refused for what they are.

    Raises:
        RefusedError: if it is not for the sake of a row.
    """
    if not rows:
        return
    try:
        act(rows)
    except (RefusedError, LocalProtocolError, ValueError) as error:
        if not isinstance(error, ValueError) and error.code not in ROW_CODES:
            raise
        if len(rows) == 1:
            yield Bad(rows[0].number, str(error))
            return
        half = len(rows) // 2
        yield from in_halves(rows[:half], act)
        yield from in_halves(rows[half:], act)


# -- JSON -----------------------------------------------------------------------------------------


def fields_of(line: bytes, noun: str, fields: Mapping[str, Field]) -> dict[str, Any]:
    """Returns the members of a line's JSON object, each read by the field of its name.

    Raises:
        UsageError: if it is none, or has others; the text says why.
    """
    found = from_json(line, "it")
    if not isinstance(found, dict):
        raise UsageError("it is no JSON object")
    unknown = found.keys() - fields.keys()
    if unknown:
        raise UsageError(f"a {noun} has no {min(unknown)}; it has {', '.join(fields)}")
    return {name: fields[name](name, value) for name, value in found.items()}


def from_json(data: str | bytes, what: str) -> Any:
    """Returns what JSON stands for.

    Raises:
        UsageError: if it is none, or an object in it has a member twice; the text says why.
    """
    try:
        return json.loads(data, object_pairs_hook=_members)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is no JSON: {error}") from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counted.items() if count > 1)
        raise UsageError(f"{twice!r} is there twice; an object has each member once")
    return found


def key(name: str, value: object) -> str | bytes:
    found = from_base64(value)
    if found is not None:
        return found
    return text(name, value, ', or {"base64": ...}')


def value(name: str, value: object) -> Value:
    found = from_base64(value)
    if found is not None:
        check_size(found)
        return found
    if value is not None and not isinstance(value, str | int | float):  # a bool is an int
        raise UsageError(f'{name} is null, a string, a number, true, false or {{"base64": ...}}')
    if isinstance(value, str):
        check_size(value.encode(errors="surrogatepass"))
    return value


def text(name: str, value: object, otherwise: str = "") -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} is a string{otherwise}")
    return value


def check_size(value: bytes) -> None:
    """Refuses here what would make a batch too large for a server to take apart."""
    if len(value) > VALUE_BYTES_MAX:
        raise UsageError(f"a value has at most {VALUE_BYTES_MAX} bytes")


def from_base64(value: object) -> bytes | None:
    """Returns what {"base64": ...} stands for, None if it is something else.

    Raises:
        UsageError: if that is no base64.
    """
    if not isinstance(value, dict) or value.keys() != {"base64"}:
        return None
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise UsageError(f"base64 that is none: {error}") from error
