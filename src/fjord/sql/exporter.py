"""Reads the jobs of a table as rows of a journal table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fjord.client.blocking.database import Database
from fjord.clock import SystemClock
from fjord.jobs import State
from fjord.sql import shape


class Exporter:
    """Reads all waiting and taken jobs as rows, and counts them."""

    def __init__(
        self,
        db: Database,
        table: str,
        *,
        has_value: bool,
        on_left_out: Callable[[str], None],
        on_progress: Callable[[int, int], None],
    ) -> None:
        """Makes an exporter.

        Args:
            db: has the table.
            table: its name.
            has_value: rows have the values of the jobs, as JSON.
            on_left_out: called with a sentence for each job that cannot be a row.
            on_progress: called with the number of rows so far, and of all.

        Raises:
            RefusedError: if there is no such table, or it is of another kind.
        """
        db.table(table)
        counts = db.jobs(table).count()
        self._db = db
        self._table = table
        self._total = counts.waiting + counts.taken
        self._has_value = has_value
        self._on_left_out = on_left_out
        self._on_progress = on_progress
        self._now_us = SystemClock().wall_us()
        self.exported = 0
        self.expired = 0
        self.left_out = 0
        self.has_changed = False  # the table, while it was read

    def rows(self) -> Iterator[shape.JournalRow]:
        begun_seq = self._db.stats()["applied_seq"]
        jobs = self._db.jobs(self._table)
        for state in (State.TAKEN, State.WAITING):
            for page in jobs.pages(state):
                expiries_us = page.expires_at_us
                live = [at for at, us in enumerate(expiries_us) if not 0 < us <= self._now_us]
                self.expired += len(expiries_us) - len(live)
                for row in shape.rows(page, live, has_value=self._has_value):
                    if isinstance(row, str):
                        self.left_out += 1
                        self._on_left_out(row)
                    else:
                        self.exported += 1
                        yield row
                self._on_progress(self.exported, self._total)
        # Snapshots do not cover jobs tables, but the history shows afterwards whether the table
        # has changed.
        changes = self._db.scan(self._table, begun_seq + 1)
        self.has_changed = any(len(piece.first_seqs) for piece in changes)
