"""GET and TOUCH: values with all that is known of them; a touch notes something of them, too.

A touch lets values live longer, or takes them for work (FJ-46, FJ-47).  What it notes is a mark of
the row that was read: the next write to the key voids it, so a worker that failed never hides the
value that came after (FJ-32).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from fjord import commands, kinds, limits
from fjord.columns import Strings, repeat
from fjord.commands import Entries
from fjord.errors import Code, RefusedError
from fjord.layouts import PREFIX_BYTES, end_of
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.kv import layout, rules
from fjord.tables.kv.layout import BASE, FULL, Entry, Mark
from fjord.tables.kv.lookup import Lookup, check_lock, unschedule
from fjord.tables.rules import check_keys
from fjord.tables.state import Decision, Pointer, State, Table, Tree, VolatileValue, decides
from fjord.tables.streams import rules as stream_rules

# Up to this many keys it is cheaper to look for their marks than for any mark of the table.
_FEW_KEYS: Final = 4


@decides(commands.Get)
def decide_get(command: commands.Get, state: State, now_us: int) -> Decision:
    check_keys(command.keys)
    table = stream_rules.find_map(state, command.table)
    if table is None:
        return Decision(no_entries(len(command.keys)))
    prefix = table.prefix
    keys = [prefix + key for key in command.keys.rows()]
    stored = state.get_many(Tree.KV, keys)
    if _is_plain(command, keys, state):
        plain = plain_entries(stored, state)
        if plain is not None:
            return Decision(plain)
    lookup = Lookup(state, keys, stored, now_us, all_marks=True)
    rows = [
        row
        if lookup.is_live(row) and not (command.skip_worked and lookup.is_worked_on(row))
        else None
        for row in range(len(keys))
    ]
    return Decision(entries(lookup, rows, state, with_data=command.with_data))


def _is_plain(command: commands.Get, keys: Sequence[bytes], state: State) -> bool:
    """Says whether nothing but what is stored can matter to this command."""
    return (
        command.with_data
        and not state.as_of  # then a value may have another place than its entry says
        and (not state.volatile or state.volatile.keys().isdisjoint(keys))
        and (not state.locks or state.locks.keys().isdisjoint(keys))
        and not _any_mark(state, keys)
    )


def _any_mark(state: State, keys: Sequence[bytes]) -> bool:
    if len(keys) <= _FEW_KEYS:
        return any(state.get_many(Tree.KV_MARKS, keys))
    prefix = keys[0][:PREFIX_BYTES]
    return bool(state.scan(Tree.KV_MARKS, prefix, end_of(prefix), 1))


# -- touch ----------------------------------------------------------------------------------------


@decides(commands.Touch)
def decide_touch(command: commands.Touch, state: State, now_us: int) -> Decision:
    rules.check_touch(command, now_us)
    table = catalog.find(state, command.table, kinds.Kind.KV)
    if table is None:
        return Decision(no_entries(len(command.keys)))
    lookup = Lookup.of(state, table.prefix, command.keys.rows(), now_us, all_marks=True)
    check_lock(state, lookup)
    touch = _Touch(command, lookup, state, now_us)
    reply = entries(lookup, touch.rows, state, with_data=command.with_data)
    return Decision(reply, touch.ops(table), touch.volatile)


class _Touch:
    """Rows that were touched; the lookup then knows them as they are from now on."""

    def __init__(self, command: commands.Touch, lookup: Lookup, state: State, now_us: int) -> None:
        self._command = command
        self._lookup = lookup
        self._now_us = now_us
        self._lease_us = state.lease_us
        self._due: list[tuple[int, bytes]] = []  # expiries that no longer hold
        self._marks: dict[bytes, Mark] = {}
        self.volatile: dict[bytes, VolatileValue | None] = {}
        self.rows = [self._touch(row) for row in range(len(lookup.keys))]

    def _touch(self, row: int) -> int | None:
        """Touches a row; None if it is missing, or somebody else works on it."""
        lookup, key = self._lookup, self._lookup.keys[row]
        is_again = key in self._marks or key in self.volatile
        if not lookup.is_live(row):
            return None
        if self._command.worked_until_us and (is_again or lookup.is_worked_on(row)):
            return None
        expires_at_us = lookup.expiries[row]
        mark = self._mark(row, expires_at_us)
        lookup.note(row, mark)
        if key in lookup.volatile:
            self.volatile[key] = lookup.volatile[key]
            return row
        if mark.expires_at_us != expires_at_us and not is_again:
            self._due.append((expires_at_us, key))
        self._marks[key] = mark
        return row

    def _mark(self, row: int, expires_at_us: int) -> Mark:
        command, lookup = self._command, self._lookup
        if command.extend and expires_at_us:
            by_ttl_us = self._now_us + lookup.ttl_us(row) if lookup.ttl_us(row) else 0
            expires_at_us = max(expires_at_us, command.expires_at_us, by_ttl_us)
        worked_until_us = lookup.worked_until_us(row)
        if command.worked_until_us:
            worked_until_us = self._lease_us + command.worked_until_us - self._now_us
        entry = lookup.entries[row]
        return Mark(entry.row if entry else 0, self._now_us, expires_at_us, worked_until_us)

    def ops(self, table: Table) -> list[Op]:
        if not self._marks:
            return []
        rows, accessed, expiries, worked = (
            list(column) for column in zip(*self._marks.values(), strict=True)
        )
        keys = Strings.of([key[PREFIX_BYTES:] for key in self._marks])
        columns = (rows, accessed, expiries, worked, keys)
        mark = Op(Opcode.KV_MARK, table.id, len(rows), columns)
        return [*unschedule(table.id, self._due), mark]


# -- answers: what is known of keys, column by column ---------------------------------------------
#
# Most answers are about plain values: stored, never expiring, with nothing noted of them.  Their
# columns share what they can, and no object is made for a row but the value itself.


_MISSING: Final = Entries.MISSING
# As unpacked entries, of which 0xff is the type; for a tombstone that is how it is stored.
_NO_BASE: Final = (0, 0, 0, 0, 0, 0, _MISSING)
_NO_ENTRY: Final = Entry(*_NO_BASE, 0, 0, 0, 0, 0)
_CREATED, _EXPIRES = 1, 2  # among the fields of an entry behind its type
_PLAIN_TYPES: Final = bytes([*range(layout.VALUE_TYPE_MAX + 1), _MISSING])


def no_entries(count: int) -> Entries:
    zeros = repeat(0, count)
    return Entries(
        types=bytes([_MISSING]) * count,
        values=Strings.of([b""] * count),
        timestamps_us=zeros,
        expires_at_us=zeros,
        states=bytes(count),
        created_us=zeros,
        accessed_us=zeros,
        ttls_us=zeros,
    )


def plain_entries(stored: Sequence[bytes | None], state: State) -> Entries | None:
    """Answers for keys whose values never expire, or that have none; None if one is special."""
    found = [data for data in stored if data]
    shapes = set(map(len, found))
    if not shapes <= {BASE.size, FULL.size}:
        return None
    rows: list[tuple[int, ...]]
    if FULL.size in shapes:
        rows = [layout.decode(data) if data else _NO_ENTRY for data in stored]
    else:
        unpack = BASE.unpack
        rows = [unpack(data) if data else _NO_BASE for data in stored]
    _, stamps, segments, offsets, sizes, crcs, kinds, *others = zip(*rows, strict=True)
    types = bytes(kinds)
    if (others and any(others[_EXPIRES])) or types.translate(None, _PLAIN_TYPES):
        return None
    if sum(sizes) > limits.ANSWER_BYTES_MAX:
        raise _too_large()
    dates, zeros = array("Q", stamps), repeat(0, len(rows))
    created = array("Q", others[_CREATED]) if others else dates
    if types.count(_MISSING) > len(stored) - len(found):
        _clear(types, dates, created)
    return Entries(
        types=types,
        values=_values(list(map(Pointer, segments, offsets, sizes, crcs)), state),
        timestamps_us=dates,
        expires_at_us=zeros,
        states=bytes(len(rows)),
        created_us=created,
        accessed_us=zeros,
        ttls_us=zeros,
    )


def _clear(types: bytes, *columns: array[int]) -> None:
    """What has been deleted has no dates, although its tombstone has."""
    for row, type_ in enumerate(types):
        if type_ == _MISSING:
            for column in columns:
                column[row] = 0


def _values(pointers: list[Pointer], state: State) -> Strings:
    """Reads payloads, but for those that have no bytes."""
    wanted = [pointer for pointer in pointers if pointer[2]]
    found = state.payloads(wanted)
    if len(wanted) == len(pointers):
        return Strings.of(found)
    payloads = iter(found)
    return Strings.of([next(payloads) if pointer[2] else b"" for pointer in pointers])


def one_entry(value: VolatileValue, *, is_locked: bool) -> Entries:
    """Answers with a value that has just been written."""
    return Entries(
        types=bytes([value.type]),
        values=Strings.of([value.value]),
        timestamps_us=(value.timestamp_us,),
        expires_at_us=(value.expires_at_us,),
        states=bytes([Entries.LOCKED if is_locked else 0]),
        created_us=(value.created_us,),
        accessed_us=(value.accessed_us,),
        ttls_us=(value.ttl_us,),
    )


class _Row(NamedTuple):
    """One row of an answer; the value is either here or behind the pointer."""

    type: int
    timestamp_us: int
    expires_at_us: int
    state: int
    created_us: int
    accessed_us: int
    ttl_us: int
    value: bytes = b""
    pointer: Pointer | None = None


_NO_ROW: Final = _Row(_MISSING, 0, 0, 0, 0, 0, 0)


def entries(
    lookup: Lookup, rows: Sequence[int | None], state: State, *, with_data: bool
) -> Entries:
    """Answers for live rows of any sort, and for None as for what is missing."""
    if with_data:
        size = sum(lookup.size(row) for row in rows if row is not None)
        if size > limits.ANSWER_BYTES_MAX:
            raise _too_large()
    found = [_NO_ROW if row is None else _row(lookup, row, state) for row in rows]
    if with_data:
        payloads = iter(state.payloads([row.pointer for row in found if row.pointer is not None]))
        values = [row.value if row.pointer is None else next(payloads) for row in found]
    else:
        values = [b""] * len(found)
    return Entries(
        types=bytes([row.type for row in found]),
        values=Strings.of(values),
        timestamps_us=array("Q", [row.timestamp_us for row in found]),
        expires_at_us=array("Q", [row.expires_at_us for row in found]),
        states=bytes([row.state for row in found]),
        created_us=array("Q", [row.created_us for row in found]),
        accessed_us=array("Q", [row.accessed_us for row in found]),
        ttls_us=array("Q", [row.ttl_us for row in found]),
    )


def _row(lookup: Lookup, row: int, state: State) -> _Row:
    """Returns what is known of a live row."""
    expires_at_us, locks = lookup.expiries[row], state.locks
    bits = Entries.LOCKED if locks and _is_locked(lookup, row, state) else 0
    if lookup.volatile:
        found = lookup.in_memory(row)
        if found is not None:
            bits |= Entries.WORKED_ON if lookup.is_worked_on(row) else 0
            dates = (bits, lookup.created_us(row), found.accessed_us, found.ttl_us)
            return _Row(found.type, found.timestamp_us, expires_at_us, *dates, found.value)
    entry, mark = lookup.entries[row], lookup.marks.get(row)
    assert entry is not None
    accessed_us = 0
    if mark is not None:
        accessed_us = mark.accessed_us
        bits |= Entries.WORKED_ON if lookup.is_worked_on(row) else 0
    _, timestamp_us, segment, offset, size, crc, type_, _, created_us, _, ttl_us, _ = entry
    pointer = Pointer(segment, offset, size, crc) if size else None
    dates = (bits, created_us, accessed_us, ttl_us)
    return _Row(type_, timestamp_us, expires_at_us, *dates, b"", pointer)


def _is_locked(lookup: Lookup, row: int, state: State) -> bool:
    return lookup.keys[row] in state.locks or lookup.given[row] in state.locks


def _too_large() -> RefusedError:
    text = f"the values have more than {limits.ANSWER_BYTES_MAX} bytes; ask for fewer keys"
    return RefusedError(Code.TOO_LARGE, text)
