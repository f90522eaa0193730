"""The rows that are written and read: numbered keys, 100-byte values and messages."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import fjord

VALUE = b"x" * 100
BATCH = 1000


def key(row: int) -> str:
    return f"key:{row:09}"


def keys(rows: int) -> list[str]:
    return list(map(key, range(rows)))


def batches(keys: Sequence[str], size: int = BATCH) -> Iterator[dict[str, bytes]]:
    """Yields rows in the order of their keys."""
    for start in range(0, len(keys), size):
        yield dict.fromkeys(keys[start : start + size], VALUE)


def drawn_keys(chance: random.Random, keys: Sequence[str], size: int = BATCH) -> list[str]:
    """Returns random keys, uniformly distributed."""
    return chance.choices(keys, k=size)


def drawn_batch(chance: random.Random, keys: Sequence[str]) -> dict[str, bytes]:
    """Returns rows with random keys; a few of them are equal."""
    return dict.fromkeys(drawn_keys(chance, keys), VALUE)


def insert(kv: fjord.Kv, keys: Sequence[str]) -> None:
    for batch in batches(keys, 10 * BATCH):
        kv.set_many(batch)


def messages(first: int, count: int) -> list[bytes]:
    """Returns different messages of 100 bytes that compress like events."""
    return [_message(number) for number in range(first, first + count)]


def _message(number: int) -> bytes:
    mixed = number * 2654435761 % 2**32
    return (
        b'{"number":%012d,"user":%09d,"page":"/catalog/%010d","kind":"view","agent":"Fire"}  '
        % (number, mixed % 1_000_003, mixed)
    )
