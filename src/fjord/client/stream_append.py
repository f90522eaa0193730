"""Building appends: messages as columns, with no step of Python for each where that can be.

Most appends have values of one type and no keys; then the work is a join and a sum.  What is more
than one commit may have is split into several, each of them as large as can be.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from fjord import limits, values
from fjord.client.entries import Key, encode_key, encode_keys
from fjord.client.schemas import Encoded
from fjord.columns import Strings
from fjord.commands import Append
from fjord.errors import Code, LocalProtocolError
from fjord.values import Type, Value

_SINGLE: Final = (str, bytes, bytearray, memoryview)
_NO_KEY: Final = Strings((0, 0), b"")
_ALL_BYTES: Final = frozenset((bytes,))
_ALL_TEXT: Final = frozenset((str,))


def append_one(table: str, value: Value, key: Key) -> Append:
    """Returns the command that appends one message."""
    type_, data = values.encode(value)
    name = encode_key(key) if key else b""
    return Append(
        table=table,
        types=bytes((type_,)),
        keys=Strings((0, len(name)), name),
        values=Strings((0, len(data)), data),
    )


def append_all(table: str, given: Iterable[Value], keys: Iterable[Key] | None) -> Append | None:
    """Returns the command that appends messages in one commit; None if there are none.

    Raises:
        ValueError: if there are not as many keys as values.
        LocalProtocolError: if a key or a value is nothing that can be sent.
    """
    types, data, named = _columns(listed("values", given), _listed_keys(keys))
    return _append(table, types, data, named) if types else None


def append_parts(
    table: str, given: Iterable[Value], keys: Iterable[Key] | None
) -> Iterator[Append]:
    """Yields the commands that append messages in order, each as large as one may be.

    What cannot be sent is found before the first one is made.
    """
    return append_lists(table, listed("values", given), _listed_keys(keys))


def append_lists(table: str, given: list[Any], keys: list[Any] | None) -> Iterator[Append]:
    """Does the same for lists."""
    types, data, named = _columns(given, keys)
    rows = len(types)
    if rows <= limits.BATCH_ROWS_MAX:
        whole = _append(table, types, data, named)
        if len(whole.values.data) + len(whole.keys.data) <= limits.BATCH_BYTES_MAX:
            return iter((whole,)) if rows else iter(())
    return _parts(table, types, data, named)


def _parts(
    table: str, types: bytes, data: list[bytes], keys: list[bytes] | None
) -> Iterator[Append]:
    sizes = list(accumulate(map(len, data), initial=0))
    if keys is not None:
        named = accumulate(map(len, keys), initial=0)
        sizes = [size + other for size, other in zip(sizes, named, strict=True)]
    start = 0
    while start < len(types):
        most = min(len(types), start + limits.BATCH_ROWS_MAX)
        bound = sizes[start] + limits.BATCH_BYTES_MAX
        # A message that is too large by itself goes alone, and is refused by the server.
        end = max(start + 1, bisect.bisect_right(sizes, bound, start, most + 1) - 1)
        part = slice(start, end)
        yield _append(table, types[part], data[part], None if keys is None else keys[part])
        start = end


def _append(table: str, types: bytes, data: list[bytes], keys: list[bytes] | None) -> Append:
    return Append(
        table=table,
        types=types,
        keys=_blank(len(types)) if keys is None else Strings.of(keys),
        values=Strings.of(data),
    )


# -- columns --------------------------------------------------------------------------------------


def _columns(
    given: list[Any], keys: list[Any] | None
) -> tuple[bytes, list[bytes], list[bytes] | None]:
    """Returns types, values and keys, as bytes; None for keys that are all empty."""
    if keys is not None and len(keys) != len(given):
        raise ValueError(f"keys: {len(keys)} for {len(given)} values")
    types, data = _values(given)
    return types, data, None if keys is None else _keys(keys)


def _listed_keys(keys: Iterable[Key] | None) -> list[Any] | None:
    return None if keys is None else listed("keys", keys)


def listed(name: str, given: Iterable[Any]) -> list[Any]:
    """Returns messages or keys as a list.

    Raises:
        TypeError: if it is a single one, which would be taken for one of each letter.
    """
    if type(given) is list:
        return given
    if isinstance(given, _SINGLE) or not isinstance(given, Iterable):
        raise TypeError(f"{name} are a list; this is a single {type(given).__name__}")
    return given if isinstance(given, list) else list(given)


def _values(given: Sequence[Value]) -> tuple[bytes, list[bytes]]:
    if isinstance(given, Encoded):
        return bytes((values.ROW,)) * len(given), given
    kinds = set(map(type, given))
    if kinds == _ALL_BYTES:
        return bytes((Type.BUFFER,)) * len(given), given  # type: ignore[return-value]
    if kinds == _ALL_TEXT:
        try:
            return bytes((Type.STRING,)) * len(given), list(map(str.encode, given))  # type: ignore[arg-type]
        except UnicodeEncodeError as error:
            text = f"the string is not UTF-8: {error}"
            raise LocalProtocolError(Code.BAD_VALUE, text) from error
    encoded = list(map(values.encode, given))
    return bytes([type_ for type_, _ in encoded]), [data for _, data in encoded]


def _keys(keys: Sequence[Value]) -> list[bytes]:
    if isinstance(keys, Encoded):
        return keys
    try:
        return list(map(str.encode, keys))  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError):
        return encode_keys(keys)  # type: ignore[arg-type]  # some are bytes, or have escaped ones


def _blank(count: int) -> Strings:
    """Returns a column of empty strings."""
    return _NO_KEY if count == 1 else Strings(array("I", bytes(4 * (count + 1))), b"")
