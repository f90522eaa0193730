from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.disk import LocalDisk
from fjord.errors import CorruptionError, DirectoryError
from fjord.kestrel import codec, inspect, reader
from fjord.kestrel.codec import Op
from fjord.kestrel.inspect import Contents
from fjord.kestrel.reader import ReadOptions
from fjord.testing.disk import SimDisk
from tests.unit.kestrel.vectors import Replayed, encoded


def put(directory: Path, name: str, *made: Op) -> None:
    (directory / name).write_bytes(encoded(*made))


def item(data: bytes, expiry_ms: int = 0) -> Op:
    return codec.addx(data, add_ms=1, expiry_ms=expiry_ms)


def look(directory: Path, memory_bytes_max: int = inspect.MEMORY_BYTES_MAX) -> Contents:
    survey = reader.survey(LocalDisk(), str(directory), "cars")
    return Contents(survey, ReadOptions(now_ms=5), memory_bytes_max=memory_bytes_max)


def data_of(found: Contents) -> list[bytes]:
    return [bytes(one.data) for one in found.items()]


@pytest.mark.req("KJ-01")
def test_what_is_left_is_handed_out_in_order(tmp_path: Path) -> None:
    put(tmp_path, "cars.904", item(b"1"), item(b"22", expiry_ms=9), item(b"333"))
    put(tmp_path, "cars", codec.remove(), item(b"4444"))
    found = look(tmp_path)
    assert (found.count, found.open_count, found.bytes, found.missed) == (3, 0, 9, 0)
    assert found.size == sum(len(path.read_bytes()) for path in tmp_path.iterdir())
    assert [(one.data, one.expiry_ms) for one in found.items()] == [
        (b"22", 9),
        (b"333", 0),
        (b"4444", 0),
    ]


@pytest.mark.req("KJ-08")
def test_what_was_open_comes_first_the_lowest_xid_at_the_head(tmp_path: Path) -> None:
    put(
        tmp_path,
        "cars",
        *map(item, (b"a", b"b", b"c")),
        codec.remove_tentative(8),
        codec.remove_tentative(7),
    )
    found = look(tmp_path)
    assert (found.count, found.open_count, found.bytes) == (3, 2, 3)
    assert [(one.data, one.xid) for one in found.items()] == [(b"b", 7), (b"a", 8), (b"c", 0)]


def test_nothing_is_written(tmp_path: Path) -> None:
    put(tmp_path, "cars.904.pack", item(b"1"))
    put(tmp_path, "cars.904", item(b"dead"))
    (tmp_path / "cars~~5").write_bytes(b"temporary")
    (tmp_path / "cars").write_bytes(encoded(item(b"2"), item(b"torn"))[:-1])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    found = look(tmp_path)
    assert data_of(found) == [b"1", b"2"]
    assert [file.is_torn for file in found.files] == [False, True]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_damage_is_told_and_what_can_be_read_is_handed_out(tmp_path: Path) -> None:
    (tmp_path / "cars.904").write_bytes(encoded(item(b"1")) + b"\xff" + encoded(item(b"x")))
    put(tmp_path, "cars", item(b"2"))
    for memory in (0, inspect.MEMORY_BYTES_MAX):
        found = look(tmp_path, memory_bytes_max=memory)
        assert [file.is_damaged for file in found.files] == [True, False]
        assert data_of(found) == [b"1", b"2"]


def test_files_are_checked_and_a_missing_one_is_damage(tmp_path: Path) -> None:
    for name in ("cars.1", "cars.3", "cars"):
        put(tmp_path, name, item(b"1"))
    look(tmp_path).check()
    reader.put_sums(LocalDisk(), str(tmp_path), "cars", {2: reader.Sum(22, 1)})
    with pytest.raises(CorruptionError, match=r"cars\.2 is damaged at byte 0: it is missing"):
        look(tmp_path).check()
    (tmp_path / "cars.1").write_bytes(b"\x63")
    with pytest.raises(CorruptionError, match=r"cars\.1 is damaged at byte 0"):
        look(tmp_path).check()


def test_there_is_no_such_queue(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert (found.count, found.size, data_of(found)) == (0, 0, [])


def test_crc_tells_whether_files_have_changed(tmp_path: Path) -> None:
    put(tmp_path, "cars.904", item(b"1"))
    put(tmp_path, "cars", item(b"2"))
    first = look(tmp_path).crc()
    assert look(tmp_path).crc() == first
    put(tmp_path, "cars", item(b"3"))
    assert look(tmp_path).crc() != first


def test_file_that_is_renamed_meanwhile_is_told(tmp_path: Path) -> None:
    put(tmp_path, "cars.904", *[item(b"1")] * 3)
    put(tmp_path, "cars", *[item(b"2")] * 3)
    found = look(tmp_path, memory_bytes_max=1)
    os.rename(tmp_path / "cars", tmp_path / "cars.905")
    with pytest.raises(DirectoryError, match="stop the writer"):
        data_of(found)


def test_bytes_are_told_as_they_are_read(tmp_path: Path) -> None:
    put(tmp_path, "cars.904", *[item(b"x" * 1000)] * 3000)
    put(tmp_path, "cars", item(b"2"))
    told: list[int] = []
    survey = reader.survey(LocalDisk(), str(tmp_path), "cars")
    found = Contents(survey, on_bytes=told.append)
    assert sum(told) == found.size
    assert len(told) > 3


@given(
    st.lists(
        st.sampled_from(
            [
                codec.addx(b"data", add_ms=1),
                codec.add(b"old"),
                codec.addx(b"", add_ms=2, expiry_ms=3),
                codec.add_xid(5, b"named", add_ms=4),
                codec.remove(),
                codec.remove_tentative(),
                codec.remove_tentative(5),
                codec.remove_tentative(6),
                codec.unremove(1),
                codec.unremove(5),
                codec.confirm_remove(5),
                codec.confirm_remove(6),
                codec.save_xid(5),
                codec.state_dump(7, 0),
                codec.proceed(5, b"next", add_ms=1_000_000_000_000),
            ]
        ),
        max_size=40,
    ),
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from([0, 1, 8, 1000]),
)
def test_contents_are_what_the_whole_replay_has(made: list[Op], cuts: list[int], most: int) -> None:
    disk = SimDisk()
    edges = [0, *sorted(min(cut, len(made)) for cut in cuts), len(made)]
    names = [f"cars.{number}" for number in range(len(edges) - 2)] + ["cars"]
    for name, low, high in zip(names, edges, edges[1:], strict=False):
        with contextlib.closing(disk.open(f"/{name}", writable=True, create=True)) as file:
            file.write(0, encoded(*made[low:high]))
    state = Replayed()
    for op in made:
        state.apply(op)
    found = Contents(reader.survey(disk, "/", "cars"), memory_bytes_max=most)
    expected: list[object] = [(state.open[xid].data, xid) for xid in sorted(state.open)]
    expected += [(item.data, 0) for item in state.queue]
    assert [(item.data, item.xid) for item in found.items()] == expected
    assert (found.count, found.missed) == (len(expected), state.missed)
