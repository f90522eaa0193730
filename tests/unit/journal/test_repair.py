"""Repair keeps whatever can be read, says what is lost, and survives a crash at any step."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from fjord import disk as disks
from fjord import ops
from fjord.disk import Disk, LocalDisk
from fjord.errors import CorruptionError
from fjord.journal import inspect
from fjord.journal.inspect import DumpRow
from fjord.journal.reader import Journal
from fjord.journal.repair import Repaired, repair
from fjord.journal.writer import Commit, Writer
from fjord.ops import Op, Opcode
from fjord.testing import SimCrash, SimDisk
from tests.unit.journal.writing import NOW_US, SEGMENT_BYTES, append, header, rotate

SEQS = range(1, 10)


def build(disk: Disk, root: str) -> dict[int, tuple[int, int]]:
    """Segments 1 to 3 of three frames each; returns segment and offset of every seq."""
    disk.make_directory(f"{root}/journal")
    writer = Writer(disk, f"{root}/journal", header(), segment_bytes=SEGMENT_BYTES)
    writer.create()
    places = {}
    for seq in SEQS:
        places[seq] = (writer.segment, append(writer, b"value %d" % seq))
        if seq in (3, 6):
            rotate(writer, urgent=True)
    writer.close()
    disk.sync_directory(root)
    disk.sync_directory("/")
    return places


def path_of(root: str, segment: int) -> str:
    return f"{root}/journal/{segment:010d}.seg"


def smash(disk: Disk, path: str, offset: int) -> None:
    file = disk.open(path, writable=True)
    file.write(offset, bytes(one ^ 0xFF for one in file.read(offset, 4)))
    file.sync()
    file.close()


def mend(disk: Disk, root: str) -> list[Repaired]:
    return repair(disk, f"{root}/journal", f"{root}/quarantine", durable_seq=9)


def read(disk: Disk, root: str) -> list[str]:
    """Reads the journal as the engine does: strictly."""
    journal = Journal(disk, f"{root}/journal")
    assert journal.first_seq == 1
    assert [one.frame.first_seq for one in journal.frames(1, durable_seq=9)]
    rows = [step for step in inspect.dump(disk, f"{root}/journal") if isinstance(step, DumpRow)]
    return [
        f"lost {row.seq}+{row.fields['rows']!r}" if row.op == "LOST" else str(row.seq)
        for row in rows
    ]


Breaker = Callable[[Disk, str, dict[int, tuple[int, int]]], None]


def break_frame(seq: int, within: int = 0) -> Breaker:
    def action(disk: Disk, root: str, places: dict[int, tuple[int, int]]) -> None:
        segment, offset = places[seq]
        smash(disk, path_of(root, segment), offset + within)

    return action


def break_header(segment: int) -> Breaker:
    return lambda disk, root, places: smash(disk, path_of(root, segment), 24)


def cut(segment: int, seq: int) -> Breaker:
    def action(disk: Disk, root: str, places: dict[int, tuple[int, int]]) -> None:
        file = disk.open(path_of(root, segment), writable=True)
        file.truncate(places[seq][1] + 20)
        file.sync()

    return action


def unlink(segment: int) -> Breaker:
    def action(disk: Disk, root: str, places: dict[int, tuple[int, int]]) -> None:
        disk.remove(path_of(root, segment))
        disk.sync_directory(f"{root}/journal")

    return action


def misdirect(source: int, target: int) -> Breaker:
    """Writes a frame over another one's place, and leaves nothing where it belongs."""

    def action(disk: Disk, root: str, places: dict[int, tuple[int, int]]) -> None:
        (segment, offset), (other, other_offset) = places[source], places[target]
        file = disk.open(path_of(root, segment), writable=True)
        size = int.from_bytes(file.read(offset, 4), "little")
        data = file.read(offset, size)
        file.write(offset, bytes(64))
        file.sync()
        file = disk.open(path_of(root, other), writable=True)
        file.write(other_offset, data)
        file.sync()

    return action


BREAKS: dict[str, tuple[Breaker, list[str]]] = {
    "first frame": (break_frame(1), ["lost 1+1", *"23456789"]),
    "a body": (break_frame(5, 70), [*"1234", "lost 5+1", *"6789"]),
    "last of a segment": (break_frame(6), [*"12345", "lost 6+1", *"789"]),
    "last of all": (break_frame(9), [*"12345678", "lost 9+1"]),
    "a header": (break_header(2), [*"123456789"]),
    "the last header": (break_header(3), [*"123456789"]),
    "a cut": (cut(2, 5), [*"1234", "lost 5+2", *"789"]),
    "the last cut": (cut(3, 8), [*"1234567", "lost 8+2"]),
    "a missing segment": (unlink(2), [*"123", "lost 4+3", *"789"]),
    "the last one missing": (unlink(3), [*"123456", "lost 7+3"]),
    "the first one missing": (unlink(1), ["lost 1+3", *"456789"]),
    "misdirected": (misdirect(6, 4), [*"123", "lost 4+1", *"56789"]),
}


@pytest.fixture(params=BREAKS)
def broken(request: pytest.FixtureRequest) -> tuple[Breaker, list[str]]:
    return BREAKS[request.param]


def test_everything_whole_is_kept_and_seqs_stay_consecutive(
    tmp_path: Path, broken: tuple[Breaker, list[str]]
) -> None:
    disk, root = LocalDisk(), str(tmp_path)
    action, expected = broken
    action(disk, root, build(disk, root))
    with pytest.raises(CorruptionError):
        journal = Journal(disk, f"{root}/journal")
        list(journal.frames(1, durable_seq=9))
    (done,) = mend(disk, root)
    assert read(disk, root) == expected
    assert done.lost_rows == sum(int(one[-1]) for one in expected if one.startswith("lost"))
    assert inspect.verify(disk, f"{root}/journal", durable_seq=9).damages == []
    assert mend(disk, root) == [], "there is nothing left to repair"


def test_what_was_packed_and_is_damaged_is_put_aside(tmp_path: Path) -> None:
    disk, root = LocalDisk(), str(tmp_path)
    places = build(disk, root)
    note = ops.encode(Op(Opcode.PACKED, 0, 1, ((3,), (7,))))[0]
    writer = Writer(disk, f"{root}/journal", header(4, 10), segment_bytes=SEGMENT_BYTES)
    writer.create()
    writer.append(Commit(NOW_US, 78, [note], 1))
    writer.close()
    break_frame(2)(disk, root, places)
    done = mend(disk, root)
    assert [(one.segment, one.lost_rows) for one in done] == [(1, 0), (2, 0)]
    assert [Path(one.kept_in).name for one in done] == ["0000000001.seg", "0000000002.seg"]
    assert disk.names(f"{root}/journal") == ["0000000003.seg", "0000000004.seg"]
    assert inspect.verify(disk, f"{root}/journal", durable_seq=9).damages == []


def test_the_damaged_file_is_kept_as_it_was(tmp_path: Path) -> None:
    disk, root = LocalDisk(), str(tmp_path)
    break_frame(5)(disk, root, build(disk, root))
    damaged = Path(path_of(root, 2)).read_bytes()
    others = [Path(path_of(root, number)).read_bytes() for number in (1, 3)]
    (done,) = mend(disk, root)
    assert done == Repaired(
        segment=2,
        path=path_of(root, 2),
        kept_in=f"{root}/quarantine/0000000002.seg",
        frames=2,
        lost_rows=1,
    )
    assert Path(done.kept_in).read_bytes() == damaged
    assert [Path(path_of(root, number)).read_bytes() for number in (1, 3)] == others
    assert disk.names(f"{root}/journal") == [f"{number:010d}.seg" for number in (1, 2, 3)]


def test_a_whole_journal_and_a_torn_tail_are_left_alone(tmp_path: Path) -> None:
    disk, root = LocalDisk(), str(tmp_path)
    places = build(disk, root)
    assert mend(disk, root) == []
    smash(disk, path_of(root, 3), places[9][1])
    assert repair(disk, f"{root}/journal", f"{root}/quarantine", durable_seq=8) == []
    assert not Path(root, "quarantine").exists()


def test_without_second_names_the_damaged_file_is_copied() -> None:
    disk = SimDisk()
    break_frame(5)(disk, "", build(disk, ""))
    damaged = disks.read_whole(disk, path_of("", 2))
    before = len(disk.calls)
    twin = SimDisk()
    break_frame(5)(twin, "", build(twin, ""))
    mend(twin, "")
    link = twin.calls.index("link", before) + 1
    disk.errors[link] = errno.EPERM
    (done,) = mend(disk, "")
    assert disks.read_whole(disk, done.kept_in) == damaged
    assert read(disk, "") == [*"1234", "lost 5+1", *"6789"]


def test_a_full_disk_changes_nothing() -> None:
    disk = SimDisk()
    break_frame(5)(disk, "", build(disk, ""))
    disk.capacity = disk.used_bytes()
    damaged = disks.read_whole(disk, path_of("", 2))
    with pytest.raises(OSError, match="No space"):
        mend(disk, "")
    assert disks.read_whole(disk, path_of("", 2)) == damaged
    disk.capacity = None
    mend(disk, "")
    assert read(disk, "") == [*"1234", "lost 5+1", *"6789"]


@pytest.mark.parametrize("power", [True, False], ids=["power-cut", "process-crash"])
@pytest.mark.parametrize(
    "name", ["a body", "a header", "the last cut", "a missing segment", "the first one missing"]
)
def test_a_crash_at_any_step_leaves_the_damaged_segment_or_the_repaired_one(
    name: str, power: bool
) -> None:
    action, expected = BREAKS[name]
    disk = SimDisk()
    action(disk, "", build(disk, ""))
    before = len(disk.calls)
    mend(disk, "")
    steps = len(disk.calls) - before
    assert steps >= 5
    for step in range(1, steps + 1):
        for seed in range(8 if power else 1):
            disk = SimDisk(seed)
            action(disk, "", build(disk, ""))
            before_crash = inspect.verify(disk, "/journal", durable_seq=9)
            disk.crash_after(step)
            with pytest.raises(SimCrash):
                mend(disk, "")
            disk.power_cut() if power else disk.process_crash()
            after = inspect.verify(disk, "/journal", durable_seq=9)
            assert (after.damages == []) or (after.damages == before_crash.damages)
            mend(disk, "")
            assert read(disk, "") == expected, f"step {step} seed {seed}"


def test_a_segment_that_is_damaged_again_is_kept_again(tmp_path: Path) -> None:
    disk, root = LocalDisk(), str(tmp_path)
    break_frame(5)(disk, root, build(disk, root))
    mend(disk, root)
    smash(disk, path_of(root, 2), 64)
    (done,) = mend(disk, root)
    assert done.kept_in.endswith("0000000002.seg.2")
    assert read(disk, root) == ["1", "2", "3", "lost 4+1", "lost 5+1", *"6789"]
    assert len(disk.names(f"{root}/quarantine")) == 2


def test_what_is_no_file_is_put_aside(tmp_path: Path) -> None:
    disk, root = LocalDisk(), str(tmp_path)
    build(disk, root)
    Path(path_of(root, 2)).unlink()
    Path(path_of(root, 2)).mkdir()
    (done,) = mend(disk, root)
    assert Path(done.kept_in).is_dir()
    assert read(disk, root) == [*"123", "lost 4+3", *"789"]


def swap(one: int, other: int) -> Breaker:
    def action(disk: Disk, root: str, places: dict[int, tuple[int, int]]) -> None:
        disk.rename(path_of(root, one), f"{root}/journal/aside")
        disk.rename(path_of(root, other), path_of(root, one))
        disk.rename(f"{root}/journal/aside", path_of(root, other))
        disk.sync_directory(f"{root}/journal")

    return action


LARGER_BREAKS: dict[str, tuple[Breaker, list[str]]] = {
    "swapped": (swap(1, 3), [*"123456789"]),
    "misdirected to another file": (misdirect(5, 8), [*"1234567", "lost 8+1", "9"]),
}


@pytest.mark.parametrize("power", [True, False], ids=["power-cut", "process-crash"])
@pytest.mark.parametrize("name", LARGER_BREAKS)
def test_a_crash_at_any_step_leaves_every_frame_in_the_journal(name: str, power: bool) -> None:
    action, expected = LARGER_BREAKS[name]
    for step in itertools.count(1):
        disk = SimDisk(step)
        action(disk, "", build(disk, ""))
        disk.crash_after(step)
        try:
            mend(disk, "")
            break
        except SimCrash:
            disk.power_cut() if power else disk.process_crash()
        mend(disk, "")
        assert read(disk, "") == expected, f"step {step}"
    assert step > 10
