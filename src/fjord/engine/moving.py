"""Moving jobs out of segments that are to go: one pass over all jobs, in small slices.

A job may go to another tree while the pass is under way, from one that is not looked at yet to one
that was.  So what changed its place meanwhile is remembered, and looked at in the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol

from fjord import layouts, limits
from fjord.columns import Strings
from fjord.ops import Op, Opcode, Place
from fjord.tables.jobs import layout, upkeep
from fjord.tables.jobs.layout import PLACE_BYTES, ROW_AT, XID
from fjord.tables.jobs.upkeep import MoveJobs
from fjord.tables.meaning import MEANING
from fjord.tables.state import Tree

_ROWS: Final = 1000
# With more than this it is cheaper to begin again.
_PLACES_MAX: Final = 200_000


class Host(Protocol):
    """What the pass needs of the engine."""

    def scan_index(
        self, tree: int, start: bytes, stop: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]: ...


class Moving:
    """A pass that moves all jobs that are held by rows before a seq."""

    def __init__(
        self, host: Host, before_seq: int, slice_bytes: int = limits.PACK_SLICE_BYTES
    ) -> None:
        self._host = host
        self._before_seq = before_seq
        self._slice_bytes = slice_bytes
        self._places: deque[tuple[Tree, bytes]] = deque()
        self._is_lost = False  # too much changed its place to be remembered

    def note(self, op: Op, place: Place) -> None:
        """Takes note of an op that was applied while the pass is under way."""
        tree = MEANING[op.opcode].puts
        if tree is None or self._is_lost:
            return
        self._places.extend((tree, key) for key in _keys(op, place))
        self._is_lost = len(self._places) > _PLACES_MAX

    def commands(self) -> Iterator[MoveJobs]:
        """Yields what is to be run, a bounded step each; some of them move nothing."""
        yield from self._pass()
        while self._places or self._is_lost:
            if self._is_lost:
                self._places.clear()
                self._is_lost = False
                yield from self._pass()
            else:
                yield self._step_back()

    def _pass(self) -> Iterator[MoveJobs]:
        for tree in upkeep.STATES:
            start = b""
            while items := self._host.scan_index(tree, start, None, _ROWS):
                keys, start = self._choose(tree, items)
                yield MoveJobs(tree=tree, keys=keys, before_seq=self._before_seq)

    def _choose(self, tree: Tree, items: list[tuple[bytes, bytes]]) -> tuple[list[bytes], bytes]:
        """Returns which of the items are to be moved, and where to go on."""
        keys: list[bytes] = []
        size = 0
        for key, data in items:
            _, image = upkeep.parts(tree, key, data)
            if layout.held_of(image) < self._before_seq:
                keys.append(key)
                size += layout.bytes_of(image)
            if size >= self._slice_bytes:
                return keys, key + b"\0"
        return keys, items[-1][0] + b"\0"

    def _step_back(self) -> MoveJobs:
        """Returns the next places that were taken note of, those of one tree."""
        tree = self._places[0][0]
        keys: list[bytes] = []
        while self._places and self._places[0][0] is tree and len(keys) < _AT_ONCE:
            keys.append(self._places.popleft()[1])
        return MoveJobs(tree=tree, keys=keys, before_seq=self._before_seq)


# Values are at most 1 MiB, so that these fit a frame.
_AT_ONCE: Final = 16


def _keys(op: Op, place: Place) -> Iterator[bytes]:
    """Yields the index keys under which an op has put jobs that were there before."""
    prefix = layouts.prefix_of(op.table)
    if op.opcode is Opcode.JOB_TAKE:
        yield from (prefix + XID.pack(seq) for seq in range(place.seq, place.seq + op.rows))
        return
    images = op.column("image")
    assert isinstance(images, Strings)
    for image in images.rows():
        start = 0 if op.opcode is Opcode.JOB_WAIT else ROW_AT.start
        yield prefix + image[start:PLACE_BYTES]
