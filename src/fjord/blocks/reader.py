"""Reading streams from cold blocks, when the engine answers that messages are in a block.

The engine names the block (`InBlock`); everything else is in the block itself.  Calls may block,
and any thread may make them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import compute

from fjord import columns as fjord_columns
from fjord import limits, ops
from fjord.blocks import parquet
from fjord.blocks.parquet import Part
from fjord.blocks.rows import numbers_of, offsets_of, strings_of
from fjord.blocks.store import Catalog, Metadata, Store
from fjord.clock import Clock, SystemClock
from fjord.columns import Strings
from fjord.commands import InBlock, Messages, Read
from fjord.errors import CorruptionError, FjordError
from fjord.ops import Op, Opcode

# -- parts of blocks in memory: loaded once, ahead of need, and dropped with their last reader ----
#
# A part is one row group of one block, as Arrow columns.  The first reader that needs it loads it;
# others that want it meanwhile wait for that load.  A named subscriber holds the part that it
# reads, and the next one, which is loaded in the background when it comes near the end.  A part
# that nobody holds is dropped, so a part stays while a subscriber is just before it.  Readers
# without a name hold nothing: what they read stays while there is room, and the least recently used
# part is dropped first.  The total is bounded.  At the bound, subscribers that have not read for a
# while lose their parts; beyond it even held parts are dropped, and loaded again.


# Blocks whose checksum was verified, with their footers: some 50 KiB each.
_OPENED_MAX: Final = 256
# Concurrent loads: each takes about a part's memory beside the part.
_LOADS_MAX: Final = 2
# Subscribers with known positions; beyond this the least recent ones are forgotten.
_PLACES_MAX: Final = 4096
# A subscriber that has not read for this time may be gone, and makes room for others.
_IDLE_US: Final = 60 * 1_000_000

Who = tuple[str, str]  # a table and one of its subscribers
_Result = TypeVar("_Result")


class Key(NamedTuple):
    """A part of a block."""

    block: str
    number: int


class OpenBlock(NamedTuple):
    """A block with a verified checksum."""

    metadata: Metadata
    name: str
    footer: Any  # of pyarrow
    parts: list[Part]

    def problem(self, where: InBlock) -> str:
        """Returns why this is not the block that the engine means; empty if it is."""
        crc, first, last = self.metadata.crc32c, self.metadata.first, self.metadata.last
        if crc != where.crc:
            return f"its checksum is {crc:08x}, the journal says {where.crc:08x}"
        if (first, last) != (where.first, where.last):
            return f"it has seqs {first} to {last}, the journal says {where.first} to {where.last}"
        return ""


@dataclass(slots=True)
class _Position:
    """The position of a subscriber."""

    key: Key
    read_us: int  # monotonic time of its last read
    ahead: Key | None = None  # the next part, once it is held
    is_near: bool = False  # the end of the part is near


@dataclass(slots=True)
class _Loaded:
    """A part in memory."""

    part: MessagePart
    is_loose: bool = False  # used by a reader without a name
    is_near: bool = False  # and that reader came near its end


class _OneLoad(Generic[_Result]):
    """Combines concurrent calls for the same key into one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running: dict[Hashable, Future[_Result]] = {}

    def run(self, key: Hashable, work: Callable[[], _Result]) -> _Result:
        """Returns the result of `work`, which the first thread calls."""
        with self._guard:
            is_first = key not in self._running
            future = self._running.setdefault(key, Future())
        if not is_first:
            return future.result()
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            with self._guard:
                del self._running[key]
        return future.result()


class BlockReader:
    """Reads messages from blocks, through the parts in memory.

    All calls raise FileNotFoundError if the block is gone, for example by retention: the engine
    then names another one.  They raise CorruptionError, with the block's name, if it is damaged, or
    is not the one that the engine knows.  Safe to use from several threads.
    """

    def __init__(
        self, store: Store, bytes_max: int = limits.COLD_BYTES_MAX, clock: Clock | None = None
    ) -> None:
        self._catalog = Catalog(store)
        self._bytes_max = bytes_max
        self._clock = clock or SystemClock()
        self._guard = threading.Lock()
        self._opened: OrderedDict[str, OpenBlock] = OrderedDict()
        self._loaded: OrderedDict[Key, _Loaded] = OrderedDict()  # least recently used first
        self._bytes = 0  # of these, and of those being loaded
        self._places: OrderedDict[Who, _Position] = OrderedDict()  # least recently read first
        self._holds: dict[Key, int] = {}  # how many subscribers hold a part
        self._openings: _OneLoad[OpenBlock] = _OneLoad()
        self._loadings: _OneLoad[MessagePart] = _OneLoad()
        self._slots = threading.Semaphore(_LOADS_MAX)
        self._background = ThreadPoolExecutor(1, thread_name_prefix="fjord-prefetch")
        self._is_closed = False
        self._loads = 0
        self._prefetches = 0

    # -- calls of the engine ----------------------------------------------------------------------

    def read(self, where: InBlock, command: Read) -> Messages:
        """Returns the wanted messages of a block, as many as are in one part of it.

        None only if there are no more in the block; `after` is then its end.
        """
        block = self.open(where.name, where)
        who = (command.table, command.subscriber) if command.subscriber else None
        until = max(min(where.until, where.last), where.after)
        count = min(command.count or limits.READ_COUNT_MAX, limits.READ_COUNT_MAX)
        bytes_max = min(command.bytes_max or limits.READ_BYTES_MAX, limits.READ_BYTES_MAX)
        for number in _parts_between(block, where.after, until):
            key = Key(block.name, number)
            part = self.get(key, who)
            start, end = part.span(where.after, until, count, bytes_max)
            if 4 * end >= 3 * part.rows:
                self.come_near_end(key, who)
            if start < end:
                is_last = _is_last(block, number, part, end, until)
                after = until if is_last else part.seq(end - 1)
                return _messages(where, after, part, start, end)
        return _messages(where, until)

    def locate(self, where: InBlock, wall_us: int) -> int:
        """Returns the seq before the first message of a block from a moment on.

        That is the last seq of the block if all messages are older.
        """
        block = self.open(where.name, where)
        for number, part in enumerate(block.parts):
            if part.max_us < wall_us or _is_empty(part):
                continue
            table = self._columns(block, number, ["seq", "ts"])
            is_later = compute.greater_equal(table["ts"].cast(pa.int64()), wall_us)
            position = compute.index(is_later, pa.scalar(True)).as_py()
            if position >= 0:
                return int(table["seq"][position].as_py()) - 1
        return where.last

    def count_after(self, where: InBlock, after: int) -> int:
        """Returns how many messages of a block follow a seq."""
        block = self.open(where.name, where)
        found = 0
        for number, part in enumerate(block.parts):
            if part.max_seq <= after or _is_empty(part):
                continue
            if part.min_seq > after and part.op:
                found += part.rows
            else:
                seqs = self._columns(block, number, ["seq"])["seq"]
                found += compute.sum(compute.greater(seqs, after)).as_py() or 0
        return found

    def _columns(self, block: OpenBlock, number: int, names: list[str]) -> Any:
        """Returns columns of the messages of a part."""
        wanted = names if block.parts[number].op else [*names, "op"]
        return only_messages(self.read_columns(Key(block.name, number), wanted))

    # -- blocks and parts for a reader ------------------------------------------------------------

    def open(self, name: str, where: InBlock | None = None) -> OpenBlock:
        """Returns a block whose checksum was verified once.

        Args:
            where: the engine's data of the block, if the engine named it.

        Raises:
            FileNotFoundError: if it does not exist.
            CorruptionError: if it is damaged, or a different block.
        """
        block = self._known(name) or self._openings.run(name, lambda: self._open(name))
        problem = block.problem(where) if where is not None else ""
        if problem:
            self._forget_blocks([name])  # its files may be repaired
            raise CorruptionError(self._catalog.store.path(name), 0, problem)
        return block

    def get(self, key: Key, who: Who | None) -> MessagePart:
        """Returns a part for a reader, and records its position."""
        if who is not None:
            self._move(who, key)
        part = self._in_memory(key, is_loose=who is None)
        if part is None:
            part = self._load(key, is_ahead=False)
            self._settle(key, who)
        return part

    def come_near_end(self, key: Key, who: Who | None) -> None:
        """Loads the next part in the background, once for each reader."""
        with self._guard:
            near = self._places.get(who) if who is not None else self._loaded.get(key)
            if near is not None and not near.is_near and not self._is_closed:
                near.is_near = True
                self._background.submit(self._fetch_ahead, key, who)

    def rest(self, table: str, subscriber: str) -> None:
        """Releases the parts held for a subscriber."""
        who = (table, subscriber)
        if who not in self._places:
            return  # the usual case, without a lock
        with self._guard:
            place = self._places.pop(who, None)
            if place is not None:
                self._release(place)

    def forget(self, table: str) -> None:
        """Drops everything held for a table."""
        with self._guard:
            for who in [who for who in self._places if who[0] == table]:
                self._release(self._places.pop(who))
            names = {*self._opened, *(key.block for key in self._loaded)}
        of_table = [name for name in names if name.partition("/")[0].rpartition("-")[0] == table]
        self._forget_blocks(of_table)

    def read_columns(self, key: Key, columns: list[str]) -> pa.Table:
        """Returns columns of a part that is not kept in memory."""
        footer, store = self.open(key.block).footer, self._catalog.store
        with parquet.opened(store, key.block) as file:
            path = store.path(key.block)
            return parquet.read_part(file, footer, key.number, columns, path)

    def stats(self) -> dict[str, int]:
        """Returns how many parts are in memory, their bytes, and counts of loads."""
        with self._guard:
            return {
                "cold_parts": len(self._loaded),
                "cold_bytes": self._bytes,
                "cold_loads": self._loads,
                "cold_prefetches": self._prefetches,
            }

    def close(self) -> None:
        """Waits for running loads, and drops everything."""
        with self._guard:
            self._is_closed = True
        self._background.shutdown(cancel_futures=True)
        with self._guard:
            self._places.clear()
            self._holds.clear()
            for key in list(self._loaded):
                self._drop(key)

    # -- blocks -----------------------------------------------------------------------------------

    def _known(self, name: str) -> OpenBlock | None:
        with self._guard:
            block = self._opened.get(name)
            if block is not None:
                self._opened.move_to_end(name)
            return block

    def _open(self, name: str) -> OpenBlock:
        if (known := self._known(name)) is not None:
            return known
        metadata = self._catalog.verify(name)
        with parquet.opened(self._catalog.store, name) as file:
            block = OpenBlock(metadata, name, *parquet.read_footer(file))
        rows = sum(part.rows for part in block.parts)
        if rows != metadata.rows:
            reason = f"it has {rows} rows, its metadata says {metadata.rows}"
            raise CorruptionError(self._catalog.store.path(name), 0, reason)
        with self._guard:
            self._opened[name] = block
            if len(self._opened) > _OPENED_MAX:
                self._opened.popitem(last=False)
        return block

    def _forget_blocks(self, names: Collection[str]) -> None:
        with self._guard:
            for name in names:
                self._opened.pop(name, None)
            for key in [key for key in self._loaded if key.block in names]:
                self._drop(key)

    def _after(self, key: Key) -> Key | None:
        """Returns the part after another one, of the next block if need be."""
        if key.number + 1 < len(self.open(key.block).parts):
            return Key(key.block, key.number + 1)
        following = self._catalog.next(key.block)
        return Key(following, 0) if following else None

    # -- loading ----------------------------------------------------------------------------------

    def _in_memory(self, key: Key, *, is_loose: bool = False) -> MessagePart | None:
        with self._guard:
            loaded = self._loaded.get(key)
            if loaded is None:
                return None
            self._loaded.move_to_end(key)
            loaded.is_loose = loaded.is_loose or is_loose
            return loaded.part

    def _load(self, key: Key, *, is_ahead: bool) -> MessagePart:
        return self._loadings.run(key, lambda: self._load_now(key, is_ahead=is_ahead))

    def _load_now(self, key: Key, *, is_ahead: bool) -> MessagePart:
        if (part := self._in_memory(key)) is not None:
            return part
        expected = self.open(key.block).parts[key.number]
        with self._slots:
            with self._guard:
                self._make_room(expected.bytes)
                self._bytes += expected.bytes
            try:
                columns = columns_of(expected.op)
                part = MessagePart(self.read_columns(key, columns) if columns else None)
            except BaseException:
                with self._guard:
                    self._bytes -= expected.bytes
                raise
            with self._guard:
                self._bytes += part.bytes - expected.bytes
                self._make_room(0)
                self._loaded[key] = _Loaded(part)
                self._loads += 1
                self._prefetches += is_ahead
        return part

    def _fetch_ahead(self, key: Key, who: Who | None) -> None:
        """Loads the next part, if there is room without dropping another one."""
        try:
            following = self._after(key)
            if following is None or not self._hold_ahead(key, following, who):
                return
            expected = self.open(following.block).parts[following.number]
            with self._guard:  # in addition to all held parts
                if self._held_bytes() + expected.bytes > self._bytes_max:
                    self._let_idle_go()
                has_room = self._held_bytes() + expected.bytes <= self._bytes_max
            if has_room:
                self._load(following, is_ahead=True)
                self._settle(following, who)
        except (FjordError, OSError):
            pass  # the reader of that part gets the error

    def _hold_ahead(self, key: Key, following: Key, who: Who | None) -> bool:
        """Holds the next part for a subscriber; False if that has moved meanwhile."""
        if who is None:
            return True
        with self._guard:
            place = self._places.get(who)
            if place is None or place.key != key or place.ahead is not None:
                return False
            place.ahead = following
            self._holds[following] = self._holds.get(following, 0) + 1
            return True

    def _settle(self, key: Key, who: Who | None) -> None:
        """Keeps a part that was just loaded, if it is still wanted."""
        with self._guard:
            if who is None and key in self._loaded:
                self._loaded[key].is_loose = True
            self._drop_unwanted(key)

    # -- positions; except for the first, these are called with the guard held --------------------

    def _move(self, who: Who, key: Key) -> None:
        with self._guard:
            now_us = self._clock.monotonic_us()
            place = self._places.pop(who, None)
            if place is not None and place.key == key:
                place.read_us = now_us
                self._places[who] = place  # as the most recent reader
                return
            self._places[who] = _Position(key, now_us)
            self._holds[key] = self._holds.get(key, 0) + 1
            if place is not None:
                self._release(place)
            if len(self._places) > _PLACES_MAX:
                self._release(self._places.popitem(last=False)[1])

    def _let_idle_go(self) -> None:
        """Releases the parts of subscribers that have not read for a while."""
        since_us = self._clock.monotonic_us() - _IDLE_US
        while self._places and next(iter(self._places.values())).read_us <= since_us:
            self._release(self._places.popitem(last=False)[1])

    def _release(self, place: _Position) -> None:
        held = [place.key] if place.ahead is None else [place.key, place.ahead]
        for key in held:
            self._holds[key] -= 1
            if not self._holds[key]:
                del self._holds[key]
            self._drop_unwanted(key)

    def _drop_unwanted(self, key: Key) -> None:
        """Drops a part that no subscriber holds and no reader without a name has used."""
        loaded = self._loaded.get(key)
        if loaded is not None and not loaded.is_loose and key not in self._holds:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        self._bytes -= self._loaded.pop(key).part.bytes
        # Return Arrow's unused memory to the system.
        pa.default_memory_pool().release_unused()

    def _held_bytes(self) -> int:
        loose = sum(
            loaded.part.bytes for key, loaded in self._loaded.items() if key not in self._holds
        )
        return self._bytes - loose

    def _make_room(self, size: int) -> None:
        """Drops the least recently used parts: first those that nobody holds."""
        if self._bytes + size > self._bytes_max:
            self._let_idle_go()
        for key in sorted(self._loaded, key=self._holds.__contains__):
            if self._bytes + size <= self._bytes_max:
                return
            self._drop(key)


def _is_empty(part: Part) -> bool:
    return bool(part.op) and part.op not in MESSAGES


def _parts_between(block: OpenBlock, after: int, until: int) -> range:
    first = bisect_right(block.parts, after, key=lambda part: part.max_seq)
    end = bisect_right(block.parts, until, key=lambda part: part.min_seq)
    return range(first, end)


def _is_last(block: OpenBlock, number: int, part: MessagePart, end: int, until: int) -> bool:
    """Returns whether no further message of the block is within the range."""
    if end < part.rows:
        return part.seq(end) > until
    following = block.parts[number + 1 :]
    return not following or following[0].min_seq > until


def _messages(
    where: InBlock, after: int, part: MessagePart | None = None, start: int = 0, end: int = 0
) -> Messages:
    return Messages(
        first_seqs=[part.seq(start)] if part else [],
        walls_us=[part.wall_us(start)] if part else [],
        ops=Strings.of([part.encode(where.table, start, end)] if part else []),
        after=after,
        until=where.until,
        ended=after >= where.until,
        rows=end - start,
    )


# -- messages of one part, as columns in memory, and cut out as one op ----------------------------
#
# Messages from a block are returned as STREAM_MOVE: each message with its own seq and moment.
# Finding the range is a search in columns; the rest is a few copies of memory.


# The names of messages in the column `op`.  Other rows repeat earlier ones, or are no messages.
MESSAGES: Final = frozenset({"APPEND", "SET", "DELETE"})

_COLUMNS: Final = ["seq", "ts", "type", "key", "value"]


def columns_of(op: str) -> list[str]:
    """Returns the columns to read of a part whose rows are all `op`, or mixed if it is empty."""
    if not op:
        return ["op", *_COLUMNS]
    return _COLUMNS if op in MESSAGES else []


def only_messages(table: pa.Table) -> pa.Table:
    """Returns the rows that are messages, if the table has a column for the op."""
    if "op" not in table.column_names:
        return table
    wanted = compute.is_in(table["op"].cast(pa.string()), pa.array(sorted(MESSAGES)))
    return table.filter(wanted)


class MessagePart:
    """The messages of one part of a block."""

    def __init__(self, table: pa.Table | None) -> None:
        found = only_messages(table) if table is not None else None
        self.rows = found.num_rows if found is not None else 0
        self.bytes = 0
        if found is None or not self.rows:
            return
        chunks = (found[name] for name in _COLUMNS)
        seqs, moments, types, keys, values = (
            one.chunk(0) if one.num_chunks == 1 else one.combine_chunks() for one in chunks
        )
        types = types.cast(pa.uint8()).fill_null(ops.TOMBSTONE)  # a row without a type
        self._keys, self._values = keys.fill_null(b""), values.fill_null(b"")
        arrays = (seqs, moments, types, self._keys, self._values)
        self.bytes = sum(array.nbytes for array in arrays)
        self._seqs, self._moments = numbers_of(seqs, "q"), numbers_of(moments, "q")
        self._types = numbers_of(types, "B")
        self._value_ends = offsets_of(self._values)

    def seq(self, position: int) -> int:
        return int(self._seqs[position])

    def wall_us(self, position: int) -> int:
        return int(self._moments[position])

    def span(self, after: int, until: int, count: int, bytes_max: int) -> tuple[int, int]:
        """Returns the range of positions of messages after `after`.

        At most about `bytes_max` bytes of values, but at least one message if there is one.
        """
        if not self.rows:
            return 0, 0
        start = bisect_right(self._seqs, after)
        end = min(bisect_right(self._seqs, until), start + count)
        if end <= start:
            return start, start
        ends = self._value_ends
        most = bisect_right(ends, ends[start] + bytes_max, start, end + 1) - 1
        return start, max(most, start + 1)

    def encode(self, table: int, start: int, end: int) -> bytes:
        """Returns these messages as one op."""
        count = end - start
        nothing = fjord_columns.repeat(0, count)
        op = Op(
            Opcode.STREAM_MOVE,
            table,
            count,
            (
                self._seqs[start:end],
                self._moments[start:end],
                nothing,
                nothing,
                self._types[start:end],
                strings_of(self._keys.slice(start, count)),
                strings_of(self._values.slice(start, count)),
            ),
        )
        return ops.encode(op)[0]
