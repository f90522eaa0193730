"""The writer: append, sync, rotate, resume, cut; and what it does when the disk says no."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fjord.errors import DurabilityError
from fjord.journal import frame as frames
from fjord.journal.reader import Journal
from fjord.journal.writer import Claim, Writer
from fjord.testing import SimCrash, SimDisk
from tests.unit.journal import writing


def sim_writer(disk: SimDisk) -> Writer:
    disk.make_directory("/journal")
    disk.sync_directory("/")
    writer = Writer(disk, "/journal", writing.header(), segment_bytes=writing.SEGMENT_BYTES)
    writer.create()
    return writer


def sim_values(disk: SimDisk) -> list[bytes]:
    return writing.values_of(list(Journal(disk, "/journal").frames(1, durable_seq=0)))


def test_has_room_is_exact(tmp_path: Path) -> None:
    writer = writing.open_writer(tmp_path)
    left = writing.SEGMENT_BYTES - 64 - frames.FRAME_HEADER_BYTES
    assert writer.has_room(left, Claim.URGENT)
    assert not writer.has_room(left + 1, Claim.URGENT)
    writing.append(writer, b"one")
    used = frames.FRAME_HEADER_BYTES + len(writing.kv_insert([b"one"]))
    assert writer.has_room(left - used, Claim.URGENT)
    assert not writer.has_room(left - used + 1, Claim.URGENT)
    writer.close()


def test_rotate_begins_the_next_segment_and_cuts_the_old_one(tmp_path: Path) -> None:
    writer = writing.open_writer(tmp_path)
    writing.append(writer, b"one")
    writing.append(writer, b"two", b"three")
    end = writer.position
    writing.rotate(writer)
    assert writer.durable_seq == 3
    assert writing.segment_file(tmp_path, 1).stat().st_size == end
    assert writing.segment_file(tmp_path, 2).stat().st_size == writing.SEGMENT_BYTES
    assert (writer.segment, writer.position, writer.next_seq) == (2, 64, 4)
    assert writer.header.first_seq == 4
    assert writer.header.shard == writing.header().shard
    assert (writer.header.created_us, writer.header.lease_us) == (writing.NOW_US, 79)
    writing.append(writer, b"four")
    writer.close()
    found = writing.read_all(tmp_path, durable_seq=4)
    assert writing.seqs(found) == [(1, 1), (2, 3), (4, 4)]
    assert [one.segment for one in found] == [1, 1, 2]


def test_rotate_makes_the_next_segment_larger_for_a_large_frame(tmp_path: Path) -> None:
    writer = writing.open_writer(tmp_path)
    value = b"v" * (3 * writing.SEGMENT_BYTES)
    body_bytes = len(writing.kv_insert([value]))
    assert not writer.has_room(body_bytes)
    writing.rotate(writer, body_bytes)
    assert writer.has_room(body_bytes)
    writing.append(writer, value)
    assert writer.has_room(100, Claim.URGENT), "urgent frames find room behind it"
    writing.rotate(writer)
    assert writing.segment_file(tmp_path, 3).stat().st_size == writing.SEGMENT_BYTES
    writing.append(writer, b"small")
    writer.close()
    assert writing.values_of(writing.read_all(tmp_path, durable_seq=2)) == [value, b"small"]


@pytest.mark.parametrize("values", [[], [b"other"], [b"a much longer value " * 50]])
def test_a_frame_that_was_cut_never_comes_back(tmp_path: Path, values: list[bytes]) -> None:
    writer = writing.open_writer(tmp_path)
    writing.append(writer, b"one")
    position, next_seq = writer.position, writer.next_seq
    writer.append(writing.commit_of(b"refused, and of some length", b"and another"))
    writer.cut(position, next_seq)
    assert (writer.position, writer.next_seq, writer.committed_seq) == (position, next_seq, 1)
    for value in values:
        writing.append(writer, value)
    writer.sync()
    writer.abandon()  # as a crash leaves it
    assert writing.values_of(writing.read_all(tmp_path, durable_seq=1 + len(values))) == [
        b"one",
        *values,
    ]


def test_a_failed_sync_is_final_and_never_asked_again() -> None:
    calls = len(sim_calls()) + 2
    disk = SimDisk(errors={calls: errno.EIO})
    writer = sim_writer(disk)
    writing.append(writer, b"one")
    for _ in range(2):
        with pytest.raises(DurabilityError, match=r"0000000001.seg.*failed to keep"):
            writer.sync()
        assert disk.calls[-1] == "sync"
        assert len(disk.calls) == calls
    with pytest.raises(DurabilityError):
        writer.append(writing.commit_of(b"two"))
    with pytest.raises(DurabilityError):
        writer.cut(64, 1)
    with pytest.raises(DurabilityError):
        writing.rotate(writer)
    assert writer.durable_seq == 0
    assert len(disk.calls) == calls


def sim_calls() -> list[str]:
    """What making the first segment asks of the disk."""
    disk = SimDisk()
    sim_writer(disk)
    return disk.calls


@pytest.mark.parametrize("number", [1, 2])
def test_a_failed_cut_is_final(number: int) -> None:
    written = len(sim_calls()) + 1
    disk = SimDisk(errors={written + number: errno.EIO})
    writer = sim_writer(disk)
    writer.append(writing.commit_of(b"one"))
    with pytest.raises(DurabilityError):
        writer.cut(64, 1)
    with pytest.raises(DurabilityError):
        writer.append(writing.commit_of(b"one"))
    assert writer.durable_seq == 0


@pytest.mark.parametrize("call", ["create", "allocate", "sync", "write"])
@pytest.mark.parametrize("urgent", [False, True], ids=["ordinary", "urgent"])
def test_a_full_disk_at_any_step_of_a_rotation_leaves_the_old_segment_usable(
    call: str, urgent: bool
) -> None:
    whole = SimDisk()
    writer = sim_writer(whole)
    writing.append(writer, b"one")
    writer.sync()
    before = len(whole.calls)
    writing.rotate(writer, urgent=urgent)
    steps = [at for at, name in enumerate(whole.calls, start=1) if at > before and name == call]
    for full in steps:
        if is_final_sync(whole.calls, full):
            continue
        disk = SimDisk(errors={full: errno.ENOSPC})
        writer = sim_writer(disk)
        writing.append(writer, b"one")
        writer.sync()
        with pytest.raises(OSError, match="No space") as caught:
            writing.rotate(writer, urgent=urgent)
        assert not isinstance(caught.value, DurabilityError)
        assert set(disk.names("/journal")) <= {"0000000001.seg", "spare"}
        assert (writer.segment, writer.header) == (1, writing.header())
        writing.append(writer, b"two")
        writing.rotate(writer, urgent=urgent)  # the space is there again
        writing.append(writer, b"three")
        writer.sync()
        assert sim_values(disk) == [b"one", b"two", b"three"]


def is_final_sync(calls: list[str], number: int) -> bool:
    """Says whether a call syncs the new segment itself: that must not fail for any reason."""
    return calls[number - 2 : number] == ["write", "sync"]


def test_a_failed_directory_sync_at_rotation_is_final() -> None:
    """Nobody can tell whether the new segment has its name: the old one must not grow."""
    disk = SimDisk()
    writer = sim_writer(disk)
    writing.append(writer, b"one")
    writing.rotate(writer)
    *_, segment, spare = [at for at, name in enumerate(disk.calls, 1) if name == "sync_directory"]
    for number in (segment, spare):
        disk = SimDisk(errors={number: errno.EIO})
        writer = sim_writer(disk)
        writing.append(writer, b"one")
        with pytest.raises(DurabilityError):
            writing.rotate(writer)
        assert disk.calls[-1] == "sync_directory"
        with pytest.raises(DurabilityError):
            writer.append(writing.commit_of(b"two"))


def test_a_new_segment_counts_only_under_its_last_name() -> None:
    made = sim_calls()
    assert made[2:] == ["create", "allocate", "write", "sync", "rename", "sync_directory"]
    for calls in range(3, len(made)):
        disk = SimDisk(crash_at=calls)
        with pytest.raises(SimCrash):
            sim_writer(disk)
        disk.process_crash()
        for name in disk.names("/journal"):
            if not name.endswith(frames.UNFINISHED):
                assert Journal(disk, "/journal").segments == [writing.header()]
