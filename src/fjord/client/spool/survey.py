"""A look at a spool as a whole: what waits in each file, since when, and what was set aside."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fjord.client.spool import files, lines, reading
from fjord.client.spool.alerts import Place, Watched
from fjord.client.spool.files import HEADER_BYTES, SpoolFile
from fjord.client.spool.lines import WAITING, Fate, Lines, Piece
from fjord.client.spool.record import stamp_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What is in one file."""

    watched: Watched
    size: int
    created_us: int | None  # None: its first line is damaged
    waiting: int  # records
    oldest_us: int  # of those that wait; 0 = none does
    newest_us: int
    fates: Counter[Fate]  # what is never sent, and half a line at the end
    half: int  # bytes at the end that may become a line

    @property
    def is_damaged(self) -> bool:
        return self.created_us is None or self.fates[Fate.DAMAGED] > 0


def report(directory: str, name: str) -> FileReport:
    """Reads a file from its beginning to its end.

    Raises:
        OSError: if it cannot be opened.
    """
    file = SpoolFile(directory, name, is_writable=False)
    try:
        return _report(file)
    finally:
        file.close()


def _report(file: SpoolFile) -> FileReport:
    waiting = waiting_bytes = newest_us = 0
    oldest_us = 0
    fates: Counter[Fate] = Counter()
    stop = HEADER_BYTES
    for found in walk(file):
        stamps = [stamp for stamp in map(stamp_of, found.records) if stamp]
        waiting += len(found.records)
        waiting_bytes += sum(found.ends) - sum(found.starts)
        if stamps:
            oldest_us = min(oldest_us or stamps[0], *stamps)
            newest_us = max(newest_us, *stamps)
        fates.update(piece.fate for piece in found.pieces)
        stop = found.stop
    status = file.stat()
    is_aside = files.is_aside(file.name)
    half = max(0, status.st_size - stop)
    return FileReport(
        watched=Watched(
            name=file.name,
            waiting_bytes=0 if is_aside else waiting_bytes + half,
            owner=status.st_uid,
            mode=status.st_mode,
            modified_us=status.st_mtime_ns // 1000,
            set_aside=fates.total(),
        ),
        size=status.st_size,
        created_us=file.header.created_us if file.header else None,
        waiting=waiting,
        oldest_us=oldest_us,
        newest_us=newest_us,
        fates=fates,
        half=half,
    )


def walk(file: SpoolFile) -> Iterator[Lines]:
    """Yields what is in a file, stretch by stretch.

    Half a line at the end may become one, except where nobody writes any more.
    """
    at, end = HEADER_BYTES, file.size()
    is_aside = files.is_aside(file.name)
    while at < end:
        found = reading.stretch(file, at, end, is_closed=is_aside)
        yield found
        if found.stop == at:
            return
        at = found.stop


def record_of(file: SpoolFile, piece: Piece) -> bytes | Fate:
    """Returns the record of a line that was set aside; what is wrong with it, if it is none."""
    if piece.fate is not Fate.ASIDE:
        return piece.fate
    size = piece.end - piece.start - 1
    data = file.read(piece.start + 1, size + 1)
    # Without its newline it is torn: its writer was told of an error.
    end = b"\n" if data[size:] == b"\n" else b""
    found = lines.parse(WAITING + data[:size] + end, 0, is_closed=True)
    if not found.pieces and len(found.records) == 1:
        return found.records[0]
    is_torn = [inner.fate for inner in found.pieces] == [Fate.TORN]
    return Fate.TORN if is_torn else Fate.DAMAGED


def place(directory: str) -> Place:
    """Returns what can be said of the directory itself."""
    status = os.stat(directory)
    return Place(path=directory, owner=status.st_uid, mode=status.st_mode)


def outside(directory: str, name: str) -> Watched | None:
    """Returns what can be said of a file without a look inside; None if it is gone.

    All that is in it waits, unless it holds nothing but what was set aside.
    """
    try:
        status = files.status_of(directory, name)
    except FileNotFoundError:
        return None  # it is sent, or has another name by now
    is_aside = files.is_aside(name)
    return Watched(
        name=name,
        waiting_bytes=0 if is_aside else max(0, status.st_size - HEADER_BYTES),
        owner=status.st_uid,
        mode=status.st_mode,
        modified_us=status.st_mtime_ns // 1000,
        set_aside=int(is_aside),
    )


def aside_files(directory: str) -> list[Watched]:
    """Returns the files with nothing but records that were set aside, without a look inside."""
    found = (outside(directory, name) for name in files.aside_names(directory))
    return [one for one in found if one is not None]
