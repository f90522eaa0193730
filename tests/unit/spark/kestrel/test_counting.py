"""What an import will find in a queue."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from fjord import limits
from fjord.errors import CorruptionError, DirectoryError
from fjord.kestrel import codec
from fjord.spark.kestrel import tasks
from fjord.spark.kestrel.tasks import Counted
from tests.unit.spark.kestrel.journals import ADD_MS, item, put


def test_a_queue_is_counted(tmp_path: Path) -> None:
    large = bytes(limits.VALUE_BYTES_MAX + 1)
    path = put(
        tmp_path,
        "cars",
        item(b"one"),
        item(b"over", expiry_ms=ADD_MS),
        item(b"lives", expiry_ms=ADD_MS + 1),
        item(large),
        item(large, expiry_ms=1),
        codec.remove_tentative(1),
    )
    read: list[int] = []
    found = tasks.count(str(tmp_path), "cars", now_ms=ADD_MS, on_bytes=read.append)
    assert found == Counted(
        queue="cars",
        items=5,
        bytes=12 + 2 * len(large),
        open=1,
        expired=2,
        too_large=1,
        largest_bytes=len(large),
        skipped_bytes=0,
        crc=zlib.crc32(path.read_bytes()),
        size=path.stat().st_size,
    )
    assert sum(read) == path.stat().st_size
    assert not found.is_empty


@pytest.mark.parametrize("made", [(), (item(b"over", expiry_ms=1),), (item(b"a"), codec.remove())])
def test_a_queue_of_which_nothing_lives_is_empty(
    tmp_path: Path, made: tuple[codec.Op, ...]
) -> None:
    put(tmp_path, "cars", *made)
    assert tasks.count(str(tmp_path), "cars", now_ms=ADD_MS).is_empty


def test_damage_is_refused_or_counted(tmp_path: Path) -> None:
    path = put(tmp_path, "cars", item(b"a"))
    path.write_bytes(path.read_bytes() + b"\x63damage")
    with pytest.raises(CorruptionError, match="cars"):
        tasks.count(str(tmp_path), "cars", now_ms=ADD_MS)
    found = tasks.count(str(tmp_path), "cars", now_ms=ADD_MS, skips_damage=True)
    assert (found.items, found.skipped_bytes) == (1, 7)


def test_a_queue_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match="have changed"):
        tasks.count(str(tmp_path), "cars", now_ms=ADD_MS)
