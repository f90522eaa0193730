"""Exporting: values of a table become items of a queue, all of them or none.

    write `cars~~0`, sync it  ->  rename it to `cars`  ->  sync the directory

If the queue is there, its current file gets a number first, so that the new one stands behind what
it has.  A crash between any two of these leaves the queue as it was; a file that was not finished
counts for nothing, and is written over by the next export or removed by who opens the queue.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from fjord import disk as disks
from fjord import values
from fjord.errors import (
    CorruptionError,
    DirectoryError,
    DurabilityError,
    FjordError,
    UsageError,
)
from fjord.kestrel import codec, collection, inspect, names, reading
from fjord.kestrel.codec import Dialect
from fjord.kestrel.journal import Journal
from fjord.kestrel.reading import Sum
from fjord.values import Type

# Of a file that is being written; other temporary files of a queue have larger ones.
_NUMBER: Final = 0


def encoded(
    types: bytes, data: Sequence[bytes], added_us: Sequence[int], expiries_us: Sequence[int]
) -> bytes:
    """Returns the ops that add values to a queue; an expiry of 0 means never.

    Bytes and text are items as they are, other values as they are written; None is empty.
    """
    return b"".join(
        codec.encode(
            codec.addx(
                item_data(type_, one),
                add_ms=added // 1000,
                expiry_ms=-(-expiry // 1000),  # rounded up: 0 would be never
            ),
            Dialect.V24,
        )
        for type_, one, added, expiry in zip(types, data, added_us, expiries_us, strict=True)
    )


def item_data(type_: int, data: bytes) -> bytes:
    if type_ in (Type.BUFFER, Type.STRING):
        return data
    value = values.decode(type_, data)
    return b"" if value is None else str(value).encode()


def write(
    disk: disks.Disk,
    folder: str,
    queue: str,
    chunks: Iterable[bytes],
    *,
    appends: bool,
    now_ms: Callable[[], int],
) -> int:
    """Makes a queue of ops that add items, durably; returns how many bytes they have.

    Args:
        disk: where it is.
        folder: the directory; it is made if it is not there.
        queue: its name.
        chunks: whole ops, some at a time.
        appends: True: items that are there stay before the new ones; False: there may be none.
        now_ms: the time, from which a file that is there has its number.

    Raises:
        UsageError: if no queue can have this name.
        DirectoryInUseError: if a Fjord serves the directory.
        DirectoryError: if it cannot be read or written, or there is no space.
        FjordError: if the queue has items, or is damaged.
        DurabilityError: if the disk failed.
    """
    problem = names.queue_problem(queue)
    if problem is not None:
        raise UsageError(problem)
    try:
        if not disk.exists(folder):
            disk.make_directory(folder)
            disk.sync_directory(os.path.dirname(os.path.abspath(folder)))
        with collection.locked(disk, folder):
            _check(disk, folder, queue, appends=appends)
            return _write(disk, folder, queue, chunks, now_ms)
    except OSError as error:
        raise DirectoryError(
            f"{queue} was not exported: {error.strerror}; {folder} is as it was"
        ) from error


def _check(disk: disks.Disk, folder: str, queue: str, *, appends: bool) -> None:
    """Makes sure that a queue is not there, or is whole and may get items."""
    with contextlib.closing(inspect.read_contents(disk, folder, queue, reading.Options())) as found:
        try:
            found.check()
        except CorruptionError as error:
            raise FjordError(
                f"{error.path} is damaged; `fjord kestrel verify` says how, and `fjord kestrel "
                "pack` keeps what cannot be read apart"
            ) from error
        if found.count and not appends:
            raise FjordError(
                f"{folder} has a queue {queue} with {found.count} items; --append adds to it, "
                "--queue names another one"
            )


def _write(
    disk: disks.Disk,
    folder: str,
    queue: str,
    chunks: Iterable[bytes],
    now_ms: Callable[[], int],
) -> int:
    journal = _opened(disk, folder, queue, now_ms)
    path = os.path.join(folder, names.temporary(queue, _NUMBER))
    size = crc = 0
    try:
        with contextlib.closing(disk.open(path, writable=True, create=True)) as file:
            file.truncate(0)
            for chunk in chunks:
                file.write(size, chunk)
                size += len(chunk)
                crc = reading.add_to_crc(crc, chunk)
            file.sync()
        if journal is not None and journal.current.size:
            journal.rotate()
        _put_sum(disk, folder, queue, Sum(size, crc, disk.identity(path) or "-"))
        disk.rename(path, os.path.join(folder, names.current(queue)))
    except BaseException:
        with contextlib.suppress(OSError):
            disk.remove(path)
        raise
    finally:
        if journal is not None:
            journal.close()
    try:
        disk.sync_directory(folder)
    except OSError as error:
        text = f"{queue} was exported, but may be gone after a power cut: {error.strerror}"
        raise DurabilityError(text) from error
    return size


def _put_sum(disk: disks.Disk, folder: str, queue: str, new: Sum) -> None:
    """Tells what the current file will be, before it has its name."""
    known = reading.read_sums(disk, folder, queue)
    known.pop(reading.CURRENT, None)
    if new.size:
        known[reading.CURRENT] = new
    reading.put_sums(disk, folder, queue, known)


def _opened(disk: disks.Disk, folder: str, queue: str, now_ms: Callable[[], int]) -> Journal | None:
    """Returns the journal of a queue that is there, ended where its last whole op ends."""
    if queue not in reading.queues(disk, folder):
        return None
    journal = Journal(disk, folder, queue, now_ms=now_ms)
    for _ in journal.replay(now_ms()):
        pass
    journal.begin()
    return journal
