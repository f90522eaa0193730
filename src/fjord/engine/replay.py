"""Replay: applying the ops that an index lacks, collected and sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fjord.engine import group
from fjord.engine.memory import Gathered
from fjord.errors import CorruptionError
from fjord.index import Index, IndexFullError, viewed
from fjord.journal.reader import Journal, Located
from fjord.tables import catalog, generations
from fjord.tables.generations import Generations
from fjord.tables.meaning import MEANING, Note
from fjord.tables.state import JobCounts, Tree

# Present while an index is rebuilt: its counts are not right before the end.
_UNFINISHED: Final = b"rebuild"
# Called with the number of seqs that a rebuild has applied, and their total.
Progress = Callable[[int, int], None]


class Replay:
    """Applies the ops that an index lacks, collected and sorted, in large transactions."""

    def __init__(
        self, journal: Journal, index: Index, rebuild_rows: int, progress: Progress
    ) -> None:
        self._journal = journal
        self._index = index
        self._rebuild_rows = rebuild_rows
        self._progress = progress
        with viewed(index) as transaction:
            self._applied = group.read_applied(transaction)
            live_bytes, counts = group.read_live(transaction), group.read_counts(transaction)
            self._generations = group.read_generations(transaction)
            is_unfinished = transaction.get(Tree.META, _UNFINISHED) is not None
        self._gathered = _Accounted(live_bytes, counts, journal.first_seq, self._generations)
        self._largest_table = 0
        self._is_rebuild = not self._applied or is_unfinished

    def run(self, last_seq: int, *, moved_from: int) -> None:
        """Applies everything up to `last_seq`.

        Frames from `moved_from` on have moved.  Those that the index has already are applied again,
        so that it points to their new places.
        """
        start = min(self._applied, moved_from - 1, last_seq)
        applied = start
        if start >= last_seq:
            return
        first_seq = max(start + 1, self._journal.first_seq)
        for located in self._journal.frames(first_seq, durable_seq=last_seq):
            self._gathered.counts = located.frame.last_seq > self._applied
            self._apply(located)
            applied = located.frame.last_seq
            if self._gathered.rows >= self._rebuild_rows:
                self._flush(applied)
                self._progress(applied - start, last_seq - start)
        self._flush(applied, is_last=True)
        self._progress(last_seq - start, last_seq - start)

    def _apply(self, located: Located) -> None:
        try:
            for op, place in located.ops():
                meaning = MEANING[op.opcode]
                meaning.apply(self._gathered, op, place)
                if Note.GENERATIONS in meaning.notes:
                    self._generations = generations.after(self._generations, op)
                    self._gathered.generations = self._generations
                    self._gathered.job_counts.forget(generations.gone(op))
                self._largest_table = max(self._largest_table, op.table)
        except ValueError as error:
            path = self._journal.path(located.segment)
            raise CorruptionError(path, located.offset, str(error)) from error

    def _flush(self, applied: int, *, is_last: bool = False) -> None:
        gathered, seq = self._gathered, max(applied, self._applied)
        changed = gathered.job_counts.changed
        while True:
            transaction = self._index.begin()
            try:
                gathered.write(transaction)
                if self._is_rebuild and is_last:
                    transaction.delete_many(Tree.META, [_UNFINISHED])
                    changed |= group.recount(transaction, self._generations)
                elif self._is_rebuild:
                    transaction.put_many(Tree.META, [(_UNFINISHED, b"")])
                group.write_progress(transaction, seq, gathered.live_bytes, changed)
                if transaction.get(Tree.META, catalog.LOST) is not None:
                    # A table may be unknown although it has rows; its id is not reused.
                    key, note = catalog.largest_table(self._largest_table)
                    if note > (transaction.get(Tree.META, key) or b""):
                        transaction.put_many(Tree.META, [(key, note)])
                transaction.commit()
                break
            except IndexFullError:
                transaction.abort()
                self._index.grow()
            except BaseException:
                transaction.abort()
                raise
        counts = gathered.known_counts | gathered.job_counts.changed
        self._gathered = _Accounted(
            gathered.live_bytes, counts, self._journal.first_seq, self._generations
        )


class _Accounted(Gathered):
    """Collected writes of a replay, and the live bytes after them."""

    def __init__(
        self, live_bytes: int, counts: dict[int, JobCounts], first_seq: int, known: Generations
    ) -> None:
        super().__init__()
        self.generations = known
        self.live_bytes = live_bytes
        self.known_counts = counts
        self.job_counts = group.Counts(counts)
        self.counts = True
        self._first_seq = first_seq

    def account(
        self, seq: int, added: int, previous: Sequence[int] = (), freed: Sequence[int] = ()
    ) -> None:
        """Rows that were packed away were never added here, so they are not subtracted."""
        if self.counts:
            first_seq = self._first_seq
            gone = [size for row, size in zip(previous, freed, strict=True) if row >= first_seq]
            # Rows lost to damage were never added, so the difference may be too large.
            self.live_bytes = max(0, self.live_bytes + added - sum(gone))

    def tally(
        self, table: int, before: int, after: int, held: Sequence[int] = (), *, holds: int = 0
    ) -> None:
        """Like `account`: jobs whose first ops were packed away are counted when rewritten."""
        if self.counts:
            known = sum(seq >= self._first_seq for seq in held)
            self.job_counts.change(table, before, known, after, holds or known)

    def tally_rows(self, table: int, rows: Sequence[int], change: int) -> None:
        """Only correct if nothing was packed; else `recount` follows."""
        listed = self.generations.get(table)
        if self.counts and listed:
            group.change_rows(self.job_counts, listed, rows, change)
