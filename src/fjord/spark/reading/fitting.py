"""Columns of one declared type as columns of another one, in Arrow: pure.

    whole numbers -> whole numbers      if the new type has the number
    numbers       -> float32, float64   the nearest there is
    times         -> times
    string        -> binary             its UTF-8
    else                                null

Large whole numbers, of 128 bits and more, are text of digits here.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

MOMENT: Final = pa.timestamp("us", tz="UTC")
_SMALL: Final = (*(f"{u}int{bits}" for bits in (8, 16, 32, 64) for u in ("", "u")), "oid")
_LARGE: Final = tuple(f"{u}int{bits}" for bits in (128, 256, 512) for u in ("", "u"))
_FLOATS: Final = ("float32", "float64")
_TIMES: Final = ("time_seconds", "time_milliseconds", "time_microseconds")
# What a column of a type is for Spark, which has no unsigned numbers.
ARROW: Final[dict[str, Any]] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "oid": pa.decimal128(20, 0),
    **dict.fromkeys(_LARGE, pa.string()),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    **dict.fromkeys(_TIMES, MOMENT),
}


def fitted(array: pa.Array, was: str, now: str) -> pa.Array:
    """Returns values of one type as those of another one; null where they do not fit.

    Args:
        array: with the numbers as they are stored, unsigned ones too.
        was: the declared type that they have.
        now: the declared type that they are to have.
    """
    target = ARROW[now]
    if was in _SMALL and now in _SMALL:
        return _within(array, was, now).cast(target)
    if was in (*_SMALL, *_LARGE) and now in (*_SMALL, *_LARGE):
        return _digits_within(array, was, now)
    if was in _LARGE and now in _FLOATS:
        array, was = array.cast(pa.float64()), "float64"
    if was in (*_SMALL, *_FLOATS) and now in _FLOATS:
        return array.cast(target, safe=False)
    if was == now or (was in _TIMES and now in _TIMES) or (was, now) == ("string", "binary"):
        return array.cast(target)
    return pa.nulls(len(array), target)


def bounds(name: str) -> tuple[int, int]:
    """Returns the smallest and the largest number of a type."""
    bits = 64 if name == "oid" else int(name.partition("int")[2])
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if name[0] == "i" else (0, 2**bits - 1)


def _common(was: str, now: str) -> tuple[int, int]:
    return max(bounds(was)[0], bounds(now)[0]), min(bounds(was)[1], bounds(now)[1])


def _within(array: pa.Array, was: str, now: str) -> pa.Array:
    low, high = _common(was, now)
    if (low, high) == bounds(was):
        return array
    least, most = pa.scalar(low, array.type), pa.scalar(high, array.type)
    fits = compute.and_(compute.greater_equal(array, least), compute.less_equal(array, most))
    return compute.if_else(fits, array, pa.scalar(None, array.type))


def _digits_within(array: pa.Array, was: str, now: str) -> pa.Array:
    """Returns the same where one of the types is a large one."""
    target = ARROW[now]
    low, high = _common(was, now)
    if (low, high) == bounds(was):
        return array.cast(target)
    if was in _SMALL:
        return _within(array, was, now).cast(target)
    numbers = [None if text is None else int(text) for text in array.to_pylist()]
    fitting = [None if one is None or not low <= one <= high else one for one in numbers]
    if now in _SMALL:
        return pa.array(fitting, pa.int64() if bounds(now)[0] else pa.uint64()).cast(target)
    return pa.array([None if one is None else str(one) for one in fitting], target)
