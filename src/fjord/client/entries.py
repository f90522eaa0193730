"""Entries and changes as users see them, and the encoding of keys, values, dates and durations.

A key is bytes.  Text stands for its UTF-8; other bytes are returned as the lone surrogates of
Python's `surrogateescape`, and accepted as such, so any key can be used as text.
"""

from __future__ import annotations

import math
import reprlib
import struct
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from fjord import limits, values
from fjord.client.calls import is_number, not_a
from fjord.columns import Strings
from fjord.commands import Changed, Entries
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.values import Value

Key = str | bytes
AnyKey = TypeVar("AnyKey", bound=Key)
Seconds = float | timedelta

_ESCAPED: Final = "surrogateescape"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A value with its type, dates and state."""

    value: Any  # a dict, in a stream with declared columns
    type: values.Type | values.RowType
    written_at: datetime  # the writer's clock
    created_at: datetime  # when the key got its first value
    accessed_at: datetime | None  # when it was last touched or taken
    expires_at: datetime | None  # None: never
    ttl: float | None  # seconds until expiry after a touch
    locked: bool
    worked_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a listened key."""

    key: Key  # as given to `listen`
    value: Value  # the new one; None if it was deleted
    deleted: bool  # deleted or expired
    written_at: datetime
    expires_at: datetime | None


# -- keys -----------------------------------------------------------------------------------------


def encode_keys(keys: Iterable[Key], what: str = "key") -> list[bytes]:
    """Returns the bytes of keys, or of something given like keys.

    Raises:
        LocalProtocolError: if one is neither str nor bytes, or not UTF-8.
    """
    try:
        return [
            key.encode("utf-8", _ESCAPED) if type(key) is str else _encode_key(key, what)
            for key in keys
        ]
    except UnicodeEncodeError as error:
        raise LocalProtocolError(Code.BAD_VALUE, f"the {what} is not UTF-8: {error}") from error


def encode_key(key: Key) -> bytes:
    if type(key) is str and key.isascii():
        return key.encode()
    return encode_keys([key])[0]


def several_keys(keys: Iterable[AnyKey]) -> list[AnyKey]:
    """Returns keys as a list.

    Raises:
        TypeError: if it is a single key, which would be split into characters.
    """
    if isinstance(keys, str | bytes):
        raise TypeError("several keys must be a list; this is a single key")
    return list(keys)


def encode_domain(domain: Key | None) -> bytes:
    """Returns the bytes of a domain of jobs; nothing for None."""
    return b"" if domain is None else encode_keys([domain], "domain")[0]


def decode_key(key: bytes) -> str:
    return key.decode("utf-8", _ESCAPED)


def _encode_key(key: Key, what: str) -> bytes:
    if isinstance(key, str):
        return key.encode("utf-8", _ESCAPED)
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key)
    raise LocalProtocolError(Code.BAD_TYPE, f"a {what} is str or bytes, not {type(key).__name__}")


# -- columns of what is sent ----------------------------------------------------------------------


class Encoded(list[bytes]):
    """Encoded rows of a declared table, or their keys."""


def key_column(keys: Iterable[Key]) -> list[bytes]:
    """Returns the bytes of keys, without a Python loop where possible."""
    if isinstance(keys, Encoded):
        return keys
    listed: Any = keys
    try:
        return list(map(str.encode, listed))
    except (TypeError, UnicodeEncodeError):
        return encode_keys(listed)  # some are bytes, or have escaped ones


def value_column(given: Any) -> tuple[bytes, list[bytes]]:
    """Returns the types and the bytes of values, fast if all are of one type.

    Raises:
        LocalProtocolError: if one cannot be sent.
    """
    if isinstance(given, Encoded):
        return bytes((values.ROW,)) * len(given), given
    kinds = set(map(type, given))
    if kinds == {bytes}:
        return bytes((values.Type.BUFFER,)) * len(given), given
    if kinds == {str}:
        try:
            return bytes((values.Type.STRING,)) * len(given), list(map(str.encode, given))
        except UnicodeEncodeError as error:
            text = f"the string is not UTF-8: {error}"
            raise LocalProtocolError(Code.BAD_VALUE, text) from error
    encoded = list(map(values.encode, given))
    return bytes([type_ for type_, _ in encoded]), [data for _, data in encoded]


def blank_column(count: int) -> Strings:
    """Returns a column of empty strings."""
    return BLANK if count == 1 else Strings(array("I", bytes(4 * (count + 1))), b"")


BLANK: Final = Strings((0, 0), b"")


# -- dates ----------------------------------------------------------------------------------------


def microseconds(moment: datetime | None) -> int:
    """Returns a date in microseconds; 0 for None."""
    if moment is None:
        return 0
    # Integers are exact; a float has too few digits for microseconds of the far future.
    found = (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    if found <= 0:
        raise LocalProtocolError(Code.BAD_TIMEOUT, "an expiry must be in the future")
    return found


def duration_us(seconds: Seconds | None) -> int:
    """Returns a duration in microseconds; 0 for None."""
    if seconds is None:
        return 0
    exact = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if not 0 < exact < float("inf") or (found := round(exact * 1_000_000)) == 0:
        raise LocalProtocolError(Code.BAD_TIMEOUT, "a duration must be more than 0, and finite")
    return found


def date(found_us: int) -> datetime:
    """Returns a date of the protocol.

    Raises:
        RemoteProtocolError: if it is beyond the year 9999.
    """
    try:
        return _EPOCH + timedelta(microseconds=found_us)
    except OverflowError as error:
        raise RemoteProtocolError(Code.BAD_TIMESTAMP, f"a date of {found_us} us") from error


def date_or_none(found_us: int) -> datetime | None:
    return date(found_us) if found_us else None


# -- replies --------------------------------------------------------------------------------------


def decode_value(type_: int, data: bytes) -> Value:
    """Returns the Python value of a reply's bytes.

    Raises:
        RemoteProtocolError: if the bytes do not fit the type, or there is no such type.
    """
    try:
        return values.decode(type_, data)
    except (ValueError, struct.error) as error:
        raise RemoteProtocolError(Code.BAD_VALUE, f"a value of type {type_}: {error}") from error


def decode_values(types: bytes, column: Sequence[bytes]) -> list[Any]:
    return list(map(decode_value, types, column))


Decode = Callable[[int, bytes], Any]  # such as `decode_value`


def read_values(
    keys: Sequence[AnyKey], found: Entries, decode: Decode = decode_value
) -> dict[AnyKey, Any]:
    """Returns the values of those keys that have one."""
    rows = zip(keys, found.types, found.values.rows(), strict=True)
    return {key: decode(type_, data) for key, type_, data in rows if type_ != Entries.MISSING}


def read_entry(found: Entries, row: int, decode: Decode = decode_value) -> Entry:
    """Returns an existing entry of a reply."""
    type_ = found.types[row]
    return Entry(
        value=decode(type_, found.values[row]),
        type=values.RowType.ROW if type_ == values.ROW else values.Type(type_),
        written_at=date(found.timestamps_us[row]),
        created_at=date(found.created_us[row]),
        accessed_at=date_or_none(found.accessed_us[row]),
        expires_at=date_or_none(found.expires_at_us[row]),
        ttl=found.ttls_us[row] / 1_000_000 or None,
        locked=bool(found.states[row] & Entries.LOCKED),
        worked_on=bool(found.states[row] & Entries.WORKED_ON),
    )


def change_reader(keys: Iterable[Key]) -> Callable[[Changed], Change]:
    """Returns a reader of changes of these keys."""
    given: Mapping[bytes, Key] = {encode_key(key): key for key in keys}

    def read(changed: Changed) -> Change:
        deleted = changed.type == Entries.MISSING
        return Change(
            key=given.get(changed.key, changed.key),
            value=None if deleted else decode_value(changed.type, changed.value),
            deleted=deleted,
            written_at=date(changed.timestamp_us),
            expires_at=date_or_none(changed.expires_at_us),
        )

    return read


# -- delays, leases, waits and dates of jobs, in microseconds -------------------------------------
#
# Invalid ones are refused here with a ValueError or a TypeError that names the option, before
# anything is sent.


_MICROSECOND: Final = timedelta(microseconds=1)
# Smaller numbers are left to the server, which knows its bounds.
_NUMBER_MAX: Final = 2**63


def delay_us(seconds: Seconds | None, name: str = "delay") -> int:
    """Returns a delay; 0 for None.

    Raises:
        ValueError: if it is negative or infinite.
        TypeError: if it is not a duration.
    """
    given: Any = seconds  # of any type
    if given is None:
        return 0
    if isinstance(given, timedelta):
        found = given // _MICROSECOND  # a float has too few digits for long ones
    elif type(given) not in (int, float) and not is_number(given):
        shown = reprlib.repr(given)
        raise TypeError(f"{name} is a number of seconds, such as 60 or 0.5, not {shown}")
    elif isinstance(given, int) or math.isfinite(given):
        found = round(given * 1_000_000)
    else:
        raise ValueError(f"{name} is a number of seconds, not {seconds}")
    if not 0 <= found < _NUMBER_MAX:
        raise ValueError(f"{name} is 0 seconds or more, not {seconds}")
    return found


def lease_us(seconds: Seconds | None) -> int:
    """Returns the length of a lease; 0 for None, the table's setting."""
    if seconds is None:
        return 0
    found = delay_us(seconds, "lease")
    if not found:
        raise ValueError("lease must be more than 0 seconds; leave it out for the table's setting")
    return found


def wait_us(seconds: Seconds | None) -> int:
    """Returns how long the server waits; 0 for None."""
    if seconds is None:
        return 0
    found = delay_us(seconds, "wait")
    if found > limits.WAIT_US_MAX:
        raise ValueError(
            f"wait is at most {limits.WAIT_US_MAX // 1_000_000} seconds, not {seconds}; call again"
        )
    return found


def moment_us(moment: datetime | None, name: str) -> int:
    """Returns a date in microseconds; 0 for None.

    Raises:
        ValueError: if it has no time zone, or is before 1970.
        TypeError: if it is not a datetime.
    """
    if moment is None:
        return 0
    if not isinstance(moment, datetime):
        raise not_a(name, "a datetime with a time zone", moment)
    if moment.tzinfo is None:
        raise ValueError(f"{name} needs a time zone, as in datetime.now(UTC) or .astimezone()")
    found = (moment - _EPOCH) // _MICROSECOND
    if found <= 0:
        raise ValueError(f"{name} must be after 1970, not {moment}")
    return found
