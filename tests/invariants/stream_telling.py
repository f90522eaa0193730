"""Short words to write a history of streams, maps and subscribers by hand."""

from __future__ import annotations

from typing import Any

from tests.invariants import stream_histories
from tests.invariants.histories import Outcome
from tests.invariants.telling import Tale

Told = tuple[str, str, str | None]  # table, key, value


class StreamTale(Tale):
    """A history of several tables; seqs are given out as a server does."""

    def __init__(self) -> None:
        super().__init__()
        self.tail = 0

    def write(self, *changes: Told, outcome: Outcome = Outcome.OK) -> stream_histories.Wrote:
        """A transaction; its changes take consecutive seqs."""
        told = []
        for table, key, value in changes:
            self.tail += 1
            data = None if value is None else value.encode()
            seq = self.tail if outcome is Outcome.OK else 0
            told.append(stream_histories.Change(table, key.encode(), data, seq))
        return self._tell(stream_histories.Wrote, changes=tuple(told), outcome=outcome)

    def open(self, snapshot: int | None = None) -> int:
        """A snapshot of now, or of a wrong seq."""
        opened = self.tail if snapshot is None else snapshot
        self._tell(stream_histories.Opened, snapshot=opened)
        return opened

    def see(self, snapshot: int, table: str, **entries: str) -> stream_histories.Saw:
        rows = tuple((key.encode(), value.encode()) for key, value in entries.items())
        return self._tell(stream_histories.Saw, snapshot=snapshot, table=table, entries=rows)

    def read(
        self, table: str, *messages: tuple[int, str, str | None], **fields: Any
    ) -> stream_histories.Passed:
        """A whole pass from the beginning, if nothing else is said."""
        rows = tuple(
            stream_histories.Message(seq, key.encode(), None if value is None else value.encode())
            for seq, key, value in messages
        )
        until = fields.get("until", self.tail)
        told = {"after": 0, "until": until, "next_after": until, "is_end": True, **fields}
        return self._tell(stream_histories.Passed, table=table, messages=rows, **told)

    def retire(self, table: str, last: int) -> stream_histories.Retired:
        return self._tell(stream_histories.Retired, table=table, last=last)

    def position(
        self, how: stream_histories.How, seq: int, epoch: int = 0, **fields: Any
    ) -> stream_histories.Positioned:
        told = {"name": "s", "asked": seq, "given": epoch, "tail": 1_000, **fields}
        return self._tell(stream_histories.Positioned, how=how, seq=seq, epoch=epoch, **told)

    def leave(self, **fields: Any) -> stream_histories.Unsubscribed:
        return self._tell(stream_histories.Unsubscribed, name="s", **fields)
