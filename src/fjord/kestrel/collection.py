"""All queues of a directory: found when it is opened, made when somebody adds or asks.

`cars+seo` is a child of `cars`: it gets a copy of all that is added to `cars` from then on, and is
a queue of its own for everything else.  An alias is a name that only takes items, for the queues
that it stands for.

What was open when the directory was left is put back at the head: whoever had it is gone.

Nothing here waits, and nothing is durable before `sync`.  One process owns a directory; another
Fjord is kept out by a lock, a Kestrel is not.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeVar

from fjord import disk as disks
from fjord import limits
from fjord.clock import Clock
from fjord.errors import DirectoryError, FjordError, UsageError
from fjord.kestrel import codec, names, reader
from fjord.kestrel.codec import Item
from fjord.kestrel.config import Configuration, QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import EXPIRE_COUNT_MAX, PersistentQueue

T = TypeVar("T")

# No file of a queue for Fjord, and a temporary one for Kestrel.
_LOCK: Final = "~~lock"
# Queues that were made, deleted, and deleted because nobody came.
COUNTS: Final = ("queue_creates", "queue_deletes", "queue_expires")


class Collection:
    """The queues of a directory, which one thread uses."""

    def __init__(
        self,
        disk: disks.Disk,
        folder: str,
        config: Configuration | None,
        clock: Clock,
        *,
        reserve_bytes: int = 0,
        queues_max: int = sys.maxsize,
    ) -> None:
        """Opens a directory, or makes one, and reads all of its queues.

        Args:
            disk: where it is.
            folder: the directory.
            config: how queues behave.
            clock: tells when items expire.
            reserve_bytes: kept back on the disk, so that items can be removed when it is full.
            queues_max: no more are made; each has files open.  All that are there are opened.

        Raises:
            DirectoryInUseError: if another process has it open.
            DirectoryError, DurabilityError: if it cannot be read, or not be repaired.
        """
        self._disk = disk
        self._folder = folder
        self._config = config or Configuration()
        self._clock = clock
        self._queues_max = queues_max
        self._queues: dict[str, PersistentQueue] = {}
        self._children: dict[str, list[str]] = {}  # of a queue, that get all that it gets
        self._touched: set[str] = set()  # that may have something to sync
        self.wants_sync = False  # one of these must be durable before the reply
        self.counts = dict.fromkeys(COUNTS, 0)
        self.on_item: Callable[[str], None] = lambda queue: (
            None
        )  # called with the queue that an item was added to
        if not disk.exists(folder):
            disk.make_directory(folder)
            disk.sync_directory(os.path.dirname(os.path.abspath(folder)))
        self._closing = contextlib.ExitStack()
        self._closing.enter_context(locked(disk, folder))
        self._reserve = Reserve(disk, folder, reserve_bytes)
        try:
            for name in reader.queues(disk, folder):
                self._with_room(self._open(name).back_out)
            self._keep_back()
        except BaseException:
            self._closing.close()
            raise

    # -- items ------------------------------------------------------------------------------------

    def add(self, queue: str, data: bytes, expires_ms: int = 0) -> bool:
        """Puts an item at the end of a queue and of its children.

        Returns:
            False if the queue is full or the item too large; then its children have not got it.

        Raises:
            UsageError: if no queue can have this name.
            FjordError: if there are as many queues as may be.
            OSError: if there is no space on the disk.
            DurabilityError: if the disk is broken.
        """
        # All queues of an alias get it, even if one refuses.
        targets = self._config.aliases.get(queue, (queue,))
        added = [self._add(one, data, expires_ms) for one in targets]
        return all(added)

    def remove(self, queue: str, *, opens: bool = False) -> Item | None:
        """Takes the item at the head, for good or as open; None if there is none."""
        found = self._fresh(queue)
        return self._with_room(lambda: found.remove(opens=opens))

    def peek(self, queue: str) -> Item | None:
        """Returns the item at the head, which stays there."""
        return self._fresh(queue).peek()

    def confirm(self, queue: str, xid: int) -> bool:
        """Takes an open item away for good; False if there is no such one."""
        found = self._known(queue)
        return found is not None and self._with_room(lambda: found.confirm(xid))

    def unremove(self, queue: str, xid: int) -> bool:
        """Puts an open item back at the head; False if there is no such one."""
        found = self._known(queue)
        is_back = found is not None and self._with_room(lambda: found.unremove(xid))
        if is_back:
            self.on_item(queue)
        return is_back

    # -- queues -----------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self._queues)

    def flush(self, queue: str) -> None:
        """Removes all that waits in a queue; its children keep what they have."""
        found = self._known(queue)
        if found is not None:
            self._with_room(found.flush)

    def delete(self, queue: str) -> None:
        """Removes a queue and its files, durably; its children stay."""
        found = self._queues.get(queue)
        if found is None:
            return
        self._with_room(found.delete)
        del self._queues[queue]
        self.counts["queue_deletes"] += 1
        self._touched.discard(queue)
        parent = names.parent_of(queue)
        if parent is not None:
            self._children[parent].remove(queue)

    def time_out(self, queue: str) -> list[int]:
        """Gives back what is open for too long; returns the xids, the last opened first.

        They are at the head in the order that they had there.

        Raises:
            OSError: if there is no space for any of them.
        """
        found = self._queues.get(queue)
        given: list[int] = []
        try:
            for xid in reversed(found.timed_out() if found else ()):
                self.unremove(queue, xid)
                given.append(xid)
        except OSError:
            if not given:
                raise
        return given

    def is_unused(self, queue: str) -> bool:
        """Says whether a queue has been empty and unused for `maxQueueAge`."""
        found = self._queues.get(queue)
        age_ms = found.config.max_queue_age_ms if found is not None else None
        if found is None or age_ms is None or found.waiting.count or found.waiting.open:
            return False
        return found.used_us + age_ms * 1000 < self._clock.monotonic_us()

    def flush_expired(self, queue: str) -> int:
        """Removes expired items at the head, up to `maxExpireSweep`; returns how many."""
        found = self._known(queue)
        return 0 if found is None else self._expire(found, found.config.max_expire_sweep)

    def stats(self, queue: str) -> dict[str, int | str]:
        """Returns the numbers of a queue by their names in Kestrel; none if there is no queue."""
        found = self._queues.get(queue)
        if found is None:
            return {}
        children = self._children.get(queue)
        return {**found.stats(), **({"children": ",".join(children)} if children else {})}

    def configure(self, config: Configuration) -> None:
        """Changes how queues behave from now on; where they are kept does not change."""
        self._config = config
        for name, queue in self._queues.items():
            queue.configure(config.of(name))

    def alerts(self) -> list[str]:
        """Returns what was damaged when the queues were opened."""
        return [alert for queue in self._queues.values() for alert in queue.alerts]

    # -- durability -------------------------------------------------------------------------------

    def sync(self) -> None:
        """Makes everything that was done so far durable.

        Raises:
            DurabilityError: if it is not; nothing more is taken then.
        """
        for name in sorted(self._touched):
            self._queues[name].sync()
        self._touched.clear()
        self.wants_sync = False

    def close(self) -> None:
        """Ends; all that was done is durable then.

        Raises:
            DurabilityError: if it is not; all other queues are closed well.
        """
        with self._closing as closing:
            closing.callback(self._reserve.close)
            for queue in self._queues.values():
                closing.callback(queue.close)

    # -- inside -----------------------------------------------------------------------------------

    def _add(self, queue: str, data: bytes, expires_ms: int) -> bool:
        found = self._use(queue)
        if found.config.keep_journal:
            self._reserve.take()
        if not found.config.fanout_only:
            if not found.add(data, expires_ms):
                return False
            self.on_item(queue)
        for child in self._children.get(queue, ()):
            if self._use(child).add(data, expires_ms):
                self.on_item(child)
        return True

    def _fresh(self, name: str) -> PersistentQueue:
        """Returns a queue whose head has not expired."""
        queue = self._use(name)
        while self._expire(queue, EXPIRE_COUNT_MAX) == EXPIRE_COUNT_MAX:
            pass
        return queue

    def _expire(self, queue: PersistentQueue, count_max: int) -> int:
        count = 0
        while count < count_max:
            heads = queue.expired_heads(min(EXPIRE_COUNT_MAX, count_max - count))
            if not heads:
                break
            target = queue.config.expire_to_queue
            if target is not None and target != queue.name:
                self._move_expired(queue, heads, target)
            else:
                self._with_room(partial(queue.drop_expired, len(heads)))
            count += len(heads)
        return count

    def _move_expired(self, queue: PersistentQueue, heads: list[Item], target: str) -> None:
        moved = 0
        try:
            for item in heads:
                self.add(target, bytes(item.data))
                moved += 1
        finally:
            if moved:
                # It is there before it is gone from here: a crash may double it, not lose it.
                self.sync()
                self._with_room(lambda: queue.drop_expired(moved))

    def _keep_back(self) -> None:
        """A disk that is full already takes no items, but gives them."""
        try:
            self._reserve.take()
        except OSError as error:
            if not disks.is_full(error):
                raise

    def _with_room(self, change: Callable[[], T]) -> T:
        """Makes a change; on a full disk, a second time with the space that was kept back."""
        try:
            return change()
        except OSError as error:
            if not disks.is_full(error) or not self._reserve.give():
                raise
            return change()

    def _known(self, name: str) -> PersistentQueue | None:
        queue = self._queues.get(name)
        if queue is not None:
            self._touched.add(name)
            self.wants_sync = self.wants_sync or queue.config.sync_journal_ms is not None
            if queue.config.max_queue_age_ms is not None:
                queue.used_us = self._clock.monotonic_us()
        return queue

    def _use(self, name: str) -> PersistentQueue:
        queue = self._known(name)
        if queue is not None:
            return queue
        if problem := names.queue_problem(name):
            raise UsageError(problem)
        if len(self._queues) >= self._queues_max:
            raise FjordError("too many queues for the files that may be open; delete some")
        queue = self._open(name)
        self.wants_sync = self.wants_sync or queue.config.sync_journal_ms is not None
        self.counts["queue_creates"] += 1
        return queue

    def _open(self, name: str) -> PersistentQueue:
        config = self._config.of(name)
        journal = None
        if config.keep_journal:
            journal = Journal(self._disk, self._folder, name, self._clock, dialect=config.dialect)
        queue = PersistentQueue(name, config, self._clock, journal)
        self._queues[name] = queue
        self._touched.add(name)
        parent = names.parent_of(name)
        if parent is not None:
            self._children.setdefault(parent, []).append(name)
        return queue


class Packed(NamedTuple):
    """A queue whose files were rewritten."""

    queue: str
    items: int  # that wait
    open_items: int
    bytes_before: int  # of its files
    bytes_after: int
    alerts: tuple[str, ...]  # what was damaged, and where it is kept


def pack_queues(
    disk: disks.Disk,
    folder: str,
    queue: str,
    config: QueueConfig,
    clock: Clock,
    *,
    item_bytes_max: int = codec.ITEM_BYTES_MAX,
) -> Iterator[Packed | DirectoryError]:
    """Packs the queues of a directory, or one, and yields the result of each.

    What is open stays open, and queues may be larger than memory.  One that cannot be read, or has
    no space, stays as it is; the others are packed all the same.

    Raises:
        NotFoundError: if there is no such queue.
        DirectoryInUseError: if a Fjord serves the directory.
        DirectoryError: if it cannot be opened.
    """
    found = reader.wanted_queues(disk, folder, [queue] if queue else [])
    try:
        with locked(disk, folder):
            for name in found:
                try:
                    journal = Journal(
                        disk,
                        folder,
                        name,
                        clock,
                        dialect=config.dialect,
                        item_bytes_max=item_bytes_max,
                    )
                    packed = PersistentQueue(name, config, clock, journal)
                    items, opened = packed.waiting.count, len(packed.waiting.open)
                    before = journal.size
                    packed.pack()
                    yield Packed(name, items, opened, before, journal.size, tuple(journal.alerts))
                except (OSError, DirectoryError) as error:
                    reason = error.strerror if isinstance(error, OSError) else error
                    yield DirectoryError(f"{name} was not packed: {reason}")
    except OSError as error:
        raise DirectoryError(f"cannot open {folder}: {error.strerror}") from error


@contextlib.contextmanager
def locked(disk: disks.Disk, folder: str) -> Iterator[None]:
    """Keeps other Fjords out of a directory.

    Raises:
        DirectoryInUseError: if one is in it.
    """
    path = os.path.join(folder, _LOCK)
    lock = disk.lock(path)
    try:
        disk.keep_owner(path, folder)  # so that the next one may be of who owns that
        yield
    finally:
        lock.release()


# -- space that is reserved, so that a full disk can be emptied -----------------------------------
#
# A file of zeros takes it.  When the disk is full while an item is taken, closed or given back, the
# file is cut and the change is tried again.  Nothing is added until it has its size again; the
# reserve is for removing only.


# A million items are opened and closed with ten bytes each; the journal of one queue takes as much
# when it is empty.
RESERVE_BYTES: Final = 16 * limits.MIB
# No file of a queue for Fjord, and a temporary one for Kestrel.
_NAME: Final = "~~reserve"


class Reserve:
    """The space that is kept back in one directory."""

    def __init__(self, disk: disks.Disk, folder: str, size: int) -> None:
        """Takes nothing yet; what an earlier process has left is there still.

        Args:
            disk: where it is.
            folder: of queues.
            size: in bytes, 0 = none.
        """
        self._disk = disk
        self._path = os.path.join(folder, _NAME)
        self._size = size
        self._is_whole: bool | None = None if size else True  # False: it was given

    def take(self) -> None:
        """Ensures that the space is kept back.

        Raises:
            OSError: if it is not there.
        """
        if self._is_whole:
            return
        with contextlib.closing(self._disk.open(self._path, writable=True, create=True)) as file:
            file.allocate(self._size)
        self._is_whole = True

    def give(self) -> bool:
        """Frees the space; False if that was done before."""
        if not self._size or self._is_whole is False or not self._disk.exists(self._path):
            return False
        with contextlib.closing(self._disk.open(self._path, writable=True)) as file:
            file.truncate(0)
        self._is_whole = False
        return True

    def close(self) -> None:
        """Ends: the directory is as Kestrel knows it."""
        if self._size and self._disk.exists(self._path):
            self._disk.remove(self._path)
