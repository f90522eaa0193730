"""News of groups: keys that have listeners, and the changes that ops make to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from fjord.commands import Changed, Entries
from fjord.layouts import table_of
from fjord.ops import Op
from fjord.tables.state import Table, VolatileValue


class News(NamedTuple):
    """What groups have written, handed over once."""

    arrivals: Mapping[str, Arrival]  # jobs that began to wait, by table
    appended: Collection[str]  # streams that got messages
    changed: Sequence[Changed]  # of keys that have listeners
    written: Collection[str]  # key/value tables, if somebody asked for them
    is_sooner: bool  # upkeep may be due earlier than it said before


class Arrival(NamedTuple):
    """Jobs that began to wait, or now wait otherwise."""

    rows: int
    first_us: int  # the earliest process date

    def joined(self, other: Arrival) -> Arrival:
        return Arrival(self.rows + other.rows, min(self.first_us, other.first_us))


NO_NEWS: Final = News({}, frozenset(), (), frozenset(), is_sooner=False)


class Watched:
    """Watched keys by table; false if there are none."""

    def __init__(self) -> None:
        self._keys: dict[str, set[bytes]] = {}
        # Ids of the key/value tables written to; None if nobody asked for them.
        self.written: set[int] | None = None

    def __bool__(self) -> bool:
        return bool(self._keys) or self.written is not None

    def watch_tables(self) -> None:
        """From now on, news includes all key/value tables that are written to."""
        self.written = set()

    def take_written(self) -> set[int]:
        """Returns the key/value tables that were written to since the last call."""
        assert self.written is not None
        written, self.written = self.written, set()
        return written

    def add(self, table: str, key: bytes) -> None:
        self._keys.setdefault(table, set()).add(key)

    def discard(self, table: str, key: bytes) -> None:
        keys = self._keys.get(table, set())
        keys.discard(key)
        if not keys:
            self._keys.pop(table, None)

    def changes_of(self, op: Op, tables: Mapping[str, Table]) -> Iterator[Changed]:
        """Yields the changes of watched keys in an op that changes values."""
        if self.written is not None:
            self.written.add(op.table)
        for name, wanted in self._keys.items():
            table = tables.get(name)
            if table is not None and table.id == op.table:
                keys = op.column("key").rows()
                for row in [row for row, key in enumerate(keys) if key in wanted]:
                    yield _changed(op, name, row, keys[row])

    def volatile_changes(
        self, changes: Mapping[bytes, VolatileValue | None], tables: Mapping[str, Table]
    ) -> Iterator[Changed]:
        """Like `changes_of`, for values that never enter the journal; by index keys."""
        if self.written is not None:
            self.written.update(map(table_of, changes))
        for name, wanted in self._keys.items():
            table = tables.get(name)
            if table is None:
                continue
            size = len(table.prefix)
            for key, value in changes.items():
                # Where one is removed, an op of the same command tells what happened to it.
                if value is not None and key[:size] == table.prefix and key[size:] in wanted:
                    yield Changed(
                        name,
                        key[size:],
                        value.type,
                        value.value,
                        value.timestamp_us,
                        value.expires_at_us,
                    )


def _changed(op: Op, table: str, row: int, key: bytes) -> Changed:
    stamp = _number(op, "timestamp_us", row)
    if "value" not in op.opcode.position:
        return Changed(table, key, Entries.MISSING, b"", stamp, 0)
    value, expires = op.column("value")[row], _number(op, "expires_at_us", row)
    return Changed(table, key, _number(op, "type", row), value, stamp, expires)


def _number(op: Op, name: str, row: int) -> int:
    """Returns a number of a row, 0 if the op has no such column."""
    if name not in op.opcode.position:
        return 0
    number: int = op.column(name)[row]
    return number
