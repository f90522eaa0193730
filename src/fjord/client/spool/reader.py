"""A spool file on its way to the daemon: read, in flight, confirmed.

    header | erased ... | in flight ... | not yet read ... | perhaps a partial line
                        ^ done          ^ read

`FileReader` knows the file but not the network.  It hands out a `Load`: commands, and the
range of the file that they come from.  The number of a load, which the daemon keeps,
is the offset of its end.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fjord import limits
from fjord.client.spool import files, records, survey
from fjord.client.spool.files import ASIDE, Fate, Header, Lines, Piece, SpoolFile
from fjord.client.spool.records import ROWS_MAX, Gathering
from fjord.client.spool.survey import WatchedFile
from fjord.clock import Clock
from fjord.commands import Command

UNKNOWN: Final = -1  # the number of a file of which the daemon knows nothing


@dataclass(frozen=True, slots=True)
class Load:
    """The contents of one batch."""

    starts: Sequence[int]  # of the lines that it is made of
    ends: Sequence[int]
    records: Sequence[bytes]
    commands: Sequence[Command]

    @property
    def start(self) -> int:
        return self.starts[0]

    @property
    def end(self) -> int:
        return self.ends[-1]


class FileReader:
    """A file that is being sent."""

    def __init__(self, file: SpoolFile) -> None:
        assert file.header is not None
        self.file = file
        self.header = file.header
        self.known: int | None = None  # the number that the daemon has; None = not asked yet
        self.sent = UNKNOWN  # the number that it has when all that is under way is there
        self.done = _skip_erased(file)  # all before is confirmed, erased or set aside
        self.limit: int | None = None  # nothing behind it is sent for now; None = all may be
        #: Pieces that are never sent, and stay in the file.
        self.set_aside: Counter[Fate] = Counter()
        self.told: Counter[Fate] = Counter()  # what of that is logged
        self._noted = 0  # pieces before this offset are counted
        self._lines = Lines(stop=self.done)  # what was found, and not handed out yet
        self._next = 0  # of its lines
        self._largest = 0  # the file ever was
        self._unerased: OSError | None = None  # why something that has arrived is still there
        self._seen = 0  # how long the file was when it was last read

    @property
    def writer(self) -> str:
        """The file's name for the daemon."""
        return f"spool:{self.header.identity.hex()}"

    def is_cut(self) -> bool:
        """Says whether somebody has truncated the file."""
        return self.file.size() < max(self.done, self._largest)

    def renew(self, now_us: int) -> None:
        """Gives the file a new identity, unknown to the daemon."""
        self.header = renew(self.file, now_us)
        self.done = files.HEADER_BYTES
        self._largest = 0

    # -- the daemon's offset ----------------------------------------------------------------------

    def align(self, known: int) -> None:
        """Notes the daemon's offset: everything before it has arrived."""
        self.known = known
        end = min(known, self.file.size())
        while self.done < end:
            found = files.stretch(self.file, self.done, end, is_closed=True)
            kept = [piece for piece in found.pieces if piece.fate is Fate.ASIDE]
            self._note(kept)
            # All else has arrived, also what was half erased when the power went.  What is blank
            # is left alone: it may have no place on the disk, and the disk no other.
            gone = [*zip(found.starts, found.ends, strict=True)]
            gone += [
                (piece.start, piece.end) for piece in found.pieces if piece.fate is not Fate.ASIDE
            ]
            self._erase(sorted(gone))
            self.done = found.stop
        self.rewind()

    def rewind(self) -> None:
        """Goes back to the first record that is not confirmed."""
        self.sent = UNKNOWN if self.known is None else self.known
        self._lines, self._next, self._seen = Lines(stop=self.done), 0, 0

    # -- sending ----------------------------------------------------------------------------------

    def next_load(self, now_us: int, *, is_closed: bool = False) -> Load | None:
        """Returns the next load; None if there is none at the moment.

        Args:
            is_closed: nobody writes to the file any more, so half a line will never be whole.
        """
        while self._next < len(self._lines.records) or self._look(is_closed=is_closed):
            found, first = self._lines, self._next
            batch = Gathering(now_us)
            added = batch.add_all(found.records[first : first + ROWS_MAX])
            self._next += max(1, added)
            if added:
                return self._hand_out(slice(first, self._next), batch)
            if found.records:
                # Whole, and nothing that this program knows; another one may.
                self._put_aside(found.starts[first], found.ends[first], Fate.DAMAGED)
        return None

    def has_more(self) -> bool:
        """Says whether there is anything that was not looked at yet."""
        is_longer = self.file.size() > self._seen
        return self._next < len(self._lines.records) or is_longer or self.is_cut()

    def oldest_us(self) -> int:
        """Returns when the first waiting record was written; 0 if unknown."""
        found = files.parse(self.file.read(self.done, files.CHUNK_BYTES), self.done)
        return records.stamp_of(found.records[0]) if found.records else 0

    def waiting_bytes(self) -> int:
        return max(0, self.file.size() - self.done)

    def watched(self) -> WatchedFile:
        file, set_aside = self.file, self.set_aside.total()
        return WatchedFile(file.name, file.stat(), self.waiting_bytes(), set_aside)

    def _hand_out(self, part: slice, batch: Gathering) -> Load:
        found = self._lines
        starts, ends = found.starts[part], found.ends[part]
        return Load(starts, ends, found.records[part], batch.commands())

    # -- results ----------------------------------------------------------------------------------

    def confirm(self, load: Load) -> None:
        """Notes that the daemon has a load durably."""
        self.known = load.end
        self._erase(zip(load.starts, load.ends, strict=True))
        self.done = load.end

    def refuse_like(self, load: Load, command: Command) -> int:
        """The daemon will never take what asks its table for the same; returns how many they are.

        Others of that table may be what it takes.
        """
        target = type(command), getattr(command, "table", "")
        refused = [
            (start, end)
            for start, end, one in zip(load.starts, load.ends, load.records, strict=True)
            if records.target_of(one) == target
        ]
        for start, end in refused:
            self.file.put_status(start, ASIDE)
            self._noted = max(self._noted, end)
        self.file.sync()
        self.set_aside[Fate.ASIDE] += len(refused)
        return len(refused)

    def refuse(self, load: Load) -> None:
        """Sets aside the only record of a load, which the daemon refuses for good."""
        self._put_aside(load.start, load.end, Fate.ASIDE)
        self.done = load.end

    def erase_again(self) -> None:
        """Erases everything that has arrived, again if that failed before.

        Raises:
            OSError: if that still fails.
        """
        if self._unerased is None or self.known is None:
            return
        self.done, self._unerased = files.HEADER_BYTES, None
        self.align(self.known)
        if self._unerased is not None:
            raise self._unerased

    def rest(self) -> None:
        """Notes that nothing is in flight, so everything handed out is done."""
        if self._next >= len(self._lines.records):
            self.done = max(self.done, self._lines.stop)

    def _put_aside(self, start: int, end: int, fate: Fate) -> None:
        self.file.put_status(start, ASIDE)
        self.file.sync()  # else a power cut takes the mark, and what follows has arrived by then
        self.set_aside[fate] += 1
        self._noted = max(self._noted, end)  # where it is met again, it is counted already

    def _erase(self, stretches: Iterable[tuple[int, int]]) -> None:
        """Erases ordered ranges, adjacent ones together."""
        start = end = 0
        for begin, after in stretches:
            if begin != end:
                self._erase_one(start, end)
                start = begin
            end = after
        self._erase_one(start, end)

    def _erase_one(self, start: int, end: int) -> None:
        """Erases what has arrived; where that fails, the daemon still knows that it has.

        Where the file was cut meanwhile, something else may be in that place.
        """
        if start < end <= self.file.size():
            try:
                self.file.erase(start, end)
            except OSError as error:
                self._unerased = error

    # -- reading ----------------------------------------------------------------------------------

    def _look(self, *, is_closed: bool) -> bool:
        """Reads more; False if there are no more complete lines."""
        start, self._seen = self._lines.stop, self.file.size()
        if self.limit is not None and not is_closed:
            self._seen = max(start, min(self._seen, self.limit))
        self._largest = max(self._largest, self._seen)
        found = files.stretch(self.file, start, self._seen, is_closed=is_closed)
        self._note(found.pieces)
        self._lines, self._next = found, 0
        return found.stop > start

    def _note(self, pieces: Iterable[Piece]) -> None:
        """Counts pieces that are never sent, and marks new ones."""
        is_marked = False
        for piece in pieces:
            if piece.fate is not Fate.ASIDE:
                self.file.put_status(piece.start, ASIDE)
                is_marked = True
            if piece.start >= self._noted:
                self.set_aside[piece.fate] += 1
                self._noted = piece.end
        if is_marked:
            self.file.sync()  # as for what is refused


def renew(file: SpoolFile, now_us: int) -> Header:
    """Gives a file a new header.

    Where the file was cut to nothing, records are in the place of the header.  They are moved to a
    file of their own first; whoever is killed in between moves them twice.
    """
    found = files.parse(file.read(0, files.LINE_BYTES_MAX), 0)
    moved = [
        (at, end)
        for at, end in zip(found.starts, found.ends, strict=True)
        if at < files.HEADER_BYTES
    ]
    if moved:
        other = files.new_header(now_us)
        data = b"".join([file.read(start, end - start) for start, end in moved])
        files.make(file.directory, files.named("retry", other.identity), other, data)
    header = files.new_header(now_us)
    file.put_header(header)
    if moved:
        file.erase(files.HEADER_BYTES, moved[-1][1])
    file.sync()
    return header


def _skip_erased(file: SpoolFile) -> int:
    """Returns where the first data is that is not erased, or the end."""
    at = files.HEADER_BYTES
    while True:
        at = file.next_data(at)
        data = file.read(at, files.CHUNK_BYTES)
        left = len(data.lstrip(files.BLANK))
        at += len(data) - left
        if left or not data:
            return at


def halves(load: Load, now_us: int) -> list[Load]:
    """Returns the two halves of a load of several records."""
    middle = len(load.records) // 2
    return [as_of(load, now_us, part) for part in (slice(middle), slice(middle, None))]


def as_of(load: Load, now_us: int, part: slice = slice(None)) -> Load:
    """Returns a load, or a part of it, without records that have expired."""
    records = load.records[part]
    batch = Gathering(now_us)
    added = batch.add_all(records)
    assert added == len(records), "a part does not fit where the whole did"
    return Load(load.starts[part], load.ends[part], records, batch.commands())


# -- the open files of a forwarder: a bounded number of the oldest ones --------------------------
#
# There may be any number of files if the daemon was down for long.  Those after the first few
# are opened when it is their turn; until then only their dates are known.


_log = logging.getLogger(__name__)


class OpenFiles:
    """The files of a spool, and those that are open."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._open: dict[str, FileReader] = {}  # by the name of the file
        self._closed: dict[str, int] = {}  # when those were begun whose turn has not come
        self._resting: dict[str, int] = {}  # how large those were that had nothing more
        #: Names of files that cannot be opened or read, and why.
        self.unopened: dict[str, str] = {}

    def discover(self) -> None:
        """Reads the directory, and opens the oldest new files.

        Those to which a writer has given another name are new.
        """
        for source in list(self._open.values()):
            if source.file.is_moved():
                self.drop(source)
        names = set(files.waiting_names(self._directory))
        self.unopened = {name: why for name, why in self.unopened.items() if name in names}
        self._closed = {name: at for name, at in self._closed.items() if name in names}
        self._resting = {name: size for name, size in self._resting.items() if name in names}
        for name in names - self._open.keys() - self._closed.keys():
            self._note(name)
        closed = sorted(self._closed, key=self._closed.__getitem__)
        for name in closed:
            if not self._rests(name) and self._has_room():
                self._take(name)
        # Files that had no more data are checked again if there is room: they may be gone.
        for name in closed[: max(0, limits.SPOOL_FILES_OPEN_MAX - len(self._open))]:
            if name in self._resting:
                self._take(name)

    def in_order(self) -> list[FileReader]:
        """Returns the open files, the oldest first."""
        return sorted(self._open.values(), key=lambda source: source.header.created_us)

    def has_more(self) -> bool:
        """Says whether there is anything that was not looked at yet."""
        known = self._open.keys() | self._closed.keys() | self.unopened.keys()
        return (
            not known.issuperset(files.waiting_names(self._directory))
            or any(source.has_more() for source in self._open.values())
            or any(not self._rests(name) for name in self._closed)
        )

    def begin_again(self) -> None:
        """Forgets the daemon's offsets, which are asked for again file by file."""
        for source in self._open.values():
            source.known = None
            source.rewind()

    def drop(self, source: FileReader) -> None:
        """Closes a file that is gone or renamed."""
        self._open = {name: one for name, one in self._open.items() if one is not source}
        source.file.close()

    def fail(self, source: FileReader, error: OSError) -> None:
        """Closes a file that cannot be read or written; it is retried later."""
        name = source.file.name
        self.drop(source)
        self._tell(name, error)

    def close(self) -> None:
        for source in list(self._open.values()):
            self.drop(source)

    def watched(self) -> list[WatchedFile]:
        """Returns all files for the alert rules."""
        closed = [name for name in self._closed if name not in self._resting]
        names = (*closed, *self.unopened, *files.aside_names(self._directory))
        outside = (survey.outside(self._directory, name) for name in names)
        opened = [source.watched() for source in self._open.values()]
        return opened + [one for one in outside if one is not None]

    def oldest_us(self) -> int:
        """Returns when the oldest waiting record was written; 0 if none waits."""
        for source in self.in_order():
            if source.waiting_bytes():
                return source.oldest_us()
        return 0

    # -- inside -----------------------------------------------------------------------------------

    def _note(self, name: str) -> None:
        """Reads when a file was begun."""
        file = self._open_file(name, is_writable=False)
        if file is not None:
            self._closed[name] = file.header.created_us if file.header else 0
            file.close()

    def _open_file(self, name: str, *, is_writable: bool) -> SpoolFile | None:
        try:
            return SpoolFile(self._directory, name, is_writable=is_writable)
        except FileNotFoundError:
            return None  # it has another name by now
        except OSError as error:
            self._tell(name, error)
            return None

    def _has_room(self) -> bool:
        """Makes room, if needed, by closing a file without more data."""
        if len(self._open) < limits.SPOOL_FILES_OPEN_MAX:
            return True
        for source in self.in_order():
            if not source.has_more() and source.known is not None:
                name, size = source.file.name, source.file.size()
                self.drop(source)
                self._closed[name], self._resting[name] = source.header.created_us, size
                return True
        return False

    def _rests(self, name: str) -> bool:
        """Says whether a file has no more data than when it was closed."""
        size = self._resting.get(name)
        if size is None:
            return False
        try:
            return files.status_of(self._directory, name).st_size == size
        except FileNotFoundError:
            return True  # it has another name by now, or none

    def _take(self, name: str) -> None:
        self._closed.pop(name, None)
        self._resting.pop(name, None)
        file = self._open_file(name, is_writable=True)
        if file is None:
            return
        if file.header is None:
            self._mend(file)
        try:
            self._open[name] = FileReader(file)
        except OSError as error:
            file.close()
            self._tell(name, error)

    def _tell(self, name: str, error: OSError) -> None:
        why = survey.reason_of(error)
        if self.unopened.get(name) != why:
            self.unopened[name] = why
            _log.error("%s cannot be opened or read: %s", name, why)

    def _mend(self, file: SpoolFile) -> None:
        """Replaces a damaged first line, so that the rest is sent."""
        _log.error(
            "the first line of %s is damaged, and was replaced; records that were in flight may "
            "arrive twice; it was %r", file.path, file.read(0, files.HEADER_BYTES),
        )  # fmt: skip
        renew(file, self._clock.wall_us())
