"""Messages that are nearly right: all valid ones, and what chance makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable

from fjord.commands import Flag, Use
from tests.unit.wire.samples import COMMANDS, LONG, REPLIES
from tests.unit.wire.seed_samples import CHANGES, PAGES, SAMPLES, SEEDS
from tests.unit.wire.streams import answered, sent
from tests.unit.wire.test_bad_input import CLOSING, KEPT

# Long samples are short ones with more of the same, and make a run slow.
_BYTES_MAX = 4_000

REQUESTS = [
    *(data for data, _, _ in SAMPLES.values()),
    *(sent(command) for command in COMMANDS),
    *(sent(one, number=1) for one in COMMANDS if type(one).row.flags & Flag.NUMBER),
    *(data for data, _ in (*CLOSING.values(), *KEPT.values())),
    sent(Use(table="mine"), 8),
]
REQUESTS = [data for data in REQUESTS if len(data) < _BYTES_MAX]
LONG_ERROR = (33, 0, LONG, LONG)
ANSWERS = [
    *map(answered, REPLIES),
    *(answered(one, function, flags=flags) for function, flags, one, _ in (*SEEDS, LONG_ERROR)),
    *(data for data, _, _ in PAGES.values()),
    *(data for data, _ in CHANGES.values()),
]

_INTERESTING = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFE, 0xFF)


class Mutants:
    """Changed messages without end, the same ones for the same seed."""

    def __init__(self, corpus: list[bytes], seed: int) -> None:
        self._corpus = corpus
        self.random = random.Random(seed)

    def next(self) -> bytes:
        data = bytearray(self.random.choice(self._corpus))
        for _ in range(self.random.choice((1, 1, 1, 2, 3, 8))):
            self.random.choice(_CHANGES)(self, data)
        return bytes(data[: 4 * _BYTES_MAX])

    def pieces(self, data: bytes) -> list[bytes]:
        """Cuts a message as a network might."""
        if self.random.random() < 0.5:
            return [data]
        cuts = sorted(self.random.randrange(len(data) + 1) for _ in range(3))
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def _place(self, data: bytearray) -> int:
        # A change in the header mostly ends all, so it is left alone more often than not.
        start = 0 if self.random.random() < 0.2 else min(22, len(data) // 2)
        return self.random.randrange(start, len(data)) if data else 0

    def flip(self, data: bytearray) -> None:
        if data:
            data[self._place(data)] ^= 1 << self.random.randrange(8)

    def replace(self, data: bytearray) -> None:
        if data:
            data[self._place(data)] = self.random.choice(_INTERESTING)

    def widen(self, data: bytearray) -> None:
        """Writes a number of 2, 4 or 8 bytes, in either order."""
        size = self.random.choice((2, 4, 8))
        number = self.random.choice((0, 1, 2**15, 2**16 - 1, 100_001, 2**31, 2**32 - 1, 2**64 - 1))
        order = self.random.choice(("big", "little"))
        place = self._place(data)
        data[place : place + size] = (number % 2 ** (8 * size)).to_bytes(size, order)

    def cut(self, data: bytearray) -> None:
        place = self._place(data)
        del data[place : place + self.random.choice((1, 2, 8, 1000))]

    def insert(self, data: bytearray) -> None:
        place = self._place(data)
        data[place:place] = self.random.randbytes(self.random.choice((1, 2, 8)))

    def repeat(self, data: bytearray) -> None:
        place = self._place(data)
        data[place:place] = data[place : place + self.random.choice((1, 8, 16, 200))]

    def splice(self, data: bytearray) -> None:
        """Goes on with another message, from its beginning or its middle."""
        other = self.random.choice(self._corpus)
        start = self.random.choice((0, self.random.randrange(len(other))))
        data[self.random.choice((len(data), self._place(data))) :] = other[start:]


_CHANGES: tuple[Callable[[Mutants, bytearray], None], ...] = (
    *(Mutants.flip,) * 6,
    *(Mutants.replace,) * 6,
    *(Mutants.widen,) * 2,
    Mutants.cut,
    Mutants.insert,
    Mutants.repeat,
    Mutants.splice,
)
