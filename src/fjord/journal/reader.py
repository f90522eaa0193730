"""Reading the journal: its segments, their frames in order, single payloads.

The law of the tail.  A segment ends where the next one's first seq begins.  Up to there every
frame must be whole: anything else is damage, reported with file and offset.  Only in the last
segment, and only above everything that is known to be durable, may the frames just stop: there
the writer died, and what is left of its last frame was never acknowledged.

Packing removes the oldest segments, so a journal may begin at any segment; the engine knows whether
it begins where it should.  Reading a segment that is removed meanwhile raises FileNotFoundError,
and never returns bytes of the file's next life.
"""

from __future__ import annotations

import bisect
import errno
import itertools
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from fjord import disk as disks
from fjord import limits, ops
from fjord.columns import Buffer, Strings
from fjord.commands import Scanned
from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal import search
from fjord.journal.frame import Frame, PlacedOp, SegmentHeader
from fjord.ops import Opcode

# How far apart the remembered positions in a segment are.
_MARK_BYTES = 1 * limits.MIB
# How often the directory is read again while segments are removed meanwhile.
_LOOKS_MAX = 100


# Segment, offset, size, crc, and the row that holds it or 0.
Pointer = tuple[int, int, int, int, int]
# Payloads with gaps of up to this size are read together, up to this much at once.
_GAP_BYTES_MAX = 4 * limits.KIB
_RUN_BYTES_MAX = 1 * limits.MIB


class Located(NamedTuple):
    """A frame, its checked body, and its position."""

    frame: Frame
    body: bytes
    segment: int
    offset: int

    def ops(self) -> Iterator[frames.PlacedOp]:
        return frames.decode_ops(self.frame, self.body, self.segment, self.offset)

    @property
    def end(self) -> int:
        return self.offset + self.frame.length


class ScannedOps:
    """Stored ops with their seqs and dates, gathered for an answer to a scan."""

    def __init__(self) -> None:
        self.bytes = 0
        self.ops: list[Buffer] = []
        self._first_seqs, self._walls_us, self._last_seqs = array("Q"), array("Q"), array("Q")

    def add(self, frame: Frame, seq: int, data: Buffer) -> None:
        """Adds an op of a frame, whose first row has this seq."""
        self._first_seqs.append(seq)
        self._walls_us.append(frame.wall_us)
        self._last_seqs.append(frame.last_seq)
        self.ops.append(data)
        self.bytes += len(data)

    def scanned(self, next_seq: int = 0, end_seq: int = 0) -> Scanned:
        """Returns the ops; a single one is not copied."""
        found = self.ops
        return Scanned(
            first_seqs=self._first_seqs,
            walls_us=self._walls_us,
            last_seqs=self._last_seqs,
            ops=Strings((0, len(found[0])), found[0]) if len(found) == 1 else Strings.of(found),  # type: ignore[arg-type]
            next_seq=next_seq,
            end_seq=end_seq,
        )


class Journal:
    """The segments of one directory.  Safe to use from several threads."""

    def __init__(self, disk: disks.Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self._guard = threading.Lock()
        self._files: dict[int, disks.File] = {}  # in the order in which they were opened
        self._marks: dict[int, list[tuple[int, int]]] = {}  # segment -> (seq, offset), ascending
        self._sizes: dict[int, int] = {}  # of segments that do not grow any more
        self._values = ValueCache(limits.VALUE_CACHE_BYTES)
        # The frame in which a moved payload was last found: its first and last seq, its ops.
        self._last_found: tuple[int, int, list[PlacedOp]] = (1, 0, [])
        self.segments: list[SegmentHeader] = []
        self.refresh()

    @property
    def first_seq(self) -> int:
        """The seq with which the journal begins; what was before it was packed."""
        segments = self.segments
        return segments[0].first_seq if segments else 1

    def refresh(self) -> None:
        """Reads the headers of new segments.

        Raises:
            CorruptionError: if a header is damaged, or a segment is missing or foreign.
        """
        known = {header.segment: header for header in self.segments}
        for look in itertools.count(1):
            try:
                found = self._look(known)
                break
            except FileNotFoundError:
                if look == _LOOKS_MAX:
                    raise
        for before, after in itertools.pairwise(found):
            self._check_neighbours(before, after)
        self.segments = found
        for gone in known.keys() - {header.segment for header in found}:
            self.forget(gone)

    def add(self, header: SegmentHeader) -> None:
        """Adds a segment that this process has created."""
        self.segments = [*self.segments, header]

    def remove(self, segment: int) -> None:
        """Drops a segment that was packed, and will be removed."""
        self.segments = [header for header in self.segments if header.segment != segment]
        self.forget(segment)

    def forget(self, segment: int) -> None:
        """Drops everything about a segment that is in memory."""
        with self._guard:
            # Not closed here: another thread may be reading it; the last one closes it.
            self._files.pop(segment, None)
            self._marks.pop(segment, None)
            self._sizes.pop(segment, None)
        self._values.forget(segment)

    def segment_bytes(self, segment: int) -> int:
        """Returns the size of a segment's file; that of the last one includes allocated space."""
        size = self._sizes.get(segment)
        if size is None:
            size = self._file(segment).size()
            if segment != self.segments[-1].segment:
                self._sizes[segment] = size
        return size

    def used_bytes(self) -> int:
        """Returns the size of all segments together."""
        return sum(self.segment_bytes(header.segment) for header in self.segments)

    def path(self, segment: int) -> str:
        return frames.segment_path(self.directory, segment)

    def payload(self, segment: int, offset: int, size: int, crc: int, seq: int = 0) -> bytes:
        """Returns stored bytes; if they have moved, those of the row `seq`.

        Raises:
            CorruptionError: if they are damaged.
            FileNotFoundError: if the segment was packed meanwhile.
        """
        key = (segment, offset, size, crc)
        data = self._values.get(key)
        if data is None:
            data = self.stored(*key, seq)
            self._values.offer(key, data)
        return data

    def stored(self, segment: int, offset: int, size: int, crc: int, seq: int) -> bytes:
        """Like `payload`, but without the cache; any thread may call it."""
        try:
            return self._read_payload(segment, offset, size, crc)
        except (CorruptionError, FileNotFoundError):
            data = self._find_payload(seq, size, crc) if seq else None
            if data is None:
                raise
            return data

    def _read_payload(self, segment: int, offset: int, size: int, crc: int) -> bytes:
        data = self._file(segment).read(offset, size)
        if frames.checksum(data) != crc:
            self._check_there(segment)
            raise CorruptionError(self.path(segment), offset, f"{size} bytes fail their checksum")
        return data

    def _find_payload(self, seq: int, size: int, crc: int) -> bytes | None:
        """Returns the payload of a row, wherever it is; None if no payload of the row matches."""
        first_seq, last_seq, found = self._last_found
        if not first_seq <= seq <= last_seq:
            try:
                located = next(self.frames(seq, durable_seq=0), None)
            except CorruptionError:
                located = None
            if located is None:
                return None
            found = list(located.ops())
            self._last_found = (located.frame.first_seq, located.frame.last_seq, found)
        for op, place in found:
            values = op.columns[-1] if op.columns else ()
            if place.seq <= seq < place.seq + op.rows and isinstance(values, Strings):
                data = values[seq - place.seq]
                return data if len(data) == size and frames.checksum(data) == crc else None
        return None

    def payloads(self, pointers: Sequence[Pointer]) -> list[bytes]:
        """Like `payload` for several pointers; adjacent payloads are read together."""
        if len(pointers) == 1:
            return [self.payload(*pointers[0])]
        found: list[bytes] = []
        run: list[Pointer] = []
        end = 0
        for pointer in pointers:
            segment, offset, size, _, _ = pointer
            follows = run and segment == run[0][0] and 0 <= offset - end <= _GAP_BYTES_MAX
            if not follows or offset + size - run[0][1] > _RUN_BYTES_MAX:
                found += self._read_run(run)
                run = []
            run.append(pointer)
            end = offset + size
        return found + self._read_run(run)

    def _read_run(self, run: Sequence[Pointer]) -> list[bytes]:
        """Reads payloads that follow each other in one segment."""
        if len(run) < 2:
            return [self.payload(*pointer) for pointer in run]
        segment, base, _, _, _ = run[0]
        try:
            data = self._file(segment).read(base, run[-1][1] + run[-1][2] - base)
        except FileNotFoundError:
            data = b""
        found = [data[offset - base : offset - base + size] for _, offset, size, _, _ in run]
        if list(map(frames.checksum, found)) != [crc for _, _, _, crc, _ in run]:
            return [self.payload(*pointer) for pointer in run]  # tells which one is damaged
        return found

    def frames(self, start_seq: int, *, durable_seq: int) -> Iterator[Located]:
        """Yields the frames with `start_seq` and later, to the end of the journal.

        Raises:
            CorruptionError: at damage, that is at a missing frame up to `durable_seq`, or below
                the first seq of a later segment; and if `start_seq` is below `first_seq`.
            FileNotFoundError: if a segment was packed meanwhile.
        """
        segments = self.segments
        first = bisect.bisect_right(segments, start_seq, key=lambda header: header.first_seq) - 1
        if segments and first < 0:
            raise CorruptionError(
                self.path(segments[0].segment),
                0,
                f"the journal begins at seq {segments[0].first_seq}, seq {start_seq} is requested",
            )
        for position in range(max(first, 0), len(segments)):
            header = segments[position]
            following = segments[position + 1].first_seq if position + 1 < len(segments) else None
            end_seq = following if following is not None else durable_seq + 1
            seq, offset = header.first_seq, frames.SEGMENT_HEADER_BYTES
            if position == first:
                marks = self._marks.get(header.segment, [])
                at = bisect.bisect_right(marks, start_seq, key=lambda mark: mark[0]) - 1
                seq, offset = marks[at] if at >= 0 else (seq, offset)
            for located in self._walk(header, seq, offset, start_seq):
                if following is not None and located.frame.first_seq >= following:
                    break
                seq, offset = located.frame.last_seq + 1, located.end
                if seq > start_seq:
                    yield located
            if seq < end_seq:
                self._check_there(header.segment)
                raise CorruptionError(
                    self.path(header.segment), offset, f"the frame of seq {seq} is not readable"
                )

    def synced_claim(self, header: SegmentHeader, offset: int) -> int:
        """Returns the highest durable seq recorded in any whole frame after `offset`.

        An unreadable frame is damage, not a torn tail, if a later frame in its file was written
        when the unreadable one had long been synced.
        """
        found = search.find_headers(self._file(header.segment), offset, header.salt)
        return max((frame.durable_seq for _, frame in found), default=0)

    def close(self) -> None:
        with self._guard:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _walk(
        self, header: SegmentHeader, seq: int, offset: int, start_seq: int
    ) -> Iterator[Located]:
        """Yields consecutive whole frames from `offset` on.

        Frames below `start_seq` are skipped by their headers, and have no body.
        """
        segment, salt = header.segment, header.salt
        file = self._file(segment)
        base, data = offset, b""
        while True:
            frame = frames.decode_frame(data, offset - base, salt)
            if frame is None or offset + frame.length > base + len(data):
                fresh = file.read(offset, max(limits.CHUNK_BYTES, frame.length if frame else 0))
                if base == offset and len(fresh) <= len(data):
                    return
                base, data = offset, fresh
                continue
            body = b""
            if frame.last_seq >= start_seq:
                start = offset - base + frames.FRAME_HEADER_BYTES
                body = data[start : offset - base + frame.length]
            if frame.first_seq != seq or (body and frames.checksum(body) != frame.body_crc):
                return
            marks = self._marks.setdefault(segment, [])
            if not marks or offset >= marks[-1][1] + _MARK_BYTES:
                with self._guard:
                    bisect.insort(marks, (seq, offset))
            yield Located(frame, body, segment, offset)
            seq, offset = frame.last_seq + 1, offset + frame.length

    def _look(self, known: dict[int, SegmentHeader]) -> list[SegmentHeader]:
        found: list[SegmentHeader] = []
        for name in self._disk.names(self.directory):
            number = frames.segment_number(name)
            if number is not None:
                found.append(known.get(number) or self._read_header(number))
        return found

    def _read_header(self, segment: int) -> SegmentHeader:
        path = self.path(segment)
        try:
            data = self._file(segment).read(0, frames.SEGMENT_HEADER_BYTES)
            header = frames.decode_segment_header(data, path)
            if header.segment != segment:
                raise CorruptionError(path, 16, f"its header is that of segment {header.segment}")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CorruptionError(path, 0, f"cannot be read ({error.strerror})") from error
        except CorruptionError:
            self._check_there(segment)
            raise
        return header

    def _check_there(self, segment: int) -> None:
        """Raises FileNotFoundError if a segment is gone, so that its bytes are not trusted."""
        path = self.path(segment)
        if not self._disk.exists(path):
            self.forget(segment)
            raise FileNotFoundError(errno.ENOENT, "the segment was packed meanwhile", path)

    def _check_neighbours(self, before: SegmentHeader, after: SegmentHeader) -> None:
        path = self.path(after.segment)
        if after.segment != before.segment + 1:
            raise CorruptionError(path, 0, f"the previous segment {before.segment + 1} is missing")
        if after.shard != before.shard:
            raise CorruptionError(path, 32, "it belongs to another journal")
        if after.first_seq < before.first_seq:
            raise CorruptionError(path, 24, "it begins before the previous segment")

    def _file(self, segment: int) -> disks.File:
        return self._files.get(segment) or self._open_file(segment)

    def _open_file(self, segment: int) -> disks.File:
        file = self._disk.open(self.path(segment))
        with self._guard:
            self._files[segment] = file
            if len(self._files) > limits.SEGMENT_FILES_OPEN_MAX:
                # Not closed here: another thread may be reading it; the last one closes it.
                self._files.pop(next(iter(self._files)))
        return file


# -------------------------------------------------------------------------------------------------
#
# A cache of recently read values, up to a number of bytes; the page cache holds the rest.
#
# A value is kept when it is read for the second time within a while.  A value that is read once, as
# in a walk over a whole table, costs next to nothing and displaces nothing.


# Segment, offset, size, checksum: bytes that were truncated and written again are other bytes.
Key = tuple[int, int, int, int]

# The measured overhead of an entry in Python, beside its bytes.
ENTRY_BYTES: Final = 400
# A value larger than this share of the cache would displace too many others.
_LARGEST_SHARE: Final = 16
_SLOT_MASK: Final = 0xFFFF


class ValueCache:
    """The most recently read values.  Safe to use from several threads."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._guard = threading.Lock()
        self._values: OrderedDict[Key, bytes] = OrderedDict()
        self._seen = bytearray(_SLOT_MASK + 1)  # one byte each for values read once
        self.size = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> bytes | None:
        data = self._values.get(key)
        if data is not None:
            try:
                self._values.move_to_end(key)
            except KeyError:
                pass  # another thread has dropped it, but the data is right
        return data

    def offer(self, key: Key, data: bytes) -> None:
        """Records that a value was read from disk, and keeps it if it was read before.

        Two values may share a slot; then one is kept a read earlier or later.
        """
        mixed = key[1] ^ key[3]
        slot, print_ = mixed & _SLOT_MASK, mixed >> 24 & 0xFF
        if self._seen[slot] == print_:
            self._keep(key, data)
        else:
            self._seen[slot] = print_

    def forget(self, segment: int) -> None:
        """Drops the values of a segment."""
        with self._guard:
            for key in [key for key in self._values if key[0] == segment]:
                self.size -= len(self._values.pop(key)) + ENTRY_BYTES

    def _keep(self, key: Key, data: bytes) -> None:
        size = len(data) + ENTRY_BYTES
        if size * _LARGEST_SHARE > self._size_max:
            return
        with self._guard:
            if key not in self._values:
                self.size += size
            self._values[key] = data
            while self.size > self._size_max:
                self.size -= len(self._values.popitem(last=False)[1]) + ENTRY_BYTES


# -- staged messages, which are stored before they get their seqs ---------------------------------
#
# A walk over the journal finds a STREAM_COMMIT where the messages belong; the STREAM_APPEND that it
# stands for, with the same number of rows, is in an earlier STAGE.


COMMIT: Final = int(Opcode.STREAM_COMMIT)
# The position of the size of the STREAM_APPEND in such an op.
_SIZE_AT: Final = ops.HEADER.size + 8 * [name for name, _ in Opcode.STREAM_COMMIT.columns].index(
    "size"
)


def size_of(body: Buffer, position: int) -> int:
    """Returns the size of the op that a STREAM_COMMIT at a position stands for."""
    return int.from_bytes(body[position + _SIZE_AT : position + _SIZE_AT + 8], "little")


def messages_of(journal: Journal, commit: Buffer) -> bytes:
    """Returns the STREAM_APPEND that a STREAM_COMMIT stands for.

    Raises:
        CorruptionError: if it is missing.
        FileNotFoundError: if the segment that had it was packed meanwhile.
    """
    op, _, _ = ops.decode(memoryview(commit), 0)
    columns: Any = op.columns
    (stage,), (segment,), (offset,), (size,), (crc,), _ = columns
    found = journal.stored(segment, offset, size, crc, stage)
    opcode, _, _, table, rows, _ = ops.HEADER.unpack_from(found)
    if (opcode, table, rows) != (Opcode.STREAM_APPEND, op.table, op.rows):
        reason = f"it does not contain the {op.rows} messages staged at seq {stage}"
        raise CorruptionError(journal.path(segment), offset, reason)
    return found
