"""GET, TOUCH and RANGE: values with all their properties; a touch sets a mark.

A touch extends the life of values, or takes them for work (FJ-46, FJ-47).  It sets a mark on the
row that was read: the next write to the key voids it, so a worker that failed never hides a later
value (FJ-32).
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import re2  # type: ignore[import-untyped]

from fjord import commands, kinds, limits, ops
from fjord.columns import Strings, joined, repeat
from fjord.commands import Entries, Page, Refusal
from fjord.errors import Code, RefusedError
from fjord.layouts import PREFIX_BYTES, end_of
from fjord.ops import Opcode
from fjord.tables import catalog, rules
from fjord.tables.kv import layout
from fjord.tables.kv.layout import BASE, FULL, KvEntry, Mark
from fjord.tables.kv.lookup import Lookup, check_lock, unschedule
from fjord.tables.state import Decision, Pointer, Table, Tree, View, VolatileValue, decides

# For up to this many keys it is cheaper to look up their marks than any mark of the table.
_FEW_KEYS: Final = 4


@decides(commands.Get)
def decide_get(command: commands.Get, state: View, now_us: int) -> Decision:
    rules.check_keys(command.keys)
    table = catalog.find_map(state, command.table)
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


def _is_plain(command: commands.Get, keys: Sequence[bytes], state: View) -> bool:
    """Returns whether only stored entries matter to this command."""
    return (
        command.with_data
        and not state.as_of  # a value may then be elsewhere than its entry says
        and (not state.volatile or state.volatile.keys().isdisjoint(keys))
        and (not state.locks or state.locks.keys().isdisjoint(keys))
        and not _any_mark(state, keys)
    )


def _any_mark(state: View, keys: Sequence[bytes]) -> bool:
    if len(keys) <= _FEW_KEYS:
        return any(state.get_many(Tree.KV_MARKS, keys))
    prefix = keys[0][:PREFIX_BYTES]
    return bool(state.scan(Tree.KV_MARKS, prefix, end_of(prefix), 1))


# -- touch ----------------------------------------------------------------------------------------


@decides(commands.Touch)
def decide_touch(command: commands.Touch, state: View, now_us: int) -> Decision:
    _check_touch(command, now_us)
    table = catalog.find(state, command.table, kinds.Kind.KV)
    if table is None:
        return Decision(no_entries(len(command.keys)))
    lookup = Lookup.of(state, table.prefix, command.keys.rows(), now_us, all_marks=True)
    check_lock(state, lookup)
    marks: dict[bytes, Mark] = {}
    volatile: dict[bytes, VolatileValue | None] = {}
    due: list[tuple[int, bytes]] = []  # expiries that are out of date
    rows: list[int | None] = []  # None: it is missing, or somebody else works on it
    for row, key in enumerate(lookup.keys):
        is_again = key in marks or key in volatile
        is_taken = command.worked_until_us and (is_again or lookup.is_worked_on(row))
        if is_taken or not lookup.is_live(row):
            rows.append(None)
            continue
        rows.append(row)
        expires_at_us, mark = lookup.expiries[row], _mark(command, lookup, row, state, now_us)
        lookup.note(row, mark)  # the answer includes this touch
        if key in lookup.volatile:
            volatile[key] = lookup.volatile[key]
            continue
        if mark.expires_at_us != expires_at_us and not is_again:
            due.append((expires_at_us, key))
        marks[key] = mark
    noted = [(*mark, key[PREFIX_BYTES:]) for key, mark in marks.items()]
    made = [*unschedule(table.id, due), *ops.of_rows(Opcode.KV_MARK, table.id, noted)]
    return Decision(entries(lookup, rows, state, with_data=command.with_data), made, volatile)


def _mark(command: commands.Touch, lookup: Lookup, row: int, state: View, now_us: int) -> Mark:
    """Returns the mark that a touch gives a live row."""
    known, entry = lookup.known(row), lookup.entries[row]
    expires_at_us, worked_until_us = known.expires_at_us, known.worked_until_us
    if command.extend and expires_at_us:
        by_ttl_us = now_us + known.ttl_us if known.ttl_us else 0
        expires_at_us = max(expires_at_us, command.expires_at_us, by_ttl_us)
    if command.worked_until_us:
        worked_until_us = state.lease_us + command.worked_until_us - now_us
    return Mark(entry.row if entry else 0, now_us, expires_at_us, worked_until_us)


def _check_touch(command: commands.Touch, now_us: int) -> None:
    rules.check_keys(command.keys)
    if command.extend:
        check_moment(command.expires_at_us, now_us)
    check_moment(command.worked_until_us, now_us)


def check_moment(moment_us: int, now_us: int) -> None:
    """Refuses a moment in the past, or too far ahead; 0 stands for none."""
    if moment_us and not now_us < moment_us <= now_us + limits.EXPIRY_AHEAD_US_MAX:
        raise RefusedError(Code.BAD_TIMEOUT, "an expiry is from now to 30 days ahead")


# -- answers, column by column --------------------------------------------------------------------
#
# Most answers are about plain values: stored, never expiring, without marks.  Their columns are
# shared where possible, and no object is created for a row except the value itself.


_MISSING: Final = Entries.MISSING
# Like unpacked entries, with the type 0xff; tombstones are stored like that.
_NO_BASE: Final = (0, 0, 0, 0, 0, 0, _MISSING)
_NO_ENTRY: Final = KvEntry(*_NO_BASE, 0, 0, 0, 0, 0)
_CREATED, _EXPIRES = 1, 2  # among the fields of an entry after its type
_NO_VALUE: Final = VolatileValue(_MISSING, b"", 0, 0)
_PLAIN_TYPES: Final = bytes([*range(layout.VALUE_TYPE_MAX + 1), _MISSING])


def no_entries(count: int) -> Entries:
    return _answer([_NO_VALUE] * count, [b""] * count, bytes(count))


def plain_entries(stored: Sequence[bytes | None], state: View) -> Entries | None:
    """Answers for keys without values or with values that never expire; None if one is special."""
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
    """Clears the dates of deleted entries, since tombstones have some."""
    for row, type_ in enumerate(types):
        if type_ == _MISSING:
            for column in columns:
                column[row] = 0


def _values(pointers: list[Pointer], state: View) -> Strings:
    """Reads payloads, except empty ones."""
    wanted = [pointer for pointer in pointers if pointer[2]]
    found = state.payloads(wanted)
    if len(wanted) == len(pointers):
        return Strings.of(found)
    payloads = iter(found)
    return Strings.of([next(payloads) if pointer[2] else b"" for pointer in pointers])


def one_entry(value: VolatileValue, *, is_locked: bool) -> Entries:
    """Answers with a value that has just been written."""
    return _answer([value], [value.value], bytes([Entries.LOCKED * is_locked]))


def entries(lookup: Lookup, rows: Sequence[int | None], state: View, *, with_data: bool) -> Entries:
    """Answers for live rows of any sort; None stands for a missing one."""
    known = [_NO_VALUE if row is None else lookup.known(row) for row in rows]
    states = bytes(len(rows))
    if state.locks or lookup.marks or lookup.volatile:
        states = bytes([0 if row is None else _bits(lookup, row, state) for row in rows])
    if not with_data:
        return _answer(known, [b""] * len(rows), states)
    if sum(lookup.size(row) for row in rows if row is not None) > limits.ANSWER_BYTES_MAX:
        raise _too_large()
    stored = [None if row is None or lookup.in_memory(row) else lookup.entries[row] for row in rows]
    pointers = [Pointer(*entry[2:6]) for entry in stored if entry and entry.size]
    payloads = iter(state.payloads(pointers))
    values = [
        next(payloads) if entry and entry.size else one.value
        for one, entry in zip(known, stored, strict=True)
    ]
    return _answer(known, values, states)


def _answer(known: Sequence[VolatileValue], values: list[bytes], states: bytes) -> Entries:
    return Entries(
        types=bytes([one.type for one in known]),
        values=Strings.of(values),
        timestamps_us=array("Q", [one.timestamp_us for one in known]),
        expires_at_us=array("Q", [one.expires_at_us for one in known]),
        states=states,
        created_us=array("Q", [one.created_us for one in known]),
        accessed_us=array("Q", [one.accessed_us for one in known]),
        ttls_us=array("Q", [one.ttl_us for one in known]),
    )


def _bits(lookup: Lookup, row: int, state: View) -> int:
    is_locked = lookup.keys[row] in state.locks or lookup.given[row] in state.locks
    return Entries.LOCKED * is_locked | Entries.WORKED_ON * lookup.is_worked_on(row)


def _too_large() -> RefusedError:
    text = f"the values have more than {limits.ANSWER_BYTES_MAX} bytes; ask for fewer keys"
    return RefusedError(Code.TOO_LARGE, text)


# -- RANGE: entries in key order, one bounded page at a time --------------------------------------
#
# A page ends when it has the requested number of entries, or as many as fit an answer, or when
# enough was examined that other commands should have their turn; it then has a cursor to the next.


# How many entries are examined in addition, to make up for tombstones and the like.
_SPARE: Final = 16
_MATCHED: Final = 1000


@decides(commands.Range)
def decide_range(command: commands.Range, state: View, now_us: int) -> Decision:
    _check_range(command)
    matcher = compiled(command.regex) if command.regex else None
    if isinstance(matcher, Refusal):
        raise matcher.error()
    table = catalog.find_map(state, command.table)
    if table is None:
        return Decision(Page(keys=Strings.of([]), entries=no_entries(0), next_key=b""))
    return Decision(_Pager(command, matcher, table, state, now_us).page())


def _check_range(command: commands.Range) -> None:
    for bound in (command.start, command.stop):
        if bound:
            check_key(bound)
    if command.stop and command.start > command.stop:
        raise RefusedError(Code.BAD_RANGE, "a range must begin before it ends")
    if command.count < 0:
        raise RefusedError(Code.BAD_COUNT, "a count is 0 or more; 0 is the server's maximum")
    if len(command.regex) > limits.REGEX_BYTES_MAX:
        text = f"a regular expression has at most {limits.REGEX_BYTES_MAX} bytes"
        raise RefusedError(Code.BAD_REGEX, text)


def check_key(key: bytes) -> None:
    rules.check_keys(Strings.of([key]))


# Live entries in order: their index keys, their sizes, and a function that answers the first n.
_Piece = tuple[Sequence[bytes], Sequence[int], Callable[[int], Entries | None]]


class _Pager:
    """Goes through the entries from a key on, in pieces, until a page is full."""

    def __init__(
        self,
        command: commands.Range,
        matcher: Matcher | None,
        table: Table,
        state: View,
        now_us: int,
    ) -> None:
        self._command = command
        self._matcher = matcher
        self._state = state
        self._now_us = now_us
        self._start, self._stop = _bounds(command, matcher, table)
        end = end_of(table.prefix)
        self._is_plain = (
            command.with_data
            and not state.as_of  # a value may then be elsewhere than its entry says
            and not state.locks
            and not state.scan(Tree.KV_MARKS, table.prefix, end, 1)
        )
        self._wanted = min(command.count or limits.PAGE_ENTRIES_MAX, limits.PAGE_ENTRIES_MAX)
        self._examined = 0
        self._work = 0
        self._bytes = 0
        self._keys: list[bytes] = []
        self._parts: list[Entries] = []

    def page(self) -> Page:
        following: bytes | None = self._start
        while following is not None and self._has_room():
            keys, stored, following = self._examine(following)
            live, sizes, answer = self._plain_piece(keys, stored) or self._any_piece(keys, stored)
            count = self._fitting(live, sizes)
            if count:
                part = answer(count)
                assert part is not None  # a plain piece consists of plain entries only
                self._parts.append(part)
            self._keys += live[:count]
            if count < len(live):
                following = live[count]
                break
        return Page(
            keys=Strings.of([key[PREFIX_BYTES:] for key in self._keys]),
            entries=_joined(self._parts),
            next_key=following[PREFIX_BYTES:] if following is not None else b"",
        )

    def _has_room(self) -> bool:
        return (
            len(self._keys) < self._wanted
            and self._examined < limits.EXAMINED_ENTRIES_MAX
            and self._work < limits.REGEX_WORK_MAX
        )

    def _examine(self, start: bytes) -> tuple[list[bytes], dict[bytes, bytes], bytes | None]:
        """Returns matching keys, with their entries, and the first key that was not examined."""
        wanted = _MATCHED if self._matcher else self._wanted - len(self._keys) + _SPARE
        limit = min(wanted, limits.EXAMINED_ENTRIES_MAX - self._examined)
        stored = dict(self._state.scan(Tree.KV, start, self._stop, limit + 1))
        keys = list(stored)
        if self._state.volatile:
            in_memory = self._state.volatile_between(start, self._stop, limit + 1)
            keys = sorted({*keys, *in_memory})
        if self._matcher:
            limit = min(limit, self._affordable(self._matcher, keys))
        examined, following = keys[:limit], keys[limit] if len(keys) > limit else None
        self._examined += len(examined)
        if self._matcher:
            finds = self._matcher.finds
            examined = [key for key in examined if finds(key[PREFIX_BYTES:])]
        return examined, {key: stored[key] for key in examined if key in stored}, following

    def _affordable(self, matcher: Matcher, keys: Sequence[bytes]) -> int:
        """Returns how many keys may be matched, at least one, and counts the work."""
        for count, key in enumerate(keys):
            if count and self._work >= limits.REGEX_WORK_MAX:
                return count
            self._work += len(key) * matcher.steps
        return len(keys)

    def _plain_piece(self, keys: Sequence[bytes], stored: dict[bytes, bytes]) -> _Piece | None:
        """Returns the piece if its entries are plain values and tombstones, else None."""
        if not self._is_plain or len(stored) < len(keys):
            return None
        if not self._state.volatile.keys().isdisjoint(keys):
            return None
        found = {key: data for key, data in stored.items() if data[layout.TYPE_AT] != ops.TOMBSTONE}
        if any(len(data) != BASE.size for data in found.values()):
            return None  # perhaps an alias, or it expires
        entries = list(found.values())
        sizes = [BASE.unpack(data)[4] for data in entries]
        return list(found), sizes, lambda count: plain_entries(entries[:count], self._state)

    def _any_piece(self, keys: list[bytes], stored: dict[bytes, bytes]) -> _Piece:
        state, command = self._state, self._command
        found = list(map(stored.get, keys))
        lookup = Lookup(state, keys, found, self._now_us, all_marks=True)
        rows = [
            row
            for row in range(len(keys))
            if lookup.is_live(row) and not (command.skip_worked and lookup.is_worked_on(row))
        ]
        return (
            [keys[row] for row in rows],
            [lookup.size(row) if command.with_data else 0 for row in rows],
            lambda count: entries(lookup, rows[:count], state, with_data=command.with_data),
        )

    def _fitting(self, keys: Sequence[bytes], sizes: Sequence[int]) -> int:
        """Returns how many entries of a piece fit the page; the first of a page always does."""
        room = self._wanted - len(self._keys)
        for count, (key, size) in enumerate(zip(keys, sizes, strict=True)):
            total = self._bytes + len(key) + size
            if count == room or (total > limits.PAGE_BYTES_MAX and self._bytes):
                return count
            self._bytes = total
        return len(keys)


def _bounds(
    command: commands.Range, matcher: Matcher | None, table: Table
) -> tuple[bytes, bytes | None]:
    """Returns the index keys between which to search."""
    start, stop = table.prefix + command.start, table.prefix + command.stop
    if matcher is not None:
        start = max(start, table.prefix + matcher.first)
    end = stop if command.stop else end_of(table.prefix)
    if matcher is not None and matcher.last is not None:
        after = table.prefix + matcher.last + b"\0"
        end = after if end is None else min(end, after)
    return start, end


def _joined(parts: Sequence[Entries]) -> Entries:
    if len(parts) <= 1:
        return parts[0] if parts else no_entries(0)
    names = Entries.row.columns
    return Entries(**{name: joined([getattr(one, name) for one in parts]) for name in names})


# -- regular expressions over keys: RE2, which takes linear time ----------------------------------
#
# Keys are bytes, and so are expressions: one byte is one character, whatever the encoding.  An
# expression that is anchored at the beginning also bounds the keys to search.


# How many bytes of a key are used to bound the matching keys.
_PREFIX_BYTES: Final = 64
_REPEATS: Final = b"*+?{"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """A compiled expression."""

    expression: Any
    steps: int  # the size of its program: the cost of one byte of a key
    first: bytes  # no key before this one matches
    last: bytes | None  # and none after this one; None: no such bound

    def finds(self, key: bytes) -> bool:
        return self.expression.search(key) is not None


@functools.lru_cache(maxsize=limits.REGEX_KEPT)
def compiled(regex: bytes) -> Matcher | Refusal:
    """Returns the matcher of an expression, or the refusal of an invalid one."""
    try:
        expression = re2.compile(regex, _options())
        first, last = _key_bounds(regex)
    except re2.error as error:
        return Refusal(code=Code.BAD_REGEX, text=f"RE2 says: {_text(error)}")
    finally:
        re2.purge()  # its own cache is larger than the one here
    if expression.programsize > limits.REGEX_STEPS_MAX:
        return Refusal(code=Code.BAD_REGEX, text="the regular expression is too large")
    return Matcher(expression=expression, steps=expression.programsize, first=first, last=last)


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.never_capture = True
    options.max_mem = limits.REGEX_MEMORY_BYTES
    return options


def _key_bounds(regex: bytes) -> tuple[bytes, bytes | None]:
    """Returns the first and the last key that can match; all keys if that is not known."""
    anchored = _after_anchor(regex)
    if anchored is None:
        return b"", None
    whole = re2.compile(b"(?:" + anchored + b")(?s:.*)", _options())
    try:
        first, last = whole.possiblematchrange(_PREFIX_BYTES)
    except re2.error:
        return b"", None
    return first, last


def _after_anchor(regex: bytes) -> bytes | None:
    """Returns what follows the anchor if every match must begin at it, else None."""
    for anchor in (b"^", b"\\A"):
        rest = regex[len(anchor) :]
        if regex.startswith(anchor) and rest[:1] not in {bytes([at]) for at in _REPEATS}:
            return None if _may_choose(rest) else rest
    return None


def _may_choose(regex: bytes) -> bool:
    """Returns whether a choice may stand outside of all brackets, which makes the anchor unsafe."""
    if b"|" not in regex:
        return False
    if b"[" in regex or b"\\" in regex:
        return True
    depth = 0
    for byte in regex:
        depth += (byte == ord("(")) - (byte == ord(")"))
        if byte == ord("|") and not depth:
            return True
    return False


def _text(error: Exception) -> str:
    """Returns RE2's message without those bytes of the expression that are not text."""
    text = error.args[0] if error.args else ""
    words = text.decode("latin-1") if isinstance(text, bytes) else str(text)
    return "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in words)
