"""What must not go wrong around blocks: copies of a directory, scans, small tables, readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord import commands, limits
from fjord.commands import Refusal, Scanned
from fjord.disk import LocalDisk
from fjord.engine import ReadOnlyEngine, backup
from fjord.engine.backup import back_up, restore
from fjord.errors import Code
from tests.unit.engine.shore import Shore
from tests.unit.engine.stream_shell import Shell
from tests.unit.engine.world import open_at, settings


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    one = Shell(tmp_path / "data")
    yield one
    one.close()


def open_copy(shell: Shell, tmp_path: Path) -> Shell:
    """Returns the directory that a backup of a shell's is restored to, with the same blocks."""
    back_up(str(tmp_path / "data"), str(tmp_path / "copy"), settings(shell.clock))
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), settings(shell.clock))
    twin = Shell.__new__(Shell)
    twin._path, twin.clock, twin.shore = tmp_path / "new", shell.clock, Shore(shell.shore.store)
    twin.engine = open_at(twin._path, shell.clock)
    return twin


def test_a_restored_directory_finds_its_blocks_and_leaves_them_to_the_original(
    shell: Shell, tmp_path: Path
) -> None:
    shell.append("log", ("a", "1"), ("b", "2"))
    shell.seal()
    shell.tend()
    twin = open_copy(shell, tmp_path)
    assert twin.engine.attach_blocks() == shell.shore.store.location
    assert twin.read_all("log") == [("a", "1"), ("b", "2")]
    twin.append("log", ("c", "3"))
    mine = twin.seal()
    twin.run(commands.DropTable(name="log"))
    twin.tend()
    assert twin.shore.retire(twin.engine) == mine
    assert shell.read_all("log") == [("a", "1"), ("b", "2")]
    twin.close()


def test_a_file_that_is_replaced_while_it_is_backed_up_is_copied_whole(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data" / "blocks" / "log-1"
    folder.mkdir(parents=True)
    (folder / "_one.json").write_bytes(b"short")
    shell.append("log", ("a", "1"))
    names = LocalDisk.names

    def listed(disk: LocalDisk, path: str) -> list[str]:
        found = names(disk, path)
        if path == str(folder):
            (folder / "_new").write_bytes(b"much longer than before")
            (folder / "_new").rename(folder / "_one.json")
        return found

    monkeypatch.setattr(LocalDisk, "names", listed)
    manifest = back_up(str(tmp_path / "data"), str(tmp_path / "copy"), settings(shell.clock))
    assert [one.size for one in manifest.blocks] == [len(b"much longer than before")]
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), settings(shell.clock))
    copied = tmp_path / "new" / "blocks" / "log-1" / "_one.json"
    assert copied.read_bytes() == b"much longer than before"
    assert backup.read_manifest(LocalDisk(), str(tmp_path / "copy")) == manifest


def test_a_scan_does_not_leave_out_what_is_in_blocks(shell: Shell) -> None:
    shell.append("log", ("a", "1"))
    shell.seal()
    shell.tend()
    shell.pack()
    last = shell.append("log", ("b", "2"))
    begin = commands.Scan(table="log", start_seq=1, end_seq=0)
    refused = shell.engine.scan(begin)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.BAD_RANGE
    assert "cold blocks" in refused.text
    first_seq = shell.engine.stats()["first_seq"]
    found = shell.engine.scan(commands.Scan(table="log", start_seq=first_seq, end_seq=0))
    assert isinstance(found, Scanned)
    assert list(found.first_seqs)[-1] == last
    shell.engine.close()
    reader = ReadOnlyEngine(str(shell._path), settings(shell.clock))
    assert reader.scan(begin) == refused
    reader.close()


def test_a_table_with_little_to_say_waits_for_some_full_segments(shell: Shell) -> None:
    shell.append("quiet", ("a", "1"))
    for number in range(1, limits.SEAL_SEGMENTS + 1):
        assert shell.engine.sealing.plan_seal() is None
        shell.append("loud", ("a", str(number)))
        shell.engine.begin_segment()
    plan = shell.engine.sealing.plan_seal()
    assert plan is not None
    assert sorted(one.name for one in plan.ranges) == ["loud", "quiet"]
