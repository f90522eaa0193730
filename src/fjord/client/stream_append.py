"""Building appends: messages as columns, with no step of Python for each where that can be.

Most appends have values of one type and no keys; then the work is a join and a sum.  What is more
than one commit may have is split into several, each of them as large as can be.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Final

from fjord import limits, values
from fjord.client.entries import Key, blank_column, encode_key, key_column, value_column
from fjord.columns import Strings
from fjord.commands import Append
from fjord.values import Value

_SINGLE: Final = (str, bytes, bytearray, memoryview)


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
    types, data, named = _columns(given, keys)
    return _append(table, types, data, named) if types else None


def append_parts(
    table: str, given: Iterable[Value], keys: Iterable[Key] | None
) -> Iterator[Append]:
    """Yields the commands that append messages in order, each as large as one may be.

    What cannot be sent is found before the first one is made.
    """
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
        keys=blank_column(len(types)) if keys is None else Strings.of(keys),
        values=Strings.of(data),
    )


# -- columns --------------------------------------------------------------------------------------


def _columns(
    given: Iterable[Any], keys: Iterable[Key] | None
) -> tuple[bytes, list[bytes], list[bytes] | None]:
    """Returns types, values and keys, as bytes; None for keys that are all empty."""
    messages = listed("values", given)
    named = None if keys is None else listed("keys", keys)
    if named is not None and len(named) != len(messages):
        raise ValueError(f"keys: {len(named)} for {len(messages)} values")
    types, data = value_column(messages)
    return types, data, None if named is None else key_column(named)


def listed(name: str, given: Iterable[Any]) -> list[Any]:
    """Returns messages or keys as a list.

    Raises:
        TypeError: if it is a single one, which would be taken for one of each letter.
    """
    if isinstance(given, list):
        return given  # perhaps `Encoded` rows, which it stays
    if isinstance(given, _SINGLE) or not isinstance(given, Iterable):
        raise TypeError(f"{name} are a list; this is a single {type(given).__name__}")
    return list(given)
