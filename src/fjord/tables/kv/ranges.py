"""RANGE: entries in the order of their keys, a bounded page at a time.

A page ends when it has as many entries as were asked for, or as fit an answer, or when enough
was examined that others should have their turn; it then says where the next one begins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import re2  # type: ignore[import-untyped]

from fjord import commands, limits, ops
from fjord.columns import Strings, joined
from fjord.commands import Entries, Page, Refusal
from fjord.errors import Code
from fjord.layouts import PREFIX_BYTES, end_of
from fjord.tables.kv import layout, read, rules
from fjord.tables.kv.layout import BASE
from fjord.tables.kv.lookup import Lookup
from fjord.tables.state import Decision, State, Table, Tree, decides
from fjord.tables.streams import rules as stream_rules

# How many entries are examined beyond those that are wanted, for tombstones and the like.
_SPARE: Final = 16
_MATCHED: Final = 1000


@decides(commands.Range)
def decide_range(command: commands.Range, state: State, now_us: int) -> Decision:
    rules.check_range(command)
    matcher = compiled(command.regex) if command.regex else None
    if isinstance(matcher, Refusal):
        raise matcher.error()
    table = stream_rules.find_map(state, command.table)
    if table is None:
        return Decision(Page(keys=Strings.of([]), entries=read.no_entries(0), next_key=b""))
    return Decision(_Pager(command, matcher, table, state, now_us).page())


class _Piece(NamedTuple):
    """Live entries in order, their sizes, and how the first so many of them are answered."""

    keys: Sequence[bytes]  # of the index
    sizes: Sequence[int]
    answer: Callable[[int], Entries]


class _Pager:
    """Goes through the entries from a key on, piece by piece, until a page is full."""

    def __init__(
        self,
        command: commands.Range,
        matcher: Matcher | None,
        table: Table,
        state: State,
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
            and not state.as_of  # then a value may have another place than its entry says
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
            piece = self._plain_piece(keys, stored) or self._any_piece(keys, stored)
            count = self._fitting(piece)
            self._parts.append(piece.answer(count))
            self._keys += piece.keys[:count]
            if count < len(piece.keys):
                following = piece.keys[count]
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
        """Returns keys that match, with their entries, and the first key that was not examined."""
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
        """Returns how many of the keys may be matched, at least one, and takes note of the work."""
        for count, key in enumerate(keys):
            if count and self._work >= limits.REGEX_WORK_MAX:
                return count
            self._work += len(key) * matcher.steps
        return len(keys)

    def _plain_piece(self, keys: Sequence[bytes], stored: dict[bytes, bytes]) -> _Piece | None:
        """Returns the piece if its entries are plain values and tombstones; else None."""
        if not self._is_plain or len(stored) < len(keys):
            return None
        if not self._state.volatile.keys().isdisjoint(keys):
            return None
        found = {key: data for key, data in stored.items() if data[layout.TYPE_AT] != ops.TOMBSTONE}
        if any(len(data) != BASE.size for data in found.values()):
            return None  # perhaps an alias, or it expires
        entries = list(found.values())
        return _Piece(
            list(found),
            [BASE.unpack(data)[4] for data in entries],
            lambda count: self._plain_entries(entries[:count]),
        )

    def _plain_entries(self, stored: Sequence[bytes]) -> Entries:
        if not stored:
            return read.no_entries(0)
        found = read.plain_entries(stored, self._state)
        assert found is not None  # the piece was made of such entries only
        return found

    def _any_piece(self, keys: list[bytes], stored: dict[bytes, bytes]) -> _Piece:
        state, command = self._state, self._command
        found = list(map(stored.get, keys))
        lookup = Lookup(state, keys, found, self._now_us, all_marks=True)
        rows = [
            row
            for row in range(len(keys))
            if lookup.is_live(row) and not (command.skip_worked and lookup.is_worked_on(row))
        ]
        return _Piece(
            [keys[row] for row in rows],
            [lookup.size(row) if command.with_data else 0 for row in rows],
            lambda count: read.entries(lookup, rows[:count], state, with_data=command.with_data),
        )

    def _fitting(self, piece: _Piece) -> int:
        """Returns how many entries of a piece fit the page; the first of a page always does."""
        room = self._wanted - len(self._keys)
        for count, (key, size) in enumerate(zip(piece.keys, piece.sizes, strict=True)):
            total = self._bytes + len(key) + size
            if count == room or (total > limits.PAGE_BYTES_MAX and self._bytes):
                return count
            self._bytes = total
        return len(piece.keys)


def _bounds(
    command: commands.Range, matcher: Matcher | None, table: Table
) -> tuple[bytes, bytes | None]:
    """Returns the index keys between which to look."""
    start, stop = table.prefix + command.start, table.prefix + command.stop
    if matcher is not None:
        start = max(start, table.prefix + matcher.first)
    end = stop if command.stop else end_of(table.prefix)
    if matcher is not None and matcher.last is not None:
        after = table.prefix + matcher.last + b"\0"
        end = after if end is None else min(end, after)
    return start, end


def _joined(parts: Sequence[Entries]) -> Entries:
    if len(parts) == 1:
        return parts[0]
    names = Entries.row.columns
    return Entries(**{name: joined([getattr(one, name) for one in parts]) for name in names})


# -- regular expressions over keys: RE2, whose time grows with a key only as its bytes do ---------
#
# Keys are bytes, and so are expressions: one byte is one character, whatever encoding was meant.
# An expression that is bound to the beginning of keys also says between which keys to look.


# How many bytes of a key are looked at to say where matches can begin and end.
_PREFIX_BYTES: Final = 64
_REPEATS: Final = b"*+?{"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """A compiled expression."""

    expression: Any
    steps: int  # of its program: what one byte of a key may take
    first: bytes  # no key before this one matches
    last: bytes | None  # and none after this one; None: there is no such bound

    def finds(self, key: bytes) -> bool:
        return self.expression.search(key) is not None


@functools.lru_cache(maxsize=limits.REGEX_KEPT)
def compiled(regex: bytes) -> Matcher | Refusal:
    """Returns the matcher of an expression, or what is wrong with it."""
    try:
        expression = re2.compile(regex, _options())
        first, last = _key_bounds(regex)
    except re2.error as error:
        return Refusal(code=Code.BAD_REGEX, text=f"RE2 says: {_text(error)}")
    finally:
        re2.purge()  # its own cache is larger than what is kept here
    if expression.programsize > limits.REGEX_STEPS_MAX:
        return Refusal(code=Code.BAD_REGEX, text="the regular expression is too large a program")
    return Matcher(expression=expression, steps=expression.programsize, first=first, last=last)


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.never_capture = True
    options.max_mem = limits.REGEX_MEMORY_BYTES
    return options


def _key_bounds(regex: bytes) -> tuple[bytes, bytes | None]:
    """Returns the first and the last key that can match; all keys where that is not known."""
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
    """Returns what follows the anchor, if all that can match must begin at it; None if unsure."""
    for anchor in (b"^", b"\\A"):
        rest = regex[len(anchor) :]
        if regex.startswith(anchor) and rest[:1] not in {bytes([at]) for at in _REPEATS}:
            return None if _may_choose(rest) else rest
    return None


def _may_choose(regex: bytes) -> bool:
    """Says whether a choice may stand outside of all brackets; it then needs no anchor."""
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
    """Returns RE2's words without bytes of the expression that are no text."""
    text = error.args[0] if error.args else ""
    words = text.decode("latin-1") if isinstance(text, bytes) else str(text)
    return "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in words)
