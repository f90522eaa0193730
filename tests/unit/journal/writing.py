"""Small journals on a real disk: what the tests of this folder write and read back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

from fjord import limits, ops
from fjord.columns import Strings
from fjord.disk import LocalDisk
from fjord.journal.frame import SegmentHeader
from fjord.journal.reader import Journal, Located
from fjord.journal.writer import Claim, Commit, Writer
from fjord.ops import Op, Opcode

SHARD = b"the shard's uuid"
NOW_US = 1_700_000_000_000_000
SEGMENT_BYTES = limits.SEGMENT_BYTES_MIN


def header(segment: int = 1, first_seq: int = 1, shard: bytes = SHARD) -> SegmentHeader:
    return SegmentHeader(
        segment=segment, first_seq=first_seq, shard=shard, created_us=NOW_US, lease_us=77
    )


def kv_insert(values: Sequence[bytes]) -> bytes:
    """An op of one row a value."""
    count = len(values)
    times = array("Q", [NOW_US] * count)
    keys = Strings.of([b"key-%d" % row for row in range(count)])
    op = Op(Opcode.KV_INSERT, 1, count, (times, bytes([1] * count), keys, Strings.of(values)))
    return ops.encode(op)[0]


def commit_of(*values: bytes) -> Commit:
    """A commit of one op with these values."""
    return Commit(wall_us=NOW_US, lease_us=78, ops=[kv_insert(values)], rows=len(values))


def open_writer(
    directory: Path, first: SegmentHeader | None = None, *, segment_bytes: int = SEGMENT_BYTES
) -> Writer:
    """A writer at the beginning of a new segment."""
    writer = Writer(LocalDisk(), str(directory), first or header(), segment_bytes=segment_bytes)
    writer.create()
    return writer


def append(writer: Writer, *values: bytes) -> int:
    """Appends and confirms one frame; returns where it begins."""
    position = writer.position
    writer.append(commit_of(*values))
    writer.confirm()
    return position


def rotate(writer: Writer, body_bytes: int = 0, *, urgent: bool = False) -> None:
    """Begins the next segment; what is urgent uses up the last spare."""
    claim = Claim.VITAL if urgent else Claim.ORDINARY
    writer.rotate(NOW_US, 79, body_bytes=body_bytes, claim=claim)


def open_journal(directory: Path) -> Journal:
    return Journal(LocalDisk(), str(directory))


def read_all(directory: Path, start_seq: int = 1, *, durable_seq: int = 0) -> list[Located]:
    journal = open_journal(directory)
    try:
        return list(journal.frames(start_seq, durable_seq=durable_seq))
    finally:
        journal.close()


def seqs(found: Sequence[Located]) -> list[tuple[int, int]]:
    """First and last seq of each frame."""
    return [(one.frame.first_seq, one.frame.last_seq) for one in found]


def values_of(found: Sequence[Located]) -> list[bytes]:
    """Every value in the frames, in order."""
    values: list[bytes] = []
    for located in found:
        for op, _ in located.ops():
            column = op.column("value")
            assert isinstance(column, Strings)
            values += column.rows()
    return values


def segment_file(directory: Path, segment: int = 1) -> Path:
    return directory / f"{segment:010d}.seg"
