"""What a directory of Kestrel's holds, and whether it is whole: every op of every file, counted."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from fjord import limits
from fjord.kestrel import replay
from fjord.kestrel.reading import JournalFile, Missing, Options, QueueSurvey, UnreadableError
from fjord.kestrel.replay import Counting

# So much is read between two steps of the progress.
_STEP_BYTES: Final = 4 * limits.MIB

Progress = Callable[[int, int], None]


class Ending(enum.StrEnum):
    """How a file ends."""

    WHOLE = "whole"
    TORN = "torn"  # its last op is cut off, and it is the last file: the writer died
    DAMAGED = "damaged"  # what is behind some byte cannot be read
    CHANGED = "changed"  # it can be read, but it is not what was written
    MISSING = "missing"  # it was written, and is not there
    UNREADABLE = "unreadable"  # the disk, or the system, refuses to read it


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """One file that was read."""

    path: str
    bytes: int
    ops: int
    ending: Ending
    offset: int  # up to where it was read; behind it nothing counts
    skipped_bytes: int  # how much that is
    reason: str  # why, empty if it is whole

    @property
    def is_damaged(self) -> bool:
        return self.ending not in (Ending.WHOLE, Ending.TORN)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """One queue, and what its files make of it."""

    queue: str
    files: list[FileReport]
    items: int  # that wait
    bytes: int
    open_items: int  # that somebody had reserved
    open_bytes: int
    last_xid: int
    missed: int  # ops on what was not there: a file is missing or damaged, or Kestrel had a bug
    displaced: int  # open items whose xid was given to another one
    dead: list[str]  # files that a pack has taken the place of
    temporary: list[str]  # files that count for nothing

    @property
    def ops(self) -> int:
        return sum(file.ops for file in self.files)

    @property
    def is_damaged(self) -> bool:
        return any(file.is_damaged for file in self.files)


def verify(
    surveys: Iterable[QueueSurvey],
    progress: Progress = lambda done, total: None,
    options: Options | None = None,
) -> Iterator[QueueReport]:
    """Reads all files of these queues, and yields what there is of each.

    Raises:
        DirectoryError: if somebody renames files meanwhile.
    """
    listed = list(surveys)
    total = sum(one.size for one in listed)
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    for one in listed:
        yield _verify_queue(one, advance, options)


def _verify_queue(
    found: QueueSurvey, advance: Callable[[int], None], options: Options | None
) -> QueueReport:
    state = replay.counting()
    reports = [_read(file, state, advance, options) for file in found.files]
    reports += [_refused(error) for error in found.unreadable]
    reports += [_missing(lost) for lost in found.missing]
    return QueueReport(
        queue=found.queue,
        files=reports,
        items=len(state.queue),
        bytes=state.queue_bytes,
        open_items=len(state.open),
        open_bytes=state.open_bytes,
        last_xid=state.last_xid,
        missed=state.missed,
        displaced=state.displaced,
        dead=found.dead,
        temporary=found.temporary,
    )


def _read(
    file: JournalFile,
    state: Counting,
    advance: Callable[[int], None],
    options: Options | None,
) -> FileReport:
    ops = told = 0
    try:
        for batch in file.batches(options):
            state.apply_batch(batch)
            ops += batch.op_count
            if file.read_bytes >= told + _STEP_BYTES:
                advance(file.read_bytes - told)
                told = file.read_bytes
    except UnreadableError as error:
        return replace(_refused(error, file), ops=ops)
    finally:
        advance(file.size - told)
    broken = file.broken
    return FileReport(
        path=file.path,
        bytes=file.size,
        ops=ops,
        ending=_ending(file),
        offset=broken.offset if broken else file.size,
        skipped_bytes=file.skipped_bytes,
        reason=_reason(file),
    )


def _refused(error: UnreadableError, file: JournalFile | None = None) -> FileReport:
    """Tells of a file that the disk refused to read, from the beginning or from somewhere on."""
    size, offset = (file.size, file.read_bytes) if file else (0, 0)
    return FileReport(
        path=error.path,
        bytes=size,
        ops=0,
        ending=Ending.UNREADABLE,
        offset=offset,
        skipped_bytes=size - offset,
        reason=error.reason,
    )


def _missing(lost: Missing) -> FileReport:
    return FileReport(
        path=lost.path,
        bytes=0,
        ops=0,
        ending=Ending.MISSING,
        offset=0,
        skipped_bytes=lost.sum.size,
        reason=lost.reason,
    )


def _ending(file: JournalFile) -> Ending:
    if file.is_damaged:
        return Ending.DAMAGED
    if file.changed is not None:
        return Ending.CHANGED
    return Ending.TORN if file.is_torn else Ending.WHOLE


def _reason(file: JournalFile) -> str:
    if file.changed is not None and not file.is_damaged:
        return file.changed
    return file.broken.reason if file.broken else ""
