"""Which keys somebody listens to, what of an op concerns them, and what is told of groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from fjord.commands import Changed, Entries
from fjord.layouts import table_of
from fjord.ops import Op
from fjord.tables.state import Table, VolatileValue


class News(NamedTuple):
    """What groups have written, handed over once to whoever tells others of it."""

    arrivals: Mapping[str, Arrival]  # jobs that began to wait, by table
    appended: Collection[str]  # streams that got messages
    changed: Sequence[Changed]  # of keys that somebody listens to
    written: Collection[str]  # key/value tables, if somebody wants to know
    is_sooner: bool  # upkeep may be due earlier than it said before


class Arrival(NamedTuple):
    """Jobs that began to wait, or wait otherwise."""

    rows: int
    first_us: int  # the earliest process date

    def joined(self, other: Arrival) -> Arrival:
        return Arrival(self.rows + other.rows, min(self.first_us, other.first_us))


NO_NEWS: Final = News({}, frozenset(), (), frozenset(), is_sooner=False)


class Watched:
    """Keys by table; false while nobody listens."""

    def __init__(self) -> None:
        self._keys: dict[str, set[bytes]] = {}
        # Tables with other values than before, by id; None while nobody wants to know.
        self.written: set[int] | None = None

    def __bool__(self) -> bool:
        return bool(self._keys) or self.written is not None

    def watch_tables(self) -> None:
        """From now on there is news of all key/value tables that are written to."""
        self.written = set()

    def take_written(self) -> set[int]:
        """Returns which key/value tables have other values since the last call."""
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
        """Yields what an op that changes values changes of the keys that somebody listens to."""
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
        """Yields the same for values that never enter the journal; keys are those of the index."""
        if self.written is not None:
            self.written.update(map(table_of, changes))
        for name, wanted in self._keys.items():
            table = tables.get(name)
            if table is None:
                continue
            size = len(table.prefix)
            for key, value in changes.items():
                # Where one is removed, an op of the same command says what became of it.
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
    """Returns a number of a row, 0 where the op has none of this name."""
    if name not in op.opcode.position:
        return 0
    number: int = op.column(name)[row]
    return number
