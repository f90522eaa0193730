from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from fjord.blocks.files import LocalTarget
from fjord.disk import Disk
from fjord.engine import backup
from fjord.engine import layout as layouts
from fjord.engine.backup import back_up, restore
from fjord.errors import CorruptionError, DirectoryError
from fjord.testing import SimClock
from tests.unit.engine.test_packing import KEYS, check, churn, settle
from tests.unit.engine.world import open_at, read, settings, write


def test_a_backup_beside_the_writer_is_what_was_durable(clock: SimClock, tmp_path: Path) -> None:
    engine = open_at(tmp_path / "data", clock)
    model = churn(engine, clock, 100)
    manifest = back_up(str(tmp_path / "data"), str(tmp_path / "copy"), settings(clock))
    assert manifest.seq == engine.durable_seq
    write(engine, clock, {KEYS[0]: b"after"})
    engine.close()
    assert restore(str(tmp_path / "copy"), str(tmp_path / "new"), settings(clock)) == manifest
    restored = open_at(tmp_path / "new", clock)
    check(restored, model)
    write(restored, clock, {KEYS[0]: b"goes on"})
    assert read(restored, KEYS[0]) == [b"goes on"]


def test_a_backup_taken_while_segments_are_packed_is_whole(clock: SimClock, tmp_path: Path) -> None:
    engine = open_at(tmp_path / "data", clock)
    model = churn(engine, clock, 150)
    done = threading.Event()

    def keep_packing() -> None:
        number = 0
        while not done.is_set():
            number += 1
            write(engine, clock, {b"other": b"%d" % number * 500})
            settle(engine)

    packer = threading.Thread(target=keep_packing)
    packer.start()
    try:
        for number in range(5):
            back_up(str(tmp_path / "data"), str(tmp_path / f"copy-{number}"), settings(clock))
    finally:
        done.set()
        packer.join()
    assert engine.stats()["packed_segments"] > 1
    for number in range(5):
        restore(str(tmp_path / f"copy-{number}"), str(tmp_path / f"new-{number}"), settings(clock))
        check(open_at(tmp_path / f"new-{number}", clock), model)


def test_a_segment_that_goes_behind_the_look_at_what_is_durable_is_noticed(
    clock: SimClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What says that the journal begins later would be behind the end of the copy."""
    engine = open_at(tmp_path / "data", clock)
    churn(engine, clock, 150)
    read_published, seeds = layouts.read_published, [9]
    models = []

    def late(*arguments: Any) -> Any:
        found = read_published(*arguments)
        if seeds:
            models.append(churn(engine, clock, 150, seed=seeds.pop()))
            settle(engine)
        return found

    monkeypatch.setattr(layouts, "read_published", late)
    before = engine.stats()["packed_segments"]
    back_up(str(tmp_path / "data"), str(tmp_path / "copy"), settings(clock))
    assert engine.stats()["packed_segments"] > before
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), settings(clock))
    check(open_at(tmp_path / "new", clock), models[0])


def test_a_backup_beside_a_rotation_is_whole(
    clock: SimClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments may be added between the look at them and anything that comes after it."""
    engine = open_at(tmp_path / "data", clock)
    model = churn(engine, clock, 10)
    check_journal = backup._check

    def late(*arguments: Any) -> Any:
        churn(engine, clock, 60, seed=9)
        return check_journal(*arguments)

    monkeypatch.setattr(backup, "_check", late)
    back_up(str(tmp_path / "data"), str(tmp_path / "copy"), settings(clock))
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), settings(clock))
    check(open_at(tmp_path / "new", clock), model)


def test_a_target_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    open_at(tmp_path / "data").close()
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "precious").touch()
    with pytest.raises(DirectoryError, match="not empty"):
        back_up(str(tmp_path / "data"), str(tmp_path / "copy"), settings())
    back_up(str(tmp_path / "data"), str(tmp_path / "good"), settings())
    with pytest.raises(DirectoryError, match="not empty"):
        restore(str(tmp_path / "good"), str(tmp_path / "copy"), settings())


def test_a_damaged_journal_is_not_backed_up_silently(clock: SimClock, tmp_path: Path) -> None:
    engine = open_at(tmp_path / "data", clock)
    churn(engine, clock, 100)
    engine.close()
    first = min((tmp_path / "data" / "journal").glob("*.seg"))
    data = bytearray(first.read_bytes())
    data[1000] ^= 1
    first.write_bytes(data)
    with pytest.raises(CorruptionError, match=first.name):
        back_up(str(tmp_path / "data"), str(tmp_path / "copy"), settings(clock))


def test_a_damaged_backup_is_not_restored(clock: SimClock, tmp_path: Path) -> None:
    engine = open_at(tmp_path / "data", clock)
    churn(engine, clock, 20)
    engine.close()
    back_up(str(tmp_path / "data"), str(tmp_path / "copy"), settings(clock))
    segment = min((tmp_path / "copy").glob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[1000] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptionError, match=segment.name):
        restore(str(tmp_path / "copy"), str(tmp_path / "new"), settings(clock))


def test_what_is_no_backup_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match="not a backup"):
        restore(str(tmp_path), str(tmp_path / "new"), settings())
    (tmp_path / backup.MANIFEST).write_text("{")
    with pytest.raises(CorruptionError, match="manifest"):
        restore(str(tmp_path), str(tmp_path / "new"), settings())
    (tmp_path / backup.MANIFEST).write_text(json.dumps({"version": 99}))
    with pytest.raises(DirectoryError, match="version 99"):
        restore(str(tmp_path), str(tmp_path / "new"), settings())
    with pytest.raises(DirectoryError, match="data directory"):
        back_up(str(tmp_path / "nothing"), str(tmp_path / "copy"), settings())


BLOCKS = {
    "events-1/a-1.parquet": b"rows",
    "events-1/_a-1.json": b"{}",
    "pages-2/b-2.parquet": b"more rows",
}


def with_blocks(tmp_path: Path) -> None:
    """Makes a data directory with files of blocks, and with what else may lie there."""
    clock = SimClock()
    engine = open_at(tmp_path / "data", clock)
    write(engine, clock, {KEYS[0]: b"value"})
    engine.close()
    others = {"sealing.lock": b"", "events-1/c-3.parquet.unfinished": b"half"}
    for name, data in (BLOCKS | others).items():
        path = tmp_path / "data" / "blocks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    back_up(str(tmp_path / "data"), str(tmp_path / "copy"), settings(clock))


def test_cold_blocks_of_the_directory_are_backed_up_and_restored(tmp_path: Path) -> None:
    with_blocks(tmp_path)
    restore(str(tmp_path / "copy"), str(tmp_path / "new"))
    root = tmp_path / "new" / "blocks"
    found = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == BLOCKS


@pytest.mark.req("SJ-19")
def test_a_block_that_is_overwritten_under_its_copy_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_blocks(tmp_path)
    copy, gone = backup._copy, "events-1/a-1.parquet"
    folder = LocalTarget(str(tmp_path / "data" / "blocks"))

    def copied(disk: Disk, source: str, *others: Any) -> tuple[int, int]:
        found = copy(disk, source, *others)
        if source.endswith(gone):
            folder.wipe(gone)
        return found

    monkeypatch.setattr(backup, "_copy", copied)
    manifest = back_up(str(tmp_path / "data"), str(tmp_path / "second"), settings())
    assert {f"{one.folder}/{one.name}" for one in manifest.blocks} == BLOCKS.keys() - {gone}
    assert not (tmp_path / "second" / "blocks" / gone).exists()


@pytest.mark.parametrize("folder", ["..", "/etc", "a/b", "", 5])
def test_a_manifest_leads_nowhere_else(tmp_path: Path, folder: object) -> None:
    with_blocks(tmp_path)
    path = tmp_path / "copy" / backup.MANIFEST
    found = json.loads(path.read_text())
    found["blocks"][0]["folder"] = folder
    path.write_text(json.dumps(found))
    with pytest.raises(CorruptionError, match="not a valid file name"):
        restore(str(tmp_path / "copy"), str(tmp_path / "new"))
