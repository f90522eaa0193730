"""The spare: allocated ahead, recycled, and reserved for what is urgent when the disk is full."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal.reader import Journal
from fjord.journal.writer import Claim, Writer
from fjord.testing import SimCrash, SimDisk
from tests.unit.journal import writing

ONE, TWO, THREE = (f"{number:010d}.seg" for number in (1, 2, 3))


def start(disk: SimDisk, first_seq: int = 1) -> Writer:
    disk.make_directory("/journal")
    disk.sync_directory("/")
    writer = Writer(
        disk, "/journal", writing.header(1, first_seq), segment_bytes=writing.SEGMENT_BYTES
    )
    writer.create()
    return writer


def found(disk: SimDisk, start_seq: int = 1) -> list[bytes]:
    return writing.values_of(list(Journal(disk, "/journal").frames(start_seq, durable_seq=0)))


def fill(writer: Writer, claim: Claim = Claim.ORDINARY) -> int:
    """Appends frames while there is room for them; returns how many."""
    count = 0
    while writer.has_room(len(writing.kv_insert([b"v" * 1000])), claim):
        writing.append(writer, b"v" * 1000)
        count += 1
    return count


# -- a spare ahead --------------------------------------------------------------------------------


def test_there_is_no_spare_on_a_full_disk_and_no_error_either() -> None:
    disk = SimDisk(capacity=writing.SEGMENT_BYTES + writing.SEGMENT_BYTES // 64 - 1)
    writer = start(disk)
    assert not writer.spare.ensure()
    assert disk.names("/journal") == [ONE]
    disk.capacity = 2 * writing.SEGMENT_BYTES
    assert writer.spare.ensure()


def test_a_disk_that_fails_is_no_full_disk() -> None:
    disk = SimDisk()
    writer = start(disk)
    disk.errors[len(disk.calls) + 2] = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        writer.spare.ensure()
    assert disk.names("/journal") == [ONE]


def test_the_spare_grows_for_a_large_frame_and_stays_as_it_was_if_it_cannot() -> None:
    disk = SimDisk(capacity=3 * writing.SEGMENT_BYTES)
    writer = start(disk)
    writer.spare.ensure()
    large = b"v" * (2 * writing.SEGMENT_BYTES)
    for urgent in (False, True):
        with pytest.raises(OSError, match="No space"):
            writing.rotate(writer, len(writing.kv_insert([large])), urgent=urgent)
        assert disk.names("/journal") == [ONE, "spare"]
        assert disk.open("/journal/spare").size() == writing.SEGMENT_BYTES
    disk.capacity = 6 * writing.SEGMENT_BYTES
    writing.rotate(writer, len(writing.kv_insert([large])))
    writing.append(writer, large)
    assert found(disk) == [large]


def test_recovery_uses_the_spare_on_a_full_disk() -> None:
    disk = SimDisk(capacity=2 * writing.SEGMENT_BYTES)
    writer = start(disk)
    writer.spare.ensure()
    writing.append(writer, b"one")
    writer.sync()
    disk.process_crash()
    recovered = recover(disk, 2)
    assert disk.names("/journal") == [ONE, TWO]
    assert recovered.has_room(writing.SEGMENT_BYTES // 2, Claim.VITAL)
    assert not recovered.has_room(100, Claim.URGENT), "the first segment may have to be packed"
    writing.append(recovered, b"two")
    assert found(disk) == [b"one", b"two"]


def recover(disk: SimDisk, segment: int) -> Writer:
    """Writes every frame once more, to a new segment, as recovery does in the worst case."""
    for name in disk.names("/journal"):
        if name.endswith(".new"):
            disk.remove(f"/journal/{name}")
    tail = list(Journal(disk, "/journal").frames(1, durable_seq=0))
    new = writing.header(segment, tail[0].frame.first_seq if tail else 1)
    body = b"".join(one.frame.encode(new.salt) + one.body for one in tail)
    writer = Writer(disk, "/journal", new, segment_bytes=writing.SEGMENT_BYTES)
    writer.create(body, last_seq=tail[-1].frame.last_seq if tail else 0)
    return writer


# -- reserved space -------------------------------------------------------------------------------


def test_the_spare_is_for_packing_and_the_rest_of_the_segment_for_deletes() -> None:
    disk = SimDisk(capacity=2 * writing.SEGMENT_BYTES)
    writer = start(disk)
    fill(writer)
    assert not writer.make_room(2000, Claim.ORDINARY)
    with pytest.raises(OSError, match="No space"):
        writer.rotate(writing.NOW_US, 79, body_bytes=2000, claim=Claim.ORDINARY)
    assert fill(writer, Claim.URGENT) > 5
    with pytest.raises(OSError, match="No space"):
        writer.rotate(writing.NOW_US, 79, body_bytes=100, claim=Claim.URGENT)
    assert writer.segment == 1
    writer.rotate(writing.NOW_US, 79, body_bytes=100, claim=Claim.VITAL)
    writer.owed_bytes = writing.SEGMENT_BYTES // 2  # that much is still to be packed
    fill(writer, Claim.URGENT)
    left = writing.SEGMENT_BYTES - writer.position
    assert writing.SEGMENT_BYTES // 2 <= left < writing.SEGMENT_BYTES // 2 + 2000
    writer.recycle(1)
    assert writer.spare.is_whole, "packing has given it back"


# -- recycling ------------------------------------------------------------------------------------


def packed(disk: SimDisk) -> Writer:
    """A journal whose first segment may go: everything in it stands in the second one too."""
    writer = start(disk)
    for number in range(5):
        writing.append(writer, b"old %d" % number)
    writer.sync()
    writing.append(writer, b"old, and vouches for the others")
    writing.rotate(writer, urgent=True)
    writing.append(writer, b"new")
    writer.sync()
    return writer


@pytest.mark.req("SJ-19")
def test_a_packed_segment_is_overwritten_first_if_that_is_wanted() -> None:
    disk = SimDisk()
    writer = packed(disk)
    assert b"old 3" in disk.open(f"/journal/{ONE}").read(0, writing.SEGMENT_BYTES)
    writer.recycle(1, wipes=True)
    assert disk.names("/journal") == [TWO, "spare"]
    disk.power_cut()
    assert not disk.open("/journal/spare").read(0, writing.SEGMENT_BYTES).strip(b"\0")


@pytest.mark.req("SJ-19")
def test_a_packed_segment_that_is_overwritten_and_cannot_grow_is_removed() -> None:
    disk = SimDisk()
    writer = packed(disk)
    disk.capacity = disk.used_bytes()
    writer.recycle(1, wipes=True)
    assert disk.names("/journal") == [TWO]
    assert not writer.spare.is_whole


def recycled(disk: SimDisk) -> tuple[Writer, int]:
    """A third segment in the file of the first one; returns where the old frames began."""
    writer = packed(disk)
    first = disk.open(f"/journal/{ONE}").read(0, writing.SEGMENT_BYTES)
    assert frames.decode_frame(first, 64, writing.header(1).salt) is not None
    writer.recycle(1)
    writing.append(writer, b"two")
    writing.rotate(writer, urgent=True)
    data = disk.open(f"/journal/{THREE}").read(0, writing.SEGMENT_BYTES)
    second = 64 + len(writing.commit_of(b"old 0").ops[0]) + frames.FRAME_HEADER_BYTES
    assert frames.decode_frame(first, second, writing.header(1).salt) is not None
    assert data[second : len(first)] == first[second:], "the old bytes are there"
    return writer, second


def test_old_bytes_of_a_recycled_segment_vouch_for_nothing() -> None:
    disk = SimDisk()
    writer, _ = recycled(disk)
    journal = Journal(disk, "/journal")
    third = journal.segments[-1]
    assert journal.synced_claim(third, 64) == 0
    writer.append(writing.commit_of(b"x"))
    assert journal.synced_claim(third, writer.position) == 0
    assert journal.synced_claim(third, 64) == 8, "the frame of this life counts"


def crashed(seed: int) -> SimDisk:
    """A journal of one durable frame and two that a power cut may take, and a spare."""
    disk = SimDisk(seed)
    writer = start(disk)
    writer.spare.ensure()
    writing.append(writer, b"durable")
    writer.sync()
    writing.append(writer, b"maybe 1")
    writing.append(writer, b"maybe 2")
    disk.process_crash()
    return disk


def test_frames_of_a_recovery_that_was_cut_short_do_not_come_back_in_the_spare() -> None:
    """They were written under the number that the next recovery takes."""
    disk = crashed(0)
    before = len(disk.calls)
    recover(disk, 2)
    for step in range(1, len(disk.calls) - before + 1):
        for seed in range(10):
            disk = crashed(seed)
            disk.crash_after(step)
            with pytest.raises(SimCrash):
                recover(disk, 2)
            disk.power_cut()
            survivors = found(disk)
            last = Journal(disk, "/journal").segments[-1].segment
            again = recover(disk, last + 1)
            writing.append(again, b"other 2")  # exactly as long as what may have been lost
            again.sync()
            disk.power_cut()
            assert found(disk) == [*survivors, b"other 2"], f"step {step} seed {seed}"


# -- crashes --------------------------------------------------------------------------------------


def ensure(writer: Writer) -> None:
    writer.spare.ensure()


def use(writer: Writer) -> None:
    writer.spare.ensure()
    writing.rotate(writer)
    writing.append(writer, b"last")
    writer.sync()


def recycle(writer: Writer) -> None:
    writer.recycle(1)
    writing.rotate(writer, urgent=True)
    writing.append(writer, b"last")
    writer.sync()


@pytest.mark.parametrize("action", [ensure, use, recycle])
@pytest.mark.parametrize("power", [True, False], ids=["power-cut", "process-crash"])
def test_a_crash_at_any_step_leaves_the_state_before_or_after(
    action: Callable[[Writer], None], power: bool
) -> None:
    disk = SimDisk()
    writer = packed(disk)
    before = len(disk.calls)
    action(writer)
    steps = len(disk.calls) - before
    assert steps >= 5
    for step in range(1, steps + 1):
        for seed in range(10 if power else 1):
            disk = SimDisk(seed)
            writer = packed(disk)
            disk.crash_after(step)
            with pytest.raises(SimCrash):
                action(writer)
            disk.power_cut() if power else disk.process_crash()
            check_recovers(disk, f"step {step} seed {seed}")


def check_recovers(disk: SimDisk, hint: str) -> None:
    journal = Journal(disk, "/journal")
    numbers = [one.segment for one in journal.segments]
    assert numbers in ([1, 2], [2], [1, 2, 3], [2, 3]), hint
    values = writing.values_of(list(journal.frames(7, durable_seq=7)))
    assert values in ([b"new"], [b"new", b"last"]), hint
    last = journal.segments[-1]
    assert journal.synced_claim(last, 64) <= 7 + (len(values) - 1), hint
    next_seq = 7 + len(values)
    writer = Writer(
        disk,
        "/journal",
        writing.header(last.segment + 1, next_seq),
        segment_bytes=writing.SEGMENT_BYTES,
    )
    writer.create(last_seq=next_seq - 1)
    writing.append(writer, b"after")
    writer.sync()
    assert found(disk, 7) == [*values, b"after"], hint


def test_who_reads_a_segment_that_is_recycled_meanwhile_is_told_so() -> None:
    disk = SimDisk()
    writer = packed(disk)
    journal = Journal(disk, "/journal")
    reading = journal.frames(1, durable_seq=7)
    ((_, place),) = next(reading).ops()
    crc = frames.checksum(b"old 0")
    assert journal.payload(1, place.payload, 5, crc) == b"old 0"
    writer.recycle(1)
    writing.rotate(writer, urgent=True)
    writing.append(writer, b"v" * 3000)
    with pytest.raises(FileNotFoundError):
        journal.payload(1, place.payload, 5, crc)
    with pytest.raises(FileNotFoundError):
        list(journal.frames(1, durable_seq=7))
    journal.refresh()
    assert journal.first_seq == 7
    with pytest.raises(CorruptionError, match="begins at seq 7"):
        next(journal.frames(1, durable_seq=7))
