"""`fjord kestrel pack`: a directory of Kestrel's is made small, and means the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fjord.cli.commands import app
from fjord.disk import LocalDisk
from fjord.kestrel import codec, collection
from fjord.kestrel.codec import Dialect, Op

ADD_MS = 1_700_000_000_000


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(app, ["kestrel", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def written(*made: Op) -> bytes:
    return b"".join(codec.encode(op, Dialect.V24) for op in made)


def item(data: bytes) -> Op:
    return codec.addx(data, add_ms=ADD_MS)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    removed = [item(b"removed"), codec.remove()] * 100
    (tmp_path / "cars.904").write_bytes(written(*removed, item(b"open"), item(b"waits")))
    (tmp_path / "cars").write_bytes(written(codec.remove_tentative(7)))
    (tmp_path / "bikes").write_bytes(written(item(b"one")))
    return tmp_path


def files(spool: Path) -> dict[str, int]:
    """Returns the sizes of all files but the lock and the sums."""
    return {one.name: one.stat().st_size for one in sorted(spool.iterdir()) if "~" not in one.name}


def test_files_become_one_with_what_is_in_the_queue(spool: Path) -> None:
    before = run("dump", spool, "--raw-queue").stdout_bytes
    result = run("pack", spool)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "bikes: 1 item, 0 open items; 24 bytes of files are 24 now",
        "cars: 1 item, 1 open item; 2956 bytes of files are 56 now",
    ]
    assert files(spool) == {"bikes": 24, "cars": 56}
    assert run("dump", spool, "--raw-queue").stdout_bytes == before
    assert run("verify", spool).exit_code == 0


def test_one_queue_in_another_dialect_as_json(spool: Path) -> None:
    result = run("pack", spool, "--queue", "cars", "--dialect", "kestrel-doc", "--json")
    assert json.loads(result.stdout) == {
        "queue": "cars",
        "items": 1,
        "open_items": 1,
        "bytes_before": 2956,
        "bytes_after": 61,
        "alerts": [],
    }
    assert (spool / "cars").read_bytes()[0] == codec.Opcode.SAVE_XID


def test_damage_is_kept_and_told(spool: Path) -> None:
    with (spool / "cars.904").open("ab") as file:
        file.write(b"\x63damaged")
    result = run("pack", spool)
    assert result.exit_code == 1
    assert "99 is no opcode; 8 bytes are kept in ~~corrupt/cars.904\n" in result.stderr
    assert files(spool) == {"bikes": 24, "cars": 56}
    assert files(spool / "~~corrupt") == {"cars.904": 8}
    assert run("pack", spool).exit_code == 0
    told = run("verify", spool).stdout
    assert "\n~~corrupt/cars.904 keeps what could not be read of a queue\n" in told
    assert "~~lock" not in told  # that is ours


def test_what_cannot_be_packed_is_refused(spool: Path, tmp_path: Path) -> None:
    assert run("pack", spool, "--queue", "boats").exit_code == 1
    assert run("pack", spool, "--dialect", "old").exit_code == 2
    assert run("pack", tmp_path / "nowhere").exit_code == 2
    with collection.locked(LocalDisk(), str(spool)):
        assert run("pack", spool).exit_code == 2
    assert files(spool) == {"bikes": 24, "cars": 5, "cars.904": 2951}


def test_a_directory_that_cannot_be_locked_is_refused_in_a_sentence(spool: Path) -> None:
    (spool / "~~lock").mkdir()  # as if there were no right to write
    result = run("pack", spool)
    assert result.exit_code == 2
    assert result.stderr == f"fjord: cannot open {spool}: Is a directory\n"
    assert files(spool) == {"bikes": 24, "cars": 5, "cars.904": 2951}
