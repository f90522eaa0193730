"""Writing the journal: one writer, one open segment, one frame a commit.

    create -> append* -> (rotate -> append*)* -> close

A segment is made under another name, synced, renamed and its directory synced, so a file with a
segment's name always has a whole header.  It is made only when everything before it is durable.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from fjord import disk as disks
from fjord import limits
from fjord.errors import DurabilityError
from fjord.journal import frame as frames
from fjord.journal import names
from fjord.journal.frame import Frame, SegmentHeader

# A segment on a nearly full disk has at least room for the takeover of the next start.
_ROOM_BYTES_MIN = 4 * limits.KIB


class Commit(NamedTuple):
    """What a frame is made of, beside its ops."""

    wall_us: int
    lease_us: int
    ops: Sequence[bytes]
    rows: int


class Writer:
    """The end of the journal.

    `append` and `rotate` belong to one thread; `sync` may be called by another one meanwhile.
    """

    def __init__(
        self,
        disk: disks.Disk,
        directory: str,
        header: SegmentHeader,
        *,
        segment_bytes: int,
    ) -> None:
        assert limits.SEGMENT_BYTES_MIN <= segment_bytes <= limits.SEGMENT_BYTES_MAX
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._syncing = threading.Lock()
        self._failed: OSError | None = None
        self.header = header
        self.position = frames.SEGMENT_HEADER_BYTES  # where the next frame begins
        self.next_seq = header.first_seq
        self.committed_seq = header.first_seq - 1  # up to here nothing will be cut any more
        self.durable_seq = header.first_seq - 1
        self._file: disks.File | None = None
        self._capacity = 0  # bytes that are allocated
        self._synced_position = self.position

    @property
    def segment(self) -> int:
        return self.header.segment

    def create(
        self, body: bytes = b"", *, last_seq: int | None = None, room_bytes: int = 0
    ) -> None:
        """Makes the segment of `header`, with whole frames in `body` up to `last_seq`.

        Ensures that the segment, `body` included, is durable and has room for `room_bytes` more.
        """
        used = frames.SEGMENT_HEADER_BYTES + len(body)
        least = used + max(room_bytes, _ROOM_BYTES_MIN)
        path = names.segment_path(self._directory, self.segment)
        fresh = path + names.UNFINISHED
        file = self._disk.open(fresh, writable=True, create=True)
        try:
            capacity = _allocate(file, max(self._segment_bytes, least), least)
            file.write(0, self.header.encode() + body)
        except OSError:
            file.close()
            self._disk.remove(fresh)
            raise
        self._sync_file(file)
        self._disk.rename(fresh, path)
        try:
            self._disk.sync_directory(self._directory)
        except OSError as error:
            # The segment has its name, perhaps: an older one must not grow beside it.
            raise self._fail(error) from error
        self._file, self._capacity = file, capacity
        self.position = self._synced_position = used
        if last_seq is not None:
            self.next_seq = last_seq + 1
        self.committed_seq = self.durable_seq = self.next_seq - 1

    def resume(self, *, position: int, next_seq: int) -> None:
        """Goes on after the last frame of a segment that was closed cleanly."""
        path = names.segment_path(self._directory, self.segment)
        self._file = self._disk.open(path, writable=True)
        self._capacity = max(self._segment_bytes, position)
        self._file.allocate(self._capacity)
        self.position = self._synced_position = position
        self.next_seq = next_seq
        self.committed_seq = self.durable_seq = next_seq - 1

    @property
    def unsynced_bytes(self) -> int:
        """How much the next sync has to write."""
        return self.position - self._synced_position

    def has_room(self, body_bytes: int) -> bool:
        """Says whether a frame with a body of this size fits into the segment."""
        return self.position + frames.FRAME_HEADER_BYTES + body_bytes <= self._capacity

    def append(self, commit: Commit) -> None:
        """Writes one frame; it is not durable before the next `sync`.

        Raises:
            OSError: if it could not be written; then `cut` must follow, and otherwise `confirm`.
        """
        body = b"".join(commit.ops)
        frame = Frame(
            first_seq=self.next_seq,
            rows=commit.rows,
            op_count=len(commit.ops),
            wall_us=commit.wall_us,
            lease_us=commit.lease_us,
            durable_seq=self.durable_seq,
            length=frames.FRAME_HEADER_BYTES + len(body),
            body_crc=frames.checksum(body),
        )
        assert frames.is_frame_length(frame.length)
        self._open_file().write(self.position, frame.encode(self.header.salt) + body)
        self.position += frame.length
        self.next_seq += commit.rows

    def confirm(self) -> None:
        """Takes note that what was appended stays, so that it may be called durable."""
        self.committed_seq = self.next_seq - 1

    def cut(self, position: int, next_seq: int) -> None:
        """Takes back what was written from `position` on, for good.

        Raises:
            DurabilityError: if that fails, since then nobody can tell what is in the journal.
        """
        with self._syncing:
            file = self._open_file()
            try:
                file.write(position, b"\0" * 8)
            except OSError as error:
                raise self._fail(error) from error
            self._sync_file(file)
            self.position, self.next_seq = position, next_seq

    def sync(self) -> int:
        """Ensures that every frame confirmed before the call is durable; returns the durable seq.

        Raises:
            DurabilityError: if the disk says no.  It is never asked again: after a failed fsync
                the kernel may forget the data and still answer yes.
        """
        with self._syncing:
            committed_seq, position = self.committed_seq, self.position
            if committed_seq > self.durable_seq:
                self._sync_file(self._open_file())
                self.durable_seq = committed_seq
                self._synced_position = position
            return self.durable_seq

    def rotate(self, created_us: int, lease_us: int, *, body_bytes: int) -> None:
        """Closes the segment and begins the next one, with room for a frame of `body_bytes`."""
        self.sync()
        with self._syncing:
            old, position = self._open_file(), self.position
            header = SegmentHeader(
                segment=self.segment + 1,
                first_seq=self.next_seq,
                shard=self.header.shard,
                created_us=created_us,
                lease_us=lease_us,
            )
            before, self.header = self.header, header
            try:
                self.create(room_bytes=frames.FRAME_HEADER_BYTES + body_bytes)
            except BaseException:
                self.header = before
                raise
            old.truncate(position)
            old.close()

    def close(self) -> None:
        """Ensures that all is durable, and gives back the space that was allocated ahead."""
        self.sync()
        file = self._open_file()
        file.truncate(self.position)
        self._sync_file(file)
        self.abandon()

    def abandon(self) -> None:
        """Closes the file and leaves it as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open_file(self) -> disks.File:
        if self._failed is not None:
            raise self._fail(self._failed)
        assert self._file is not None, "the writer is not open"
        return self._file

    def _sync_file(self, file: disks.File) -> None:
        try:
            file.sync()
        except OSError as error:
            raise self._fail(error) from error

    def _fail(self, error: OSError) -> DurabilityError:
        self._failed = error
        path = names.segment_path(self._directory, self.segment)
        return DurabilityError(
            f"{path}: the disk failed to keep what was written ({error.strerror}). "
            "Nothing more is acknowledged. Check the disk, then start again."
        )


def _allocate(file: disks.File, size: int, least: int) -> int:
    """Allocates `size` bytes, or only `least` where the disk is nearly full; returns which."""
    try:
        file.allocate(size)
    except OSError as error:
        if not disks.is_full(error):
            raise
        file.allocate(least)
        return least
    return size
