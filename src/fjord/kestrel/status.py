"""What a server does for clients: all, reads alone, or nothing; and how that outlives a restart.

    up --> readonly --> quiescent       stricter: told at once, and enforced after the grace period
       <--          <--                 less strict: told and enforced at once

A file may keep the status, in the words of Kestrel.  It is durable there before it is told.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Callable
from typing import Final

from fjord import disk as disks
from fjord.clock import Clock


class Status(enum.StrEnum):
    """What a server does for clients; a later one is stricter."""

    UP = "up"
    READONLY = "readonly"  # nothing is put, flushed or deleted
    QUIESCENT = "quiescent"  # and nothing is taken; what is open can be closed


_STRICTNESS: Final = {status: number for number, status in enumerate(Status)}
_WRITTEN: Final = {Status.UP: "Up", Status.READONLY: "ReadOnly", Status.QUIESCENT: "Quiescent"}
_FILE_BYTES_MAX: Final = 64


class Standing:
    """The status of a server, as it is told and as it is enforced."""

    def __init__(
        self,
        clock: Clock,
        first: Status = Status.UP,
        *,
        grace_us: int = 0,
        keep: Callable[[Status], None] | None = None,
    ) -> None:
        """Begins with `first`; `keep` makes a status durable, or raises an OSError."""
        self._clock = clock
        self._grace_us = grace_us
        self._keep = keep
        self.told = first
        self._enforced = first
        self._since_us = 0  # when `told` is enforced

    @property
    def enforced(self) -> Status:
        if self._enforced is not self.told and self._clock.monotonic_us() >= self._since_us:
            self._enforced = self.told
        return self._enforced

    def change(self, wanted: Status) -> None:
        """Changes the status; a change that is not enforced yet gives way to this one.

        Raises:
            OSError: if it could not be kept; nothing has changed then.
        """
        enforced = self.enforced
        if self._keep is not None:
            self._keep(wanted)
        is_stricter = _STRICTNESS[wanted] > _STRICTNESS[enforced]
        self.told = wanted
        self._enforced = enforced if is_stricter else wanted
        self._since_us = self._clock.monotonic_us() + self._grace_us


def named(word: str) -> Status | None:
    """Returns the status of this name, however it is spelt."""
    return next((status for status in Status if status == word.strip().lower()), None)


def read(disk: disks.Disk, path: str) -> tuple[Status | None, str]:
    """Returns the status that a file keeps, None if it is none; and what is in it, for people.

    Raises:
        OSError: if it cannot be read.
    """
    if not disk.exists(path):
        return None, ""
    with contextlib.closing(disk.open(path)) as file:
        word = file.read(0, _FILE_BYTES_MAX).decode(errors="replace")
    return named(word), word.strip()


def write(disk: disks.Disk, path: str, status: Status) -> None:
    """Ensures that a file durably keeps a status; directories above it are made."""
    disk.make_directory(os.path.dirname(path))
    disks.replace_whole(disk, path, f"{_WRITTEN[status]}\n".encode())
