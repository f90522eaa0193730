"""Whether bytes are rows of a schema: what a server makes sure of before it keeps them.

Many rows are looked at all together, see `_are_sound`: a few operations on large integers, in
which each row has a lane of 32 bits, say that all of them are fine.  Only if that fails, or there
are few, they are looked at one by one, and then the first thing that is wrong is told.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Final

from fjord.columns import Strings
from fjord.declared.layout import NUMBER, Heads, Layout

# So many rows are faster looked at one by one.
_FEW: Final = 8
# Sums of two numbers below these bounds, and of the size of a head, fit into a lane.
_LANE: Final = b"\1\0\0\0"
_HIGH_BIT: Final = 31
_DATA_BYTES_MAX: Final = 2**30


class RowCheck:
    """Says what is wrong with rows of one schema."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        columns = layout.schema.columns
        self._bounded = [at for at in layout.fixed if layout.kinds[at].bounds is not None]
        self._texts = [at for at in layout.loose if columns[at].type == "string"]
        self._required = sum(1 << at for at, one in enumerate(columns) if one.required)

    def problem(self, column: Strings) -> str | None:
        """Says why these are no rows of this schema, or None."""
        if len(column) <= _FEW:
            return self._first_problem(column.rows()) or self._text_problem(column)
        heads = Heads(self._layout, column)
        if not self._are_sound(heads):
            problem = self._first_problem(column.rows())
            if problem is not None:
                return problem
        return self._text_problem(column, heads)

    # -- all together -----------------------------------------------------------------------------

    def _are_sound(self, heads: Heads) -> bool:
        """Says that all is fine but for the texts; if not, something may be wrong."""
        return (
            heads.are_whole
            and len(heads.data) < _DATA_BYTES_MAX
            and heads.are_of_schema
            and not any(map(self._null_problem, heads.nulls()))
            and not any(self._bounds_problem(at, heads.stored(at)) for at in self._bounded)
            and self._ends_fit(heads)
        )

    def _ends_fit(self, heads: Heads) -> bool:
        """Says whether columns end in order, and the last one of each row where the row does.

        No carry goes from lane to lane.  Ends have no highest bit, so one that is subtracted from
        the next one with its highest bit set leaves that bit if, and only if, it is not larger.
        And where a row begins is below 2**30, its last end below 2**31, so their sum fits.
        """
        ones = int.from_bytes(_LANE * heads.count, "little")
        high = ones << _HIGH_BIT
        before = 0
        for place in range(len(self._layout.loose)):
            ends = int.from_bytes(heads.end_bytes(place), "little")
            if ends & high or ((ends | high) - before) & high != high:
                return False
            before = ends
        starts = int.from_bytes(heads.offsets[:-4], "little")
        stops = int.from_bytes(heads.offsets[4:], "little")
        return starts + before + ones * self._layout.size == stops

    # -- one by one -------------------------------------------------------------------------------

    def _first_problem(self, rows: Sequence[bytes]) -> str | None:
        if not rows:
            return None
        if min(map(len, rows)) < self._layout.size:
            return "a row is too short"
        size = len(self._layout.prefix)
        return (
            self._prefix_problem({row[:size] for row in rows})
            or self._time_problem(rows)
            or self._ends_problem(rows)
        )

    def _prefix_problem(self, prefixes: Iterable[bytes]) -> str | None:
        wanted = self._layout.schema.number
        for prefix in prefixes:
            (number,) = NUMBER.unpack_from(prefix)
            if number != wanted:
                return f"a row has schema {number}, and the table has {wanted} now"
            problem = self._null_problem(int.from_bytes(prefix[NUMBER.size :], "little"))
            if problem is not None:
                return problem
        return None

    def _null_problem(self, nulls: int) -> str | None:
        if nulls >> len(self._layout.kinds):
            return "a row has more columns than the table"
        if nulls & self._required:
            return "a row lacks what is required"
        return None

    def _time_problem(self, rows: Sequence[bytes]) -> str | None:
        for at in self._bounded:
            one = struct.Struct(f"<{self._layout.places[at]}x{self._layout.kinds[at].code}")
            values = list(chain.from_iterable(map(one.unpack_from, rows)))
            problem = self._bounds_problem(at, values)
            if problem is not None:
                return problem
        return None

    def _bounds_problem(self, at: int, values: Sequence[int]) -> str | None:
        bounds = self._layout.kinds[at].bounds
        assert bounds is not None
        if bounds[0] <= min(values) and max(values) <= bounds[1]:
            return None
        return f"column {self._layout.names[at]} has a time beyond the years 1 to 9999"

    def _ends_problem(self, rows: Sequence[bytes]) -> str | None:
        for row in rows:
            ends = (0, *self._layout.ends.unpack_from(row))
            if self._layout.size + ends[-1] != len(row):
                return "a row has another length than it says"
            if any(end > following for end, following in pairwise(ends)):
                return "a column of a row ends before it begins"
        return None

    # -- texts ------------------------------------------------------------------------------------

    def _text_problem(self, column: Strings, heads: Heads | None = None) -> str | None:
        """Looks at the texts of rows that are fine otherwise."""
        if not self._texts:
            return None
        heads = Heads(self._layout, column) if heads is None else heads
        # Where all is ASCII, it does not matter where one text ends and the next begins.
        if heads.are_followed_by_ascii():
            return None
        for at in self._texts:
            if not _is_text(heads.parts(at)):
                return f"column {self._layout.names[at]} is no UTF-8"
        return None


def _is_text(parts: Sequence[bytes]) -> bool:
    """Says whether each of these is UTF-8; a character cannot go on behind the zero."""
    try:
        b"\0".join(parts).decode()
    except UnicodeDecodeError:
        return False
    return True
