"""Snapshots: the state as of a seq, while writers go on.

A snapshot is a seq.  An op that replaces an entry of a key/value table or of a stream, where that
entry is older than the newest open snapshot, is accompanied by the old entry (op VERSION), stored
under that snapshot.  So the version of an entry at a snapshot is found in one of two places:

    in the index       if its row is not younger than the snapshot
    among VERSIONS     under this snapshot or a later one, if its row is not younger either;
                           there is at most one such version, since versions follow each other

With no snapshot open nothing is kept, and the index has one entry per key.  Versions are removed
once no snapshot needs them.  Until then values stay where they are in the journal: packing removes
no segment that a version may point to, see `engine.packing`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from fjord import commands, layouts, limits, ops
from fjord.commands import Opened, Refusal, Replies, Reply
from fjord.commands.codec import data_bytes
from fjord.commands.layout import Command, internal
from fjord.errors import Code, RefusedError
from fjord.layouts import Items
from fjord.ops import Op, Opcode
from fjord.tables import catalog, rules
from fjord.tables.kv import layout
from fjord.tables.meaning import MEANING
from fjord.tables.state import Decision, Moment, Tree, View, VolatileValue, decides
from fjord.tables.streams import layout as stream_entry
from fjord.tables.streams.layout import VERSION_KEY

_NOTHING: Final[Mapping[bytes, Any]] = MappingProxyType({})
_PIECE: Final = 256
# The trees whose entries are kept for snapshots.
_KEPT: Final = (Tree.KV, Tree.KV_MARKS, Tree.STREAM_SEQS)
# Those whose keys are the keys of values, and whose items begin with their row.
_BY_KEY: Final = (Tree.KV, Tree.KV_MARKS)


@internal(frees=True)
class EndSnapshots(Command):
    """Closes snapshots whose deadline has passed."""

    limit: int


# -- opening and closing --------------------------------------------------------------------------


@decides(commands.OpenSnapshot)
def decide_open(command: commands.OpenSnapshot, state: View, now_us: int) -> Decision:
    lifetime_us = command.lifetime_us or limits.SNAPSHOT_US_MAX
    if not 0 < lifetime_us <= limits.SNAPSHOT_US_MAX:
        text = f"a snapshot stays open for at most {limits.SNAPSHOT_US_MAX // 1_000_000} seconds"
        raise RefusedError(Code.BAD_TIMEOUT, text)
    if len(state.snapshots) >= limits.SNAPSHOTS_MAX:
        text = f"{limits.SNAPSHOTS_MAX} snapshots are open; close some, or try again later"
        raise RefusedError(Code.QUOTA, text)
    made = _open_op(state, now_us, lifetime_us, is_pass=False)
    opened = Opened(snapshot=state.next_seq, wall_us=now_us, until_us=now_us + lifetime_us)
    return Decision(opened, made)


def pass_ops(state: View, now_us: int) -> list[Op]:
    """Returns the op that opens a snapshot for a reader; none if there are too many.

    Readers may use half of all snapshots.  A reader without one continues with a later snapshot.
    """
    if sum(moment.is_pass for moment in state.snapshots.values()) >= limits.SNAPSHOTS_MAX // 2:
        return []
    return _open_op(state, now_us, limits.SNAPSHOT_US_MAX, is_pass=True)


def _open_op(state: View, now_us: int, lifetime_us: int, *, is_pass: bool) -> list[Op]:
    """Returns the op that opens a snapshot of the current state; its seq is the snapshot."""
    row = (0, state.lease_us + lifetime_us, now_us, catalog.largest_id(state), is_pass)
    return ops.of_rows(Opcode.SNAPSHOT, catalog.NO_TABLE, [row])


@decides(commands.CloseSnapshot)
def decide_close(command: commands.CloseSnapshot, state: View, now_us: int) -> Decision:
    return catalog.decision(state, close_ops(state, [command.snapshot]))


@decides(EndSnapshots)
def decide_end(command: EndSnapshots, state: View, now_us: int) -> Decision:
    open_ = state.snapshots.items()
    over = [one for one, moment in open_ if moment.deadline_us <= state.lease_us]
    return catalog.decision(state, close_ops(state, over[: command.limit]))


def close_ops(state: View, snapshots: Sequence[int]) -> list[Op]:
    """Returns the op that closes those of these snapshots that are open."""
    found = [(state.snapshots[one].deadline_us, one) for one in snapshots if one in state.snapshots]
    return ops.of_rows(Opcode.SNAPSHOT_END, catalog.NO_TABLE, found)


def read_all(items: Sequence[tuple[bytes, bytes]]) -> dict[int, Moment]:
    """Decodes items of SNAPSHOTS; the oldest comes first."""
    return dict(sorted(stream_entry.decode_snapshot(key, data) for key, data in items))


# -- keeping replaced entries ---------------------------------------------------------------------


def kept(decided: Sequence[Op], state: View) -> list[Op]:
    """Returns the ops that keep replaced entries, as far as an open snapshot needs them."""
    newest = max(state.snapshots)
    found: dict[tuple[Tree, bytes], bytes] = {}
    for op in decided:
        replaces = MEANING[op.opcode].replaces
        if replaces and catalog.is_there(state, op.table):
            found |= _replaced(op, replaces, state, newest)
    rows = [(newest, tree, key, image) for (tree, key), image in found.items()]
    return ops.of_rows(Opcode.VERSION, catalog.NO_TABLE, rows)


def _replaced(
    op: Op, replaces: Sequence[str], state: View, newest: int
) -> dict[tuple[Tree, bytes], bytes]:
    prefix = layouts.prefix_of(op.table)
    keys, *lost = map(op.column, replaces)
    found = [(Tree.KV, prefix + key) for key in keys.rows()]
    if not lost:
        found += [(Tree.KV_MARKS, key) for _, key in found]  # messages have no marks
    for seqs in lost:
        found += [(Tree.STREAM_SEQS, stream_entry.seq_key(prefix, seq)) for seq in seqs if seq]
    images: dict[tuple[Tree, bytes], bytes] = {}
    for tree in _KEPT:
        wanted = [key for one, key in found if one is tree]
        for key, image in zip(wanted, state.get_many(tree, wanted), strict=True):
            if image is not None and _row_of(tree, key, image) <= newest:
                images[tree, key] = image
    return images


def _row_of(tree: int, key: bytes, image: bytes) -> int:
    """Returns the seq of the row that an entry or a mark belongs to."""
    if tree in _BY_KEY:
        row: int = layout.ROW.unpack_from(image)[0]
        return row
    return stream_entry.seq_of(key)


def sweep(state: View, limit: int) -> list[Op]:
    """Returns the op that drops versions that no snapshot needs; none if nothing is left."""
    oldest = next(iter(state.snapshots), None)
    stop = None if oldest is None else stream_entry.SEQ.pack(oldest)
    items = state.scan(Tree.VERSIONS, b"", stop, limit)
    rows = [(*VERSION_KEY.unpack_from(key), key[VERSION_KEY.size :]) for key, _ in items]
    return ops.of_rows(Opcode.VERSION_DROP, catalog.NO_TABLE, rows)


# -- reading --------------------------------------------------------------------------------------


class AsOf:
    """The state of kv tables and streams at an open snapshot, without locks."""

    volatile_bytes = 0
    client = 0

    def __init__(self, state: View, snapshot: int) -> None:
        self._state = state
        self.as_of = snapshot
        self.next_seq = snapshot + 1
        self.volatile: Mapping[bytes, VolatileValue] = _NOTHING
        self.locks: Mapping[bytes, int] = _NOTHING
        self.master, self.tables, self.lease_us = state.master, state.tables, state.lease_us
        self.lanes, self.snapshots = state.lanes, state.snapshots
        self.payloads, self.job_counts = state.payloads, state.job_counts
        self.location, self.size_of = state.location, state.size_of
        self.generations, self.taken_keys = state.generations, state.taken_keys
        self.linked_keys = state.linked_keys

    def volatile_between(self, start: bytes, stop: bytes | None, limit: int) -> list[bytes]:
        return []

    def get_many(self, tree: int, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._state.get_many(tree, keys)
        if tree not in _KEPT:
            return found
        unknown = []
        for at, (key, image) in enumerate(zip(keys, found, strict=True)):
            if image is None or _row_of(tree, key, image) > self.as_of:
                found[at] = None
                unknown.append(at)
        for later in self._laters() if unknown else ():
            head = VERSION_KEY.pack(later, tree)
            images = self._state.get_many(Tree.VERSIONS, [head + keys[at] for at in unknown])
            for at, image in zip(unknown, images, strict=True):
                if image is not None and _row_of(tree, keys[at], image) <= self.as_of:
                    found[at] = image
        return found

    def scan(self, tree: int, start: bytes, stop: bytes | None, limit: int) -> Items:
        if tree not in _KEPT:
            return self._state.scan(tree, start, stop, limit)
        sources = [self._held(tree, tree, b"", start, stop)]
        for later in self._laters():
            head = VERSION_KEY.pack(later, tree)
            end = VERSION_KEY.pack(later, tree + 1) if stop is None else head + stop
            sources.append(self._held(tree, Tree.VERSIONS, head, head + start, end))
        return list(islice(heapq.merge(*sources), limit))

    def _held(
        self, tree: int, where: int, head: bytes, start: bytes, stop: bytes | None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yields the items of one of the places that were valid at the snapshot, in order."""
        for items in layouts.pages(self._state.scan, where, start, stop, _PIECE):
            for key, image in items:
                own = key[len(head) :]
                if _row_of(tree, own, image) <= self.as_of:
                    yield own, image

    def _laters(self) -> Iterator[int]:
        """Yields this snapshot and those later ones under which anything was kept."""
        start = stream_entry.SEQ.pack(self.as_of)
        while items := self._state.scan(Tree.VERSIONS, start, None, 1):
            snapshot = stream_entry.SEQ.unpack_from(items[0][0])[0]
            yield snapshot
            start = stream_entry.SEQ.pack(snapshot + 1)


@decides(commands.AsOf)
def decide_as_of(command: commands.AsOf, state: View, now_us: int) -> Decision:
    """Decides reads by their own rules, on the state at a snapshot."""
    moment = state.snapshots.get(command.snapshot)
    if moment is None:
        text = f"snapshot {command.snapshot} is not open, or was closed; open another one"
        raise RefusedError(Code.SNAPSHOT_GONE, text)
    holds = commands.AsOf.row.holds
    if holds is None or not all(holds(type(one).row) for one in command.commands):
        raise RefusedError(Code.BAD_BATCH, "only GET, RANGE and READ can be used with a snapshot")
    past = AsOf(state, command.snapshot)
    replies: list[Reply] = []
    size = 0
    asked: Sequence[Any] = command.commands
    for one in asked:
        try:
            _check_table(one.table, state, moment)
            reply = type(one).row.decide(one, past, moment.wall_us).reply
        except RefusedError as error:
            reply = Refusal.of(error)
        size += data_bytes(reply)
        if size > limits.ANSWER_BYTES_MAX:
            text = f"the answers have more than {limits.ANSWER_BYTES_MAX} bytes; ask for less"
            raise RefusedError(Code.TOO_LARGE, text)
        replies.append(reply)
    return Decision(Replies(replies=replies))


def _check_table(name: str, state: View, moment: Moment) -> None:
    """Refuses a table that the snapshot does not contain, or no longer."""
    table = state.tables.get(name)
    if table is None:
        rules.check_name(name)
        raise RefusedError(Code.NOT_FOUND, f"there is no table {name}, or it was dropped")
    if table.id > moment.largest:
        raise RefusedError(Code.NOT_FOUND, f"table {name} was created after the snapshot")
