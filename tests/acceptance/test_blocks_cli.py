"""`fjord blocks` against a real daemon and a directory."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fjord
from tests.acceptance.daemon import Daemon
from tests.acceptance.shell import found, process, run

COUNT = 2_500
ALL = [b"%d" % number for number in range(COUNT)]


def fill(db: fjord.Database) -> None:
    db.create_stream("events", block_rows=1000).append_many(ALL)
    db.jobs("pages").push("http://example.com/a")


@pytest.fixture
def data(tmp_path: Path) -> tuple[str, str]:
    """The option that names a directory with messages, a job, and no block yet."""
    with fjord.open(tmp_path / "data") as db:
        fill(db)
    return ("--data", str(tmp_path / "data"))


def values(path: str, blocks: str | None = None) -> list[Any]:
    with fjord.open(path, blocks=blocks) as db:
        return [one.value for batch in db.stream("events").reader().batches() for one in batch]


@pytest.mark.req("KY-01", "KY-02")
def test_blocks_are_sealed_listed_verified_and_fetched(
    db: fjord.Database, to: tuple[str, str], tmp_path: Path
) -> None:
    """Some of it in processes of their own, as a person would type it."""
    fill(db)
    assert run("blocks", "list", "events", *to).stdout == ""
    assert process("blocks", "seal", "events", *to).returncode == 0
    listed = process("blocks", "list", "events", *to).stdout.splitlines()
    assert sum(int(line.split("\t")[2]) for line in listed) == COUNT
    whole = run("blocks", "verify", *to)
    assert (whole.exit_code, f"{COUNT} rows" in whole.stdout) == (0, True)
    copy = str(tmp_path / "copy")
    assert process("blocks", "fetch", "events", "--into", copy, *to).returncode == 0
    assert run("blocks", "verify", "--location", copy).stdout == whole.stdout
    assert run("stream", "read", "events", *to).stdout.count("\n") == COUNT


def test_blocks_of_a_directory_in_json(data: tuple[str, str]) -> None:
    assert found(run("blocks", "seal", "--json", *data)) == [{"table": None, "sealed": True}]
    listed = found(run("blocks", "list", "events", "--json", *data))
    assert sum(one["rows"] for one in listed) == COUNT
    assert all(one["last"] + 1 == after["first"] for one, after in itertools.pairwise(listed))
    verified = found(run("blocks", "verify", "events", "--json", *data))
    assert [(one["name"], one["rows"], one["verified"]) for one in verified] == [
        (one["name"], one["rows"], True) for one in listed
    ]
    assert [one["rows"] for one in found(run("blocks", "list", "pages", "--json", *data))] == [1]


def test_damaged_and_missing_blocks_are_named(data: tuple[str, str], tmp_path: Path) -> None:
    assert run("blocks", "seal", "events", *data).exit_code == 0
    place = tmp_path / "data" / "blocks"
    files = sorted(place.rglob("*.parquet"))
    damaged = bytearray(files[0].read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    files[0].write_bytes(damaged)
    done = run("blocks", "verify", "events", *data)
    assert done.exit_code == 2
    assert f"{files[0]} is damaged: its checksum is" in done.stdout
    assert "1 damaged" in done.stdout
    assert "fjord journal" not in done.stderr
    told = found(run("blocks", "verify", "--location", str(place), "--json"))
    assert [one["verified"] for one in told] == [path != files[0] for path in files]
    fetched = run("blocks", "fetch", "events", "--into", str(tmp_path / "copy"), *data)
    assert (fetched.exit_code, "1 damaged" in fetched.stdout) == (2, True)
    copied = {path.name for path in (tmp_path / "copy").rglob("*.parquet")}
    assert copied == {path.name for path in files[1:]}
    again = run("blocks", "fetch", "events", "--into", str(tmp_path / "copy"), *data)
    assert f"0 blocks fetched, 0 rows, 0 bytes; {len(files) - 1} skipped" in again.stdout
    files[0].unlink()
    gone = run("blocks", "verify", "events", *data)
    assert (gone.exit_code, str(files[0]) in gone.stdout) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("verify", "pages"), 1, "fjord blocks seal"),
        (("list", "mispelt"), 1, "mispelt"),
        (("seal", "mispelt"), 1, "mispelt"),
        (("verify", "--location", "none"), 1, "there is no block at"),
        (("verify", "--location", "nosuch://place"), 2, "is not accessible"),
        (("fetch", "pages"), 2, "--into"),
    ],
)
def test_what_is_not_there_is_said(
    data: tuple[str, str], words: tuple[str, ...], code: int, said: str
) -> None:
    done = run("blocks", *words, *(() if "--location" in words else data))
    assert (done.exit_code, said in done.stderr) == (code, True)


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    without = "import sys; sys.modules['fsspec'] = None; from fjord.cli import main; main()"
    for words in (("verify",), ("fetch", "--into", str(tmp_path / "copy"))):
        command = [sys.executable, "-c", without, "blocks", *words, "--location", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "reading blocks needs fsspec: pip install 'fjord-journal[server]'" in done.stderr


def test_a_backup_has_the_blocks_of_its_directory(data: tuple[str, str], tmp_path: Path) -> None:
    backup, new = (str(tmp_path / name) for name in ("backup", "new"))
    assert run("blocks", "seal", "events", *data).exit_code == 0
    told = run("backup", backup, *data)
    assert (told.exit_code, "1 segments, 2 files of blocks" in told.stdout) == (0, True)
    assert run("restore", backup, "--data", new).exit_code == 0
    assert values(new) == ALL
    assert run("blocks", "verify", "--data", new).exit_code == 0


def test_blocks_that_are_elsewhere_are_fetched_beside_a_backup(tmp_path: Path) -> None:
    elsewhere, backup, new, copy = (str(tmp_path / name) for name in ("else", "b", "new", "copy"))
    with Daemon(tmp_path / "data", "--blocks", elsewhere) as daemon:
        with fjord.connect(daemon.url) as db:
            fill(db)
            db.seal()
            assert db.stream("events").blocks()[0].location == elsewhere
        assert run("backup", backup, "--data", str(daemon.path)).exit_code == 0
        assert run("blocks", "fetch", "--into", copy, "--to", daemon.url).exit_code == 0
    assert not (tmp_path / "data" / "blocks").exists()
    assert run("restore", backup, "--data", new).exit_code == 0
    assert values(new, copy) == ALL
