"""A persistent queue: each op is written to its journal, then done in memory.

    add --> waiting --remove--> gone
               ^  |
    unremove   |  | remove(opens=True)
               |  v
              open --confirm--> gone

Nothing is durable before `sync`, which one fsync does for all that was done so far.

When files are replaced (the guards are Kestrel's, and two of ours):

- the queue is empty and has `defaultJournalSize` of journal: it is rewritten, to what is open;
- all of it is in memory, and there is more than `maxJournalSize`: it is rewritten, but not within
  `minJournalCompactDelay` of the last time;
- the current file has more than `maxMemorySize`: it is rotated; if the queue is in read-behind,
  the files up to there are packed as soon as all of their items were read.

Ours: none of these is done unless it halves what it replaces, so that many open items cannot cause
one rewrite after the other; and one that failed, for want of space or whatever, is not tried at
every op, but when some time has passed, or half as much is to be written.  All goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from fjord import limits
from fjord.clock import Clock
from fjord.kestrel import codec, items
from fjord.kestrel.codec import Dialect, Item, Op, Opcode
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.items import Entry, Items
from fjord.kestrel.journal import Journal

_REMOVE: Final = codec.remove()
_LAST_MS: Final = 2**63 - 1  # that an op can hold
_FULL_US: Final = 60_000_000  # after a rewrite that found no space
# Open items are in memory, and in every file that is rewritten.  A connection has a few of them.
OPEN_ITEMS_MAX: Final = 100_000
OPEN_BYTES_MAX: Final = 1024 * limits.MIB
# Items expire in groups: they are somewhere else, durably, before they leave here.
EXPIRE_COUNT_MAX: Final = 1_000


class PersistentQueue:
    """One queue, which one thread uses."""

    def __init__(
        self,
        name: str,
        config: QueueConfig,
        clock: Clock,
        journal: Journal | None = None,
        *,
        open_items_max: int = OPEN_ITEMS_MAX,
    ) -> None:
        """Reads the journal; what was open is open still.

        Args:
            name: of the queue.
            config: how it behaves.
            clock: tells when items expire.
            journal: its files; None: it is in memory alone.
            open_items_max: so many items are open at most.

        Raises:
            DirectoryError, DurabilityError: if the files cannot be read, or not be repaired.
        """
        self.name = name
        self.config = config
        self._clock = clock
        self._journal = journal
        self._open_items_max = open_items_max
        now_ms = self._now_ms()
        self.waiting = Items(journal.files if journal else None, config.max_memory_size, now_ms)
        self.total_items = self.expired = self.discarded = self.flushes = 0
        self.transactions = self.canceled = 0
        self.used_us = clock.monotonic_us()  # when somebody asked for it, if that is to be known
        # When items were opened, by xid, the first opened first; if there is a timeout.
        self._opened_us: dict[int, int] = {}
        self._compacted_us: int | None = None
        self._full_until_us = self._full_size = 0  # there was no space to rewrite so much
        self._unrotated_until_us = 0  # there was no space for another file
        if journal is not None:
            for segment, batch in journal.replay(now_ms):
                self.waiting.apply_batch(batch, segment)
            self.waiting.end_apply()
            journal.begin()
            self.waiting.era = journal.current.era

    # -- what a user does -------------------------------------------------------------------------

    def add(self, data: bytes, expires_ms: int = 0) -> bool:
        """Puts an item at the end; False if there is no room, or it is too large."""
        # What is larger than any reader takes would be damage at the next start.
        if len(data) > self.config.max_item_size or len(data) > codec.ITEM_BYTES_MAX:
            return False
        while self.is_full():
            if not self.config.discard_old_when_full or not self._discard():
                return False
        self._check_files()
        now_ms = self._now_ms()
        expires_ms = self._capped(expires_ms, now_ms)
        segment, offset = None, 0
        if self._journal is not None:
            segment = self._journal.current
            offset = segment.size
            self._journal.append_bytes(codec.encode_addx(data, now_ms, expires_ms))
        self.waiting.add(Item(data, now_ms, expires_ms), segment, offset)
        self.total_items += 1
        return True

    def remove(self, *, opens: bool = False) -> Item | None:
        """Takes the item at the head, for good or as open; None if there is none.

        Also None if too many are open.  Drop expired items first, see `expired_heads`.
        """
        head = self.waiting.head()
        waiting = self.waiting
        if head is None:
            return None
        if opens and (
            len(waiting.open) >= self._open_items_max or waiting.open_bytes >= OPEN_BYTES_MAX
        ):
            return None
        item = head.item()
        if opens:
            xid = self._reserve(head)
            item = item._replace(xid=xid)
            self.transactions += 1
            if self.config.open_transaction_timeout_ms is not None:
                self._opened_us[xid] = self._clock.monotonic_us()
        else:
            self._write(_REMOVE)
            self.waiting.take()
        self._check_files()
        return item

    def peek(self) -> Item | None:
        """Returns the item at the head, which stays there."""
        head = self.waiting.head()
        return None if head is None else head.item()

    def confirm(self, xid: int) -> bool:
        """Takes an open item away for good; False if there is none with this xid."""
        if xid not in self.waiting.open:
            return False
        self._write(codec.confirm_remove(xid))
        self.waiting.confirm(xid)
        self._opened_us.pop(xid, None)
        self._check_files()
        return True

    def unremove(self, xid: int) -> bool:
        """Puts an open item back at the head; False if there is none with this xid."""
        if xid not in self.waiting.open:
            return False
        self._write(codec.unremove(xid))
        self.waiting.unremove(xid)
        self._opened_us.pop(xid, None)
        self.canceled += 1
        return True

    def back_out(self) -> None:
        """Puts all open items back: those who held them are gone."""
        for xid in sorted(self.waiting.open, reverse=True):
            self._write(codec.unremove(xid))
            self.waiting.unremove(xid)

    def flush(self) -> None:
        """Removes all that waits; what is open stays so.

        Raises:
            OSError: if there is no space; nothing has changed.
        """
        if self._journal is not None:
            self._journal.append_bytes(bytes((Opcode.REMOVE,)) * self.waiting.count)
        self.waiting.drop_all()
        self.flushes += 1
        self._check_files()

    # -- expiry -----------------------------------------------------------------------------------

    def expired_heads(self, count_max: int = EXPIRE_COUNT_MAX) -> list[Item]:
        """Returns expired items at the head, up to a count; they stay there."""
        now_ms = self._now_ms()
        found: list[Item] = []
        for entry in self.waiting.entries():
            expires_ms = self._capped(entry.expires_ms, entry.added_ms)
            if len(found) >= count_max or not 0 != expires_ms < now_ms:
                break
            found.append(entry.item())
        return found

    def drop_expired(self, count: int) -> None:
        """Removes the first items that `expired_heads` has returned."""
        if not count:
            return
        if self._journal is not None:
            self._journal.append_bytes(bytes((Opcode.REMOVE,)) * count)
        for _ in range(count):
            self.waiting.take()
        self.expired += count
        self._check_files()

    def timed_out(self) -> list[int]:
        """Returns the xids of what is open for too long, the first opened first."""
        timeout_ms = self.config.open_transaction_timeout_ms
        if timeout_ms is None:
            return []
        now_us = self._clock.monotonic_us()
        if len(self._opened_us) < len(self.waiting.open):
            # They were opened when there was no timeout, so their time begins now.
            self._opened_us = {xid: self._opened_us.get(xid, now_us) for xid in self.waiting.open}
        before_us = now_us - timeout_ms * 1000
        return [xid for xid, opened_us in self._opened_us.items() if opened_us < before_us]

    def _capped(self, expires_ms: int, added_ms: int) -> int:
        age_ms = self.config.max_age_ms
        if age_ms is None:
            return expires_ms
        last_ms = min(added_ms + age_ms, _LAST_MS)
        return min(expires_ms or last_ms, last_ms)

    # -- what it is -------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """Says whether it is full; checked before an item is added, whatever its size."""
        waiting = self.waiting
        return waiting.count >= self.config.max_items or waiting.bytes >= self.config.max_size

    @property
    def alerts(self) -> list[str]:
        return self._journal.alerts if self._journal else []

    def configure(self, config: QueueConfig) -> None:
        """Changes how it behaves from now on; its files stay what and where they are."""
        self.config = config
        self.waiting.memory_bytes_max = config.max_memory_size

    def stats(self) -> dict[str, int]:
        """Returns numbers under the names that Kestrel's stats have."""
        waiting, journal = self.waiting, self._journal
        return {
            "items": waiting.count,
            "bytes": waiting.bytes,
            "total_items": self.total_items,
            "logsize": journal.size if journal else 0,
            "expired_items": self.expired,
            "mem_items": waiting.memory_count,
            "mem_bytes": waiting.memory_bytes,
            "age": self._age_ms(),
            "discarded": self.discarded,
            "waiters": 0,
            "open_transactions": len(waiting.open),
            "transactions": self.transactions,
            "canceled_transactions": self.canceled,
            "total_flushes": self.flushes,
            "journal_rewrites": journal.rewrites if journal else 0,
            "journal_rotations": journal.rotations if journal else 0,
        }

    def _age_ms(self) -> int:
        """Returns how long the item at the head has waited."""
        head = next(self.waiting.entries(), None)
        return 0 if head is None else max(0, self._now_ms() - head.added_ms)

    # -- files ------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Makes everything that was done durable."""
        if self._journal is not None and self._journal.is_dirty:
            self._journal.sync()

    def rewrite(self) -> None:
        """Replaces all files by what there is now, which must all be in memory.

        Raises:
            OSError: if there is no space; nothing has changed.
        """
        assert self._journal is not None
        assert not self.waiting.is_behind
        self._journal.rewrite(self._state_ops(self.waiting.entries()))
        self.waiting.era = self._journal.current.era
        self.waiting.has_names = False
        self._compacted_us = self._clock.monotonic_us()

    def pack(self) -> None:
        """Replaces all files by what there is now, however large, and ends.

        Raises:
            OSError: if there is no space; nothing has changed.
        """
        assert self._journal is not None
        try:
            if self._journal.size > 0:
                self._journal.rewrite(self._state_ops(self._drained()))
        finally:
            self.waiting.close()
            self._journal.close()

    def close(self) -> None:
        """Ends: the journal of an empty queue is rewritten, others are left as they are."""
        if self._journal is None:
            return
        if self.waiting.count == 0 and self._journal.size > self._state_size():
            self._try_rewrite()
        self.sync()
        self.waiting.close()
        self._journal.close()

    def delete(self) -> None:
        """Removes the queue and its files.

        Raises:
            OSError: if there is no space to say so; nothing has changed then.
        """
        if self._journal is not None:
            try:
                self._journal.delete()
            except OSError:
                self.waiting.era = self._journal.current.era
                raise
        self.waiting.close()

    def _check_files(self) -> None:
        """Rotates, packs and rewrites, as the sizes ask for."""
        journal, waiting, config = self._journal, self.waiting, self.config
        if journal is None:
            return
        if waiting.checkpoints.waiting and waiting.is_behind:
            self._pack_reached()
        size = journal.size
        if size >= config.default_journal_size and waiting.count == 0:
            if self._may_erase():
                self._try_rewrite()
        elif size > config.max_journal_size and self._may_compact():
            self._try_rewrite()
        elif journal.current.size > max(config.max_memory_size, 1):
            self._rotate()

    def _may_erase(self) -> bool:
        assert self._journal is not None
        size = self._state_size()
        if 2 * size > self._journal.size:
            return False
        large = 2 * size >= self.config.default_journal_size
        return not (self.config.disable_aggressive_rewrites and large and self._is_too_soon())

    def _may_compact(self) -> bool:
        assert self._journal is not None
        waiting = self.waiting
        if waiting.is_behind or waiting.bytes >= self.config.max_memory_size:
            return False
        return not self._is_too_soon() and 2 * self._state_size() <= self._journal.size

    def _is_too_soon(self) -> bool:
        if self._compacted_us is None:
            return False
        since_us = self._clock.monotonic_us() - self._compacted_us
        return since_us < self.config.min_journal_compact_delay_ms * 1000

    def _try_rewrite(self) -> None:
        now_us, size = self._clock.monotonic_us(), self._state_size()
        if now_us < self._full_until_us and 2 * size >= self._full_size:
            return
        try:
            self.rewrite()
        except OSError as error:
            # The op itself was done: whoever has taken an item must get it.
            assert self._journal is not None
            self._journal.bear(error)
            self.waiting.era = self._journal.current.era
            self._full_until_us, self._full_size = now_us + _FULL_US, size

    def _rotate(self) -> None:
        assert self._journal is not None
        waiting, now_us = self.waiting, self._clock.monotonic_us()
        if now_us < self._unrotated_until_us:
            return
        try:
            old = self._journal.rotate()
        except OSError as error:
            self._journal.bear(error)
            self._unrotated_until_us = now_us + _FULL_US
            return
        if waiting.is_behind and not waiting.has_names:
            waiting.checkpoints.add(old, waiting.open, waiting.last_xid)
        waiting.era = self._journal.current.era

    def _pack_reached(self) -> None:
        """Packs the files whose items were all read, if that is worth it."""
        assert self._journal is not None
        marks = self.waiting.checkpoints
        found = marks.reached(self.waiting.reader_era)
        if found is None:
            return
        marks.compact()
        era = found.segment.era
        taken = list(marks.taken(found))
        left = [entry for entry in self.waiting.entries() if entry.era <= era]
        before = sum(one.size for one in self._journal.segments if one.era <= era)
        if 2 * items.size_of(found.open, taken, left) <= before:
            made = items.made(
                found.open, taken, left, last_xid=found.last_xid, dialect=self._journal.dialect
            )
            try:
                self._journal.pack(found.segment, made)
            except OSError as error:
                self._journal.bear(error)
        marks.forget()

    def _state_ops(self, entries: Iterable[Entry]) -> Iterator[Op]:
        """Yields the ops that make what is open, and these items that wait."""
        assert self._journal is not None
        opened, last_xid = self.waiting.open, self.waiting.last_xid
        dialect = self._journal.dialect
        return items.made(opened, (), entries, last_xid=last_xid, dialect=dialect)

    def _drained(self) -> Iterator[Entry]:
        """Yields all that waits, and empties the queue meanwhile: items are read as they go."""
        self.waiting.checkpoints.clear()
        while (entry := self.waiting.head()) is not None:
            yield entry
            self.waiting.take()

    def _state_size(self) -> int:
        waiting = self.waiting
        return items.file_size(
            len(waiting.open) + waiting.count, len(waiting.open), waiting.open_bytes + waiting.bytes
        )

    # -- inside -----------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._clock.wall_us() // 1000

    def _write(self, op: Op) -> None:
        if self._journal is not None:
            self._journal.append(op)

    def _reserve(self, head: Entry) -> int:
        if self._journal is not None and self._journal.dialect is Dialect.DOC:
            self._write(codec.remove_tentative())
            return self.waiting.reserve(0)
        xid = self.waiting.next_xid()
        self._write(codec.remove_tentative(xid))
        return self.waiting.reserve(xid)

    def _discard(self) -> bool:
        """Makes room; False if there is nothing that could give way."""
        if self.waiting.head() is None:
            return False
        self._write(_REMOVE)
        self.waiting.take()
        self.discarded += 1
        return True
