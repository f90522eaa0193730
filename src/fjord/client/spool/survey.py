"""Reports on a whole spool: waiting records, records set aside, alerts; and retrying those."""

from __future__ import annotations

import os
import shlex
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeVar

from fjord.client.spool import files
from fjord.client.spool.files import HEADER_BYTES, WAITING, Fate, Lines, Piece, SpoolFile
from fjord.client.spool.records import RecordRow, rows_of, stamp_of
from fjord.errors import DirectoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """The contents of one file."""

    watched: WatchedFile
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
    """Reads a whole file.

    Raises:
        OSError: if it cannot be opened.
    """
    with closing(SpoolFile(directory, name, is_writable=False)) as file:
        return _report(file)


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
    half = max(0, status.st_size - stop)
    waiting_bytes = 0 if files.is_aside(file.name) else waiting_bytes + half
    return FileReport(
        watched=WatchedFile(file.name, status, waiting_bytes, fates.total()),
        created_us=file.header.created_us if file.header else None,
        waiting=waiting,
        oldest_us=oldest_us,
        newest_us=newest_us,
        fates=fates,
        half=half,
    )


def walk(file: SpoolFile) -> Iterator[Lines]:
    """Yields the lines of a file, range by range.

    Half a line at the end may become one, except where nobody writes any more.
    """
    at, end = HEADER_BYTES, file.size()
    is_aside = files.is_aside(file.name)
    while at < end:
        found = files.stretch(file, at, end, is_closed=is_aside)
        yield found
        if found.stop == at:
            return
        at = found.stop


def record_of(file: SpoolFile, piece: Piece) -> bytes | Fate:
    """Returns the record of a line that was set aside, or why it is not one."""
    if piece.fate is not Fate.ASIDE:
        return piece.fate
    size = piece.end - piece.start - 1
    data = file.read(piece.start + 1, size + 1)
    # Without its newline it is torn: its writer got an error.
    end = b"\n" if data[size:] == b"\n" else b""
    found = files.parse(WAITING + data[:size] + end, 0, is_closed=True)
    if not found.pieces and len(found.records) == 1:
        return found.records[0]
    is_torn = [inner.fate for inner in found.pieces] == [Fate.TORN]
    return Fate.TORN if is_torn else Fate.DAMAGED


def outside(directory: str, name: str) -> WatchedFile | None:
    """Returns a file's status without reading it; None if it is gone.

    All that is in it waits, unless it holds nothing but what was set aside.
    """
    try:
        status = files.status_of(directory, name)
    except FileNotFoundError:
        return None  # it is sent, or has another name by now
    is_aside = files.is_aside(name)
    waiting_bytes = 0 if is_aside else max(0, status.st_size - HEADER_BYTES)
    return WatchedFile(name, status, waiting_bytes, int(is_aside))


# -------------------------------------------------------------------------------------------------
#
# Alerts: the rules of Snap's watchdog, and records that were set aside.
#
# A file that is erased and still open does not count, since nothing in it waits.


Progress = Callable[[int, int | None], None]
Seen = TypeVar("Seen")

RULES: Final = ("files", "aside", "unchanged", "owner", "writable", "size")
FILES_MAX: Final = 2
WAITING_BYTES_MAX: Final = 12 * 1000 * 1000
UNCHANGED_US_MAX: Final = 24 * 3600 * 1_000_000
_NAMES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A file, as the rules see it."""

    name: str
    status: os.stat_result
    waiting_bytes: int  # not yet sent
    set_aside: int = 0  # records that are never sent, as far as they were counted


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that needs attention."""

    severity: int  # 1 to 100
    rule: str  # one of RULES
    name: str  # of the file; empty = the spool
    text: str


def find(
    seen: Sequence[WatchedFile], directory: str, status: os.stat_result, now_us: int
) -> list[Alert]:
    """Returns the alerts for the files of a spool and for its directory, the most severe first.

    Both the forwarder and `fjord spool status` show them, so no text may ask whether the forwarder
    runs.
    """
    owner, path = status.st_uid, shlex.quote(directory)
    found = [alert for file in seen for alert in _of_file(file, path, owner, now_us)]
    waiting = sorted(file.name for file in seen if file.waiting_bytes)
    if len(waiting) > FILES_MAX:
        text = f"{len(waiting)} files wait ({_some(waiting)}): records are not sent, or sent late"
        found.append(Alert(90, "files", "", text))
    if status.st_mode & stat.S_IWOTH:
        text = f"everybody can write to the directory; `chmod o-w {path}`"
        found.append(Alert(60, "writable", "", text))
    return sorted(found, key=lambda alert: (-alert.severity, alert.name))


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _of_file(file: WatchedFile, path: str, owner: int, now_us: int) -> Iterator[Alert]:
    name, status = file.name, file.status
    if file.set_aside:
        see = f"`fjord spool dump {path} --aside`"
        yield Alert(80, "aside", name, f"{name}: has records that were set aside; see {see}")
    if file.waiting_bytes and status.st_mtime_ns // 1000 + UNCHANGED_US_MAX < now_us:
        yield Alert(76, "unchanged", name, f"{name}: waits, and was not modified for 24 hours")
    if status.st_uid != owner:
        text = f"{name}: belongs to user {status.st_uid}, and the spool to {owner}"
        yield Alert(73, "owner", name, text)
    if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:  # a link's mode is moot
        yield Alert(60, "writable", name, f"{name}: everybody can write to it; `chmod o-w` it")
    if file.waiting_bytes > WAITING_BYTES_MAX:
        size = file.waiting_bytes / 1_000_000
        yield Alert(60, "size", name, f"{name}: {size:,.0f} MB wait; is the daemon fast enough?")


# -------------------------------------------------------------------------------------------------
#
# Retrying records that were set aside: their files get a name that the forwarder sends.
#
#     aside-A.spool, of A:  "!" to "@" -> header of B -> retry-B.spool
#                                      sync           sync           sync
#
# The daemon's offset of A says that all of it has arrived; so the file becomes B, which the daemon
# does not know.  After a crash in between, the next try has the same result:
#
# - Of A, with some lines changed: none of it was sent; the others are changed too.
# - Of B, with the old name: all lines were changed.  After a power cut it may be that the new name
#   was lost, and that the forwarder had seen it.  So the file stays B, and no line is changed any
#   more: what has arrived is known by its number, and what was refused again is marked.


NOTHING_WHOLE = "nothing in it can be sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """The result for one file."""

    name: str  # before
    new_name: str = ""  # empty: it stays
    records: int = 0  # that are sent again
    left: int = 0  # pieces that are torn or damaged
    why: str = ""  # it stays
    is_readable: bool = True


def unreadable(name: str, error: OSError) -> Retried:
    return Retried(name=name, why=f"it cannot be read: {reason_of(error)}", is_readable=False)


def retry(directory: str, now_us: int) -> Iterator[Retried]:
    """Sends intact records that were set aside again; yields a result for each file.

    Records that were set aside in a file that is still written to are not among them: their turn
    is when all others of the file are sent.

    Raises:
        OSError: if a file cannot be written to.
    """
    for name in files.aside_names(directory):
        try:
            file = SpoolFile(directory, name)
        except FileNotFoundError:
            continue  # somebody else was faster
        except OSError as error:
            yield unreadable(name, error)
            continue
        with closing(file):
            # Another process has renamed it.
            if file.try_lock() and file.is_named():
                yield _retry(file, now_us)


def _retry(file: SpoolFile, now_us: int) -> Retried:
    name, header = file.name, file.header
    waiting = aside = pieces = 0
    try:
        for found in walk(file):
            waiting += len(found.records)
            pieces += len(found.pieces)
            aside += len(_whole(file, found))
    except OSError as error:
        return unreadable(name, error)
    left = pieces - aside
    if header is None or files.named("aside", header.identity) == name:
        if not waiting and not aside:
            return Retried(name=name, left=left, why=NOTHING_WHOLE)
        for found in walk(file):  # once more, since a file may hold millions
            for piece in _whole(file, found):
                file.put_status(piece.start, WAITING)
        waiting += aside
        file.sync()
        header = files.new_header(now_us)
        file.put_header(header)
        file.sync()
    file.rename(files.named("retry", header.identity))
    return Retried(name=name, new_name=file.name, records=waiting, left=left)


def _whole(file: SpoolFile, found: Lines) -> list[Piece]:
    """Returns the intact lines that were set aside."""
    return [piece for piece in found.pieces if not isinstance(record_of(file, piece), Fate)]


def still_open(directory: str) -> Iterator[Retried]:
    """Yields files with records that were set aside, whose other records are not sent yet.

    Raises:
        DirectoryError: if there is no such directory.
    """

    def failed(name: str, error: OSError) -> list[Retried]:
        return [] if files.is_aside(name) else [unreadable(name, error)]  # else `retry` reports it

    return _in_files(directory, _still_open, failed)


def _still_open(file: SpoolFile) -> Iterator[Retried]:
    left = 0 if files.is_aside(file.name) else sum(len(found.pieces) for found in walk(file))
    if left:
        why = "a writer has it open"
        if file.try_lock():
            file.unlock()
            why = "it is not fully sent, or its period is not over"
        yield Retried(name=file.name, left=left, why=why)


# -- a spool as a whole ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatus:
    """A spool as a whole."""

    directory: str
    is_forwarded: bool
    reports: list[FileReport]
    unreadable: dict[str, str]  # file: why
    alerts: list[Alert]
    now_us: int

    @property
    def beheaded(self) -> list[str]:
        """Files whose first line is damaged."""
        return [report.watched.name for report in self.reports if report.created_us is None]

    @property
    def is_well(self) -> bool:
        return not self.alerts and not self.unreadable and not self.beheaded

    @property
    def waiting(self) -> int:
        return sum(report.waiting for report in self.reports)

    @property
    def waiting_bytes(self) -> int:
        return sum(report.watched.waiting_bytes for report in self.reports)

    @property
    def oldest_us(self) -> int:
        return min((report.oldest_us for report in self.reports if report.oldest_us), default=0)

    @property
    def set_aside(self) -> int:
        return sum(report.watched.set_aside for report in self.reports)


def status(directory: str, now_us: int, progress: Progress) -> SpoolStatus:
    """Reads all files of a spool.

    Raises:
        DirectoryError: if there is no such directory.
    """
    names = names_of(directory)
    reports: list[FileReport] = []
    unreadable: dict[str, str] = {}
    for number, name in enumerate(names):
        progress(number, len(names))
        try:
            reports.append(report(directory, name))
        except FileNotFoundError:
            continue  # it was sent meanwhile
        except OSError as error:
            unreadable[name] = reason_of(error)
    unread = [outside(directory, name) for name in unreadable]
    seen = [report.watched for report in reports] + [one for one in unread if one is not None]
    return SpoolStatus(
        directory=directory,
        is_forwarded=files.is_forwarded(directory),
        reports=reports,
        unreadable=unreadable,
        alerts=find(seen, directory, os.stat(directory), now_us),
        now_us=now_us,
    )


def names_of(directory: str) -> list[str]:
    """Returns the files of a spool, those with records set aside last.

    Raises:
        DirectoryError: if there is no such directory.
    """
    try:
        return files.waiting_names(directory) + files.aside_names(directory)
    except OSError as error:
        raise DirectoryError(f"{directory} is not a spool: {error.strerror}") from error


def _in_files(
    directory: str,
    look: Callable[[SpoolFile], Iterable[Seen]],
    failed: Callable[[str, OSError], Iterable[Seen]],
) -> Iterator[Seen]:
    """Yields the results of `look` for each file, then those of `failed` for unreadable ones.

    Raises:
        DirectoryError: if there is no such directory.
    """
    last: list[Seen] = []
    for name in names_of(directory):
        try:
            with closing(SpoolFile(directory, name, is_writable=False)) as file:
                yield from look(file)
        except FileNotFoundError:
            continue  # it was sent meanwhile
        except OSError as error:
            last.extend(failed(name, error))
    yield from last


def reason_of(error: OSError) -> str:
    return error.strerror or str(error)


# -- row by row ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRow:
    """One row of a record, or an unreadable piece of a file."""

    file: str
    offset: int
    row: RecordRow | None = None
    problem: str = ""  # why there is no row
    data: bytes = b""  # the piece then


def dump(
    directory: str, *, is_aside: bool, failed: Callable[[str, OSError], None]
) -> Iterator[DumpedRow]:
    """Yields waiting records, or those set aside, row by row.

    Args:
        directory: the spool.
        is_aside: yield what was set aside.
        failed: called for each file that cannot be read.

    Raises:
        DirectoryError: if there is no such directory.
    """

    def note(name: str, error: OSError) -> Iterable[DumpedRow]:
        failed(name, error)
        return ()

    return _in_files(directory, lambda file: _dump_file(file, is_aside=is_aside), note)


def _dump_file(file: SpoolFile, *, is_aside: bool) -> Iterator[DumpedRow]:
    if files.is_aside(file.name) and not is_aside:
        return
    for found in walk(file):
        if not is_aside:
            for start, record in zip(found.starts, found.records, strict=True):
                yield from _dumped(file.name, start, record)
            continue
        for piece in found.pieces:
            record_or_fate = record_of(file, piece)
            if isinstance(record_or_fate, Fate):
                data = file.read(piece.start, piece.end - piece.start)
                problem = record_or_fate.value
                yield DumpedRow(file=file.name, offset=piece.start, problem=problem, data=data)
            else:
                yield from _dumped(file.name, piece.start, record_or_fate)


def _dumped(name: str, offset: int, record: bytes) -> Iterator[DumpedRow]:
    try:
        for row in rows_of(record):
            yield DumpedRow(file=name, offset=offset, row=row)
    except ValueError as error:
        yield DumpedRow(file=name, offset=offset, problem=f"unknown: {error}", data=record)


# -- line by line ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """The result of checking one file."""

    file: str
    size: int
    waiting: int = 0  # whole records that are to be sent
    set_aside: int = 0  # whole records that were refused; `fjord spool retry` sends them again
    torn: int = 0  # whose writers died, or were told of an error
    damaged: int = 0  # pieces that are no lines, and the first line
    unknown: int = 0  # whole lines of which this program cannot read the record
    half_bytes: int = 0  # at the end: a line that is being written, or torn
    problem: str = ""  # why it cannot be read

    @property
    def is_damaged(self) -> bool:
        return self.damaged + self.unknown > 0


def verify(directory: str, progress: Progress) -> Iterator[FileCheck]:
    """Checks every line of every file; those that cannot be read come last.

    Raises:
        DirectoryError: if there is no such directory.
    """
    before = 0

    def look(file: SpoolFile) -> Iterator[FileCheck]:
        nonlocal before
        checked = _verify(file, lambda done: progress(before + done, None))
        before += checked.size
        yield checked

    def failed(name: str, error: OSError) -> list[FileCheck]:
        return [FileCheck(file=name, size=0, problem=reason_of(error))]

    return _in_files(directory, look, failed)


def _verify(file: SpoolFile, show: Callable[[int], None]) -> FileCheck:
    counts = Counter(damaged=int(file.header is None))
    size = file.size()
    stop = min(files.HEADER_BYTES, size)
    for found in walk(file):
        counts.update(_verdict(record, "waiting") for record in found.records)
        counts.update(_verdict(record_of(file, piece), "set_aside") for piece in found.pieces)
        stop = found.stop
        show(stop)
    half_bytes = max(0, size - stop)
    return FileCheck(file=file.name, size=size, half_bytes=half_bytes, problem="", **counts)


def _verdict(found: bytes | Fate, whole: str) -> str:
    """Returns the field of `FileCheck` that counts a record: `whole` if it can be read."""
    if isinstance(found, Fate):
        return str(found.value)
    try:
        rows_of(found)
    except ValueError:
        return "unknown"
    return whole
