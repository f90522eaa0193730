"""Lines of a file or of standard input: opening it, and parsing their JSON."""

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
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Final

from fjord import kinds, limits
from fjord.cli.output import tell
from fjord.declared.schema import Schema
from fjord.errors import NotFoundError, UsageError
from fjord.values import Value

if TYPE_CHECKING:
    from fjord.client.blocking.database import Database


Field = Callable[[str, object], Any]

STDIN: Final = "-"
VALUE_BYTES_MAX: Final = limits.VALUE_BYTES_MAX


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


def tell_bad(noun: str, number: int, reason: str) -> None:
    tell(f"{noun} {number}: {reason}", style="yellow")


# -- JSON -----------------------------------------------------------------------------------------


def fields_of(line: bytes, noun: str, fields: Mapping[str, Field]) -> dict[str, Any]:
    """Returns the members of a line's JSON object, each parsed by its field.

    Raises:
        UsageError: if it is not an object, or has unknown members.
    """
    found = from_json(line, "it")
    if not isinstance(found, dict):
        raise UsageError("it is not a JSON object")
    unknown = found.keys() - fields.keys()
    if unknown:
        raise UsageError(f"a {noun} has no {min(unknown)}; it has {', '.join(fields)}")
    return {name: fields[name](name, value) for name, value in found.items()}


def from_json(data: str | bytes, what: str) -> Any:
    """Parses JSON.

    Raises:
        UsageError: if it is invalid, or an object in it has a duplicate member.
    """
    try:
        return json.loads(data, object_pairs_hook=_members)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not valid JSON: {error}") from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counted.items() if count > 1)
        raise UsageError(f"{twice!r} occurs twice in an object")
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
        raise UsageError(f'{name} must be null, a string, a number, a boolean or {{"base64": ...}}')
    if isinstance(value, str):
        check_size(value.encode(errors="surrogatepass"))
    return value


def text(name: str, value: object, otherwise: str = "") -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a string{otherwise}")
    return value


def check_size(value: bytes) -> None:
    if len(value) > VALUE_BYTES_MAX:
        raise UsageError(f"a value has at most {VALUE_BYTES_MAX} bytes")


def from_base64(value: object) -> bytes | None:
    """Returns the bytes of {"base64": ...}, or None if it is something else.

    Raises:
        UsageError: if it is not valid base64.
    """
    if not isinstance(value, dict) or value.keys() != {"base64"}:
        return None
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise UsageError(f"invalid base64: {error}") from error


# -- rows of declared tables as JSON objects, in the same form for input and output ---------------
#
#     string                     a string
#     boolean                    true or false
#     int8 ... uint512, oid      a number of any size
#     float32, float64           a number, or "nan", "inf" and "-inf"
#     binary                     {"base64": "..."}
#     time_seconds and the like  an RFC 3339 date with its zone: 2026-01-31T12:00:00+00:00
#
# A column that is null or missing has no value.


_FLOATS: Final = ("nan", "inf", "-inf")


def schema_of(db: Database, table: str) -> Schema:
    """Returns the declared columns of a table; none if it does not exist."""
    try:
        found = db.table(table)
    except NotFoundError:
        return Schema()
    settings = kinds.settings_of(found.kind, found.settings)
    return settings.declared if settings else Schema()


def json_reader(
    noun: str, fields: Mapping[str, Field], schema: Schema
) -> Callable[[bytes], dict[str, Any] | None]:
    """Returns a parser of lines that are objects with these fields; None for an empty line.

    If the table has declared columns, the row is `value`, or its columns stand beside the other
    fields; a key made of columns is left out.
    """
    types = _types(schema)
    known = {name: lambda name, one: _value(name, one, types[name]) for name in types}
    known |= fields
    if types:
        known["value"] = lambda name, one: _row(name, one, types)
    if schema.key:
        known.pop("key", None)

    def read(line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        found = fields_of(line, noun, known)
        row = {name: found.pop(name) for name in list(found) if name not in fields}
        if row and "value" in found:
            raise UsageError("value is the row; give no columns beside it")
        return {"value": row, **found} if types else found

    return read


def row_of(text: str, schema: Schema) -> dict[str, Any]:
    """Parses a row.

    Raises:
        UsageError: if it is not a JSON object of columns.
    """
    return _row("a row", from_json(text, "the row"), _types(schema))


def _types(schema: Schema) -> dict[str, str]:
    return {column.name: column.type for column in schema.columns}


def _row(name: str, given: object, types: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise UsageError(f"{name} must be a JSON object of columns")
    # Unknown columns and wrong types are refused later, with better messages.
    return {column: _value(column, one, types.get(column, "")) for column, one in given.items()}


def _value(name: str, value: object, type_: str) -> Any:
    if value is None:
        return None
    if type_.startswith("time_"):
        return _moment(name, value)
    if type_ == "binary":
        found = from_base64(value)
        if found is None:
            raise UsageError(f'column {name} must be {{"base64": "..."}}')
        return found
    if type_.startswith("float") and value in _FLOATS:
        return float(str(value))
    return value


def _moment(name: str, value: object) -> datetime:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise UsageError(f"column {name} must be a date with a zone, as 2026-01-31T12:00:00Z")
    return found
