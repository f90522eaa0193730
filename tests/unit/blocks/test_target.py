"""Folders that jobs write to: files are made once, replaced whole, and their age is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from fjord.blocks import files
from fjord.blocks.files import LocalTarget, Target, target_at
from fjord.disk import LocalDisk
from fjord.testing import SimClock, SimCrash, SimDisk


@pytest.fixture(params=["folder", "url", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    locations = {
        "folder": str(tmp_path / "deep" / "down"),
        "url": f"file://{tmp_path}/deep/down",
        "memory": f"memory://{tmp_path.name}/{request.node.name}",
    }
    return target_at(locations[request.param])


def test_a_file_is_made_once(place: Target) -> None:
    place.make("inside/one", b"first")
    with pytest.raises(FileExistsError):
        place.make("inside/one", b"second")
    assert place.read("inside/one") == b"first"
    assert place.names("inside") == ["one"]


def test_a_file_is_replaced_whole(place: Target) -> None:
    place.replace("inside/one", b"a long text")
    place.replace("inside/one", b"short")
    assert place.read("inside/one") == b"short"
    assert place.size("inside/one") == 5
    with place.open("inside/one") as file:
        assert file.read() == b"short"


def test_what_is_not_there_has_no_names_and_cannot_be_read(place: Target) -> None:
    assert place.names() == []
    assert place.names("inside") == []
    with pytest.raises(FileNotFoundError):
        place.read("inside/one")
    place.remove("inside/one")
    assert place.names("inside") == []


class FullDisk(LocalDisk):
    """A disk on which no file gets a second name."""

    def link(self, old: str, new: str) -> None:
        raise OSError(28, "No space left on device")


def test_a_power_cut_leaves_a_file_whole_or_not_there() -> None:
    kept = 0
    for calls in range(1, 14):
        disk = SimDisk(seed=calls)
        place = LocalTarget("/target", disk=disk)
        place.make("inside/zero", b"there")
        disk.crash_after(calls)
        try:
            place.make("inside/one", b"first" * 300)
            is_made = True
        except SimCrash:
            is_made = False
        disk.power_cut()
        assert place.read("inside/zero") == b"there"
        is_there = "one" in place.names("inside")
        assert not is_there or place.read("inside/one") == b"first" * 300
        assert is_there or not is_made
        kept += is_there
    assert 0 < kept < 13


def test_names_tell_when_they_were_made() -> None:
    clock = SimClock(wall_us=1_800_000_000_000_000)
    one, two = files.stamp(clock), files.stamp(clock)
    assert one != two
    assert len(one) == 32
    assert files.stamped_us(f"batch-7-{one}") == 1_800_000_000_000_000
    assert files.stamped_us("batch-7") is None
