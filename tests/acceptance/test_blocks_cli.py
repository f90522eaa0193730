"""`fjord blocks` against a real daemon and a directory."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fjord
from fjord.cli.commands import app
from tests.acceptance.daemon import FJORD, Daemon

COUNT = 2_500


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as one:
        yield one


def run(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def found(result: Result) -> list[dict[str, Any]]:
    """Returns the objects that a command printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def fill(db: fjord.Database) -> None:
    events = db.create_stream("events", block_rows=1000)
    events.append_many([b"%d" % number for number in range(COUNT)])
    db.jobs("pages").push("http://example.com/a")


def location_of(daemon: Daemon) -> Path:
    with fjord.connect(daemon.url) as db:
        return Path(db.stream("events").blocks()[0].location.removeprefix("file://"))


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.req("KY-01", "KY-02")
def test_blocks_are_sealed_listed_verified_and_fetched(daemon: Daemon, tmp_path: Path) -> None:
    """In processes of their own, as a person would type it."""
    to = ("--to", daemon.url)
    with fjord.connect(daemon.url) as db:
        fill(db)

    def process(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*FJORD, "blocks", *words], capture_output=True, text=True, check=False, timeout=60
        )
        assert "Traceback" not in done.stderr
        return done

    assert process("list", "events", *to).stdout == ""
    assert process("seal", "events", *to).returncode == 0
    listed = process("list", "events", *to).stdout.splitlines()
    assert sum(int(line.split("\t")[2]) for line in listed) == COUNT
    whole = process("verify", *to)
    assert (whole.returncode, f"{COUNT} rows" in whole.stdout) == (0, True)
    copy = str(tmp_path / "copy")
    assert process("fetch", "events", "--into", copy, *to).returncode == 0
    assert process("verify", "--location", copy).stdout == whole.stdout
    read = subprocess.run(
        [*FJORD, "stream", "read", "events", *to], capture_output=True, check=True, timeout=60
    )
    assert read.stdout.count(b"\n") == COUNT


def test_blocks_in_json(daemon: Daemon) -> None:
    to = ("--to", daemon.url)
    with fjord.connect(daemon.url) as db:
        fill(db)
    assert found(run("blocks", "seal", "--json", *to)) == [{"table": None, "sealed": True}]
    listed = found(run("blocks", "list", "events", "--json", *to))
    assert sum(one["rows"] for one in listed) == COUNT
    for one, after in itertools.pairwise(listed):
        assert one["last"] + 1 == after["first"]
    verified = found(run("blocks", "verify", "events", "--json", *to))
    assert [(one["name"], one["rows"], one["verified"]) for one in verified] == [
        (one["name"], one["rows"], True) for one in listed
    ]
    jobs = found(run("blocks", "list", "pages", "--json", *to))
    assert [one["rows"] for one in jobs] == [1]


def test_damaged_and_missing_blocks_are_named(daemon: Daemon, tmp_path: Path) -> None:
    to = ("--to", daemon.url)
    with fjord.connect(daemon.url) as db:
        fill(db)
        db.seal("events")
    place = location_of(daemon)
    files = sorted(place.rglob("*.parquet"))
    damage(files[0])
    done = run("blocks", "verify", "events", *to)
    assert done.exit_code == 2
    assert f"{files[0]} is damaged: its checksum is" in done.stdout
    assert "1 damaged" in done.stdout
    assert "fjord journal" not in done.stderr
    told = found(run("blocks", "verify", "--location", str(place), "--json"))
    assert [one["verified"] for one in told] == [path != files[0] for path in files]
    fetched = run("blocks", "fetch", "events", "--into", str(tmp_path / "copy"), *to)
    assert (fetched.exit_code, "1 damaged" in fetched.stdout) == (2, True)
    copied = {path.name for path in (tmp_path / "copy").rglob("*.parquet")}
    assert copied == {path.name for path in files[1:]}
    files[0].unlink()
    gone = run("blocks", "verify", "events", *to)
    assert (gone.exit_code, str(files[0]) in gone.stdout) == (2, True)


def test_a_directory_is_sealed_without_a_daemon(tmp_path: Path) -> None:
    with fjord.open(tmp_path / "data") as db:
        fill(db)
    data = ("--data", str(tmp_path / "data"))
    assert run("blocks", "seal", *data).exit_code == 0
    listed = found(run("blocks", "list", "events", "--json", *data))
    assert sum(one["rows"] for one in listed) == COUNT
    assert run("blocks", "verify", *data).exit_code == 0
    last = found(run("stream", "tail", "events", "-n", "1", "--json", *data))
    assert last[0]["value"] == {"base64": "MjQ5OQ=="}


def test_what_is_not_there_is_said(daemon: Daemon, tmp_path: Path) -> None:
    to = ("--to", daemon.url)
    with fjord.connect(daemon.url) as db:
        db.create_stream("empty")
    assert run("blocks", "list", "empty", *to).exit_code == 0
    none = run("blocks", "verify", "empty", *to)
    assert (none.exit_code, "fjord blocks seal" in none.stderr) == (1, True)
    for verb in (("list", "mispelt"), ("seal", "mispelt"), ("verify", "mispelt")):
        done = run("blocks", *verb, *to)
        assert (done.exit_code, "mispelt" in done.stderr) == (1, True)
    nowhere = run("blocks", "verify", "--location", str(tmp_path / "none"))
    assert (nowhere.exit_code, "there is no block at" in nowhere.stderr) == (1, True)
    wrong = run("blocks", "verify", "--location", "nosuch://place")
    assert (wrong.exit_code, "is not accessible" in wrong.stderr) == (2, True)
    where = run("blocks", "fetch", "empty", *to)
    assert (where.exit_code, "--into" in where.stderr) == (2, True)


def test_what_was_passed_over_is_counted(tmp_path: Path) -> None:
    data, copy = ("--data", str(tmp_path / "data")), str(tmp_path / "copy")
    with fjord.open(tmp_path / "data") as db:
        fill(db)
        db.seal("events")
        count = len(db.blocks("events"))
    first, again = (run("blocks", "fetch", "events", "--into", copy, *data) for _ in range(2))
    assert f" fetched, {COUNT} rows, " in first.stdout
    assert "; 0 passed over, 0 damaged" in first.stdout
    told = f"0 blocks fetched, 0 rows, 0 bytes; {count} passed over, 0 damaged\n"
    assert again.stdout == told
    gone = next((tmp_path / "copy").rglob("*.parquet"))
    gone.unlink()
    objects = found(run("blocks", "fetch", "events", "--into", copy, "--json", *data))
    assert [(one["fetched"], one["problem"]) for one in objects].count((True, None)) == 1
    assert [(one["fetched"], one["problem"]) for one in objects].count((False, None)) == count - 1


def test_a_table_without_history_has_no_blocks(daemon: Daemon) -> None:
    with fjord.connect(daemon.url) as db:
        db.kv("settings").set("k", 1)
    for verb in ("list", "seal", "verify"):
        done = run("blocks", verb, "settings", "--to", daemon.url)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "WRONG_KIND" in done.stderr


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    blocks = ("files", "location", "reader", "rewriting", "sealing", "store")
    for name in blocks:
        monkeypatch.delitem(sys.modules, f"fjord.blocks.{name}", raising=False)
    for words in (("verify",), ("fetch", "--into", str(tmp_path / "copy"))):
        done = run("blocks", *words, "--location", str(tmp_path))
        assert (done.exit_code, done.stdout) == (1, "")
        assert "reading blocks needs fsspec: pip install 'fjord-journal[server]'" in done.stderr


@pytest.mark.parametrize("verb", ["list", "seal", "verify", "fetch"])
def test_every_verb_has_an_example(verb: str) -> None:
    assert f"Example: fjord blocks {verb}" in run("blocks", verb, "--help").stdout


def values(path: str, blocks: str | None = None) -> list[Any]:
    with fjord.open(path, blocks=blocks) as db:
        return [one.value for batch in db.stream("events").reader().batches() for one in batch]


ALL = [b"%d" % number for number in range(COUNT)]


def test_a_backup_has_the_blocks_of_its_directory(daemon: Daemon, tmp_path: Path) -> None:
    backup, new = (str(tmp_path / name) for name in ("backup", "new"))
    with fjord.connect(daemon.url) as db:
        fill(db)
        db.seal("events")
    told = run("backup", backup, "--data", str(daemon.path))
    assert (told.exit_code, "1 segments, 2 files of blocks" in told.stdout) == (0, True)
    assert run("restore", backup, "--data", new).exit_code == 0
    assert values(new) == ALL
    assert run("blocks", "verify", "--data", new).exit_code == 0


def test_blocks_that_are_elsewhere_are_fetched_beside_a_backup(tmp_path: Path) -> None:
    elsewhere, backup, new, copy = (
        str(tmp_path / name) for name in ("else", "back", "new", "copy")
    )
    with Daemon(tmp_path / "data", "--blocks", elsewhere) as daemon:
        with fjord.connect(daemon.url) as db:
            fill(db)
            db.seal()
        assert str(location_of(daemon)) == elsewhere
        assert run("backup", backup, "--data", str(daemon.path)).exit_code == 0
        assert run("blocks", "fetch", "--into", copy, "--to", daemon.url).exit_code == 0
    assert not (tmp_path / "data" / "blocks").exists()
    assert run("restore", backup, "--data", new).exit_code == 0
    assert values(new, copy) == ALL


def test_a_variable_says_where_the_blocks_of_a_directory_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FJORD_BLOCKS", str(tmp_path / "elsewhere"))
    data = ("--data", str(tmp_path / "data"))
    run("stream", "append", "events", "a", "b", *data)
    assert run("blocks", "seal", *data).exit_code == 0
    assert run("stream", "read", "events", *data).stdout.count("\n") == 2
    assert run("blocks", "verify", "--location", str(tmp_path / "elsewhere")).exit_code == 0
    (block,) = found(run("blocks", "list", "events", "--json", *data))
    assert block["location"] == str(tmp_path / "elsewhere")
