"""The files of a spool that a forwarder has open: the oldest ones, and not too many.

There may be any number of files, where the daemon was away for long.  Those behind the first few
are opened when their turn has come; until then only the date of each is known.
"""

from __future__ import annotations

import logging

from fjord import limits
from fjord.client.spool import files, reading, survey
from fjord.client.spool.alerts import Watched
from fjord.client.spool.files import SpoolFile
from fjord.client.spool.reading import Source
from fjord.clock import Clock

_log = logging.getLogger(__name__)


class Sources:
    """Which files there are, and those that are open."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._open: dict[str, Source] = {}  # by the name of the file
        self._closed: dict[str, int] = {}  # when those were begun whose turn has not come
        self._resting: dict[str, int] = {}  # how large those were that had nothing more
        #: Names of files that cannot be opened or read, and why.
        self.unopened: dict[str, str] = {}

    def discover(self) -> None:
        """Looks at the directory, and opens the oldest files that are new.

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
        # Those that had nothing more are looked at again where there is room: they may be gone.
        for name in closed[: max(0, limits.SPOOL_FILES_OPEN_MAX - len(self._open))]:
            if name in self._resting:
                self._take(name)

    def in_order(self) -> list[Source]:
        """Returns those that are open, the oldest first."""
        return sorted(self._open.values(), key=lambda source: source.created_us)

    def has_more(self) -> bool:
        """Says whether there is anything that was not looked at yet."""
        known = self._open.keys() | self._closed.keys() | self.unopened.keys()
        return (
            not known.issuperset(files.waiting_names(self._directory))
            or any(source.has_more() for source in self._open.values())
            or any(not self._rests(name) for name in self._closed)
        )

    def begin_again(self) -> None:
        """Forgets what is not certain: each file is asked for when it is its turn."""
        for source in self._open.values():
            source.known = None
            source.rewind()

    def drop(self, source: Source) -> None:
        """Closes a file that is gone, or has another name."""
        self._open = {name: one for name, one in self._open.items() if one is not source}
        source.file.close()

    def fail(self, source: Source, error: OSError) -> None:
        """Closes a file that cannot be read or written; it is tried again with the next look."""
        name = source.file.name
        self.drop(source)
        self._tell(name, error)

    def close(self) -> None:
        for source in list(self._open.values()):
            self.drop(source)

    def watched(self) -> list[Watched]:
        """Returns what the rules look at, of all files."""
        closed = [name for name in self._closed if name not in self._resting]
        outside = (survey.outside(self._directory, name) for name in (*closed, *self.unopened))
        return [
            *(_watched(source) for source in self._open.values()),
            *(one for one in outside if one is not None),
            *survey.aside_files(self._directory),
        ]

    def oldest_us(self) -> int:
        """Returns when the oldest record was written that waits; 0 if none does."""
        for source in self.in_order():
            if source.waiting_bytes():
                return source.oldest_us()
        return 0

    # -- inside -----------------------------------------------------------------------------------

    def _note(self, name: str) -> None:
        """Reads when a file was begun."""
        try:
            file = SpoolFile(self._directory, name, is_writable=False)
        except FileNotFoundError:
            return  # it has another name by now
        except OSError as error:
            self._tell(name, error)
            return
        self._closed[name] = file.header.created_us if file.header else 0
        file.close()

    def _has_room(self) -> bool:
        """Makes room, if it must be, by closing a file that has nothing more at the moment."""
        if len(self._open) < limits.SPOOL_FILES_OPEN_MAX:
            return True
        for source in self.in_order():
            if not source.has_more() and source.known is not None:
                name, size = source.file.name, source.file.size()
                self.drop(source)
                self._closed[name], self._resting[name] = source.created_us, size
                return True
        return False

    def _rests(self, name: str) -> bool:
        """Says whether a file has nothing more than when it was closed."""
        size = self._resting.get(name)
        if size is None:
            return False
        try:
            return files.status_of(self._directory, name).st_size == size
        except FileNotFoundError:
            return True  # it has another name by now, or none

    def _take(self, name: str) -> None:
        try:
            file = SpoolFile(self._directory, name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._tell(name, error)
            return
        finally:
            self._closed.pop(name, None)
            self._resting.pop(name, None)
        if file.header is None:
            self._mend(file)
        try:
            self._open[name] = Source(file)
        except OSError as error:
            file.close()
            self._tell(name, error)

    def _tell(self, name: str, error: OSError) -> None:
        why = error.strerror or str(error)
        if self.unopened.get(name) != why:
            self.unopened[name] = why
            _log.error("%s cannot be opened or read: %s", name, why)

    def _mend(self, file: SpoolFile) -> None:
        """Gives a file whose first line is damaged another one, so that the rest is sent."""
        _log.error(
            "the first line of %s is damaged, and was replaced; records that were under way may "
            "arrive twice; it was %r", file.path, file.read(0, files.HEADER_BYTES),
        )  # fmt: skip
        reading.renew(file, self._clock.wall_us())


def _watched(source: Source) -> Watched:
    status = source.file.stat()
    return Watched(
        name=source.file.name,
        waiting_bytes=source.waiting_bytes(),
        owner=status.st_uid,
        mode=status.st_mode,
        modified_us=status.st_mtime_ns // 1000,
        set_aside=source.set_aside.total(),
    )
