"""Verbs on a directory: what they say of one that is not as it should be, and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import fjord
from fjord.cli.commands import app
from tests.acceptance.daemon import FJORD


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with fjord.open(tmp_path / "data") as db:
        db.kv().set_many({"a": 1, "b": b"\xff", "c": "three"})
    return tmp_path / "data"


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def process(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*FJORD, *words], capture_output=True, text=True, check=False, timeout=60)


def damage(data: Path) -> Path:
    """Damages a frame that is not the last one."""
    (segment,) = (data / "journal").glob("*.seg")
    changed = bytearray(segment.read_bytes())
    changed[70] ^= 1
    segment.write_bytes(bytes(changed))
    return segment


def test_the_doctor_finds_nothing_in_a_whole_directory(data: Path) -> None:
    result = run("doctor", "--data", data)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "index and journal agree"
    found = json.loads(run("doctor", "--data", data, "--json").stdout)
    assert (found["difference_count"], found["differences"]) == (0, [])


def test_a_restored_directory_has_no_index_yet_which_is_no_fault(
    data: Path, tmp_path: Path
) -> None:
    assert run("backup", tmp_path / "backup", "--data", data).exit_code == 0
    done = run("restore", tmp_path / "backup", "--data", tmp_path / "new", "--json")
    assert json.loads(done.stdout)["bytes"] > 0
    result = run("doctor", "--data", tmp_path / "new")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has no valid index; the next start rebuilds it" in result.stderr
    assert run("doctor", "--data", tmp_path / "none").exit_code == 2


def test_nothing_but_results_is_printed_without_a_terminal(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for words in (
        ("doctor", "--data", data),
        ("journal", "verify", "--data", data),
        ("backup", copy, "--data", data),
        ("restore", copy, "--data", tmp_path / "new"),
    ):
        done = process(*words)
        assert (done.returncode, done.stderr) == (0, ""), words


def test_a_file_is_said_to_be_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    for words in (
        ("serve",),
        ("doctor",),
        ("kv", "get", "key"),
        ("kv", "set", "key", "value"),
        ("backup", tmp_path / "new"),
        ("journal", "verify"),
    ):
        result = run(*words, "--data", file)
        assert result.exit_code == 2
        assert f"{file} is a file, not a directory" in result.stderr


def test_a_directory_that_cannot_be_read_is_told_in_a_sentence(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "journal").symlink_to("journal")  # as if there were no right to read it
    for words in (
        ("doctor",),
        ("stats",),
        ("kv", "get", "key"),
        ("table", "list"),
        ("backup", tmp_path / "new"),
        ("journal", "verify"),
    ):
        result = run(*words, "--data", data)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"fjord: {data} cannot be opened: ")
        assert len(result.stderr.splitlines()) == 1


def test_a_journal_that_cannot_be_locked_is_not_repaired(data: Path) -> None:
    (data / "lock").unlink()
    (data / "lock").mkdir()
    result = run("journal", "repair", "--yes", "--data", data)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"fjord: {data} cannot be opened: ")


def test_a_copy_that_cannot_be_made_is_told_in_a_sentence(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    nowhere = tmp_path / "file" / "new"
    told = f"fjord: {nowhere} could not be written: [Errno 20] Not a directory: '{nowhere}'; "
    result = run("backup", nowhere, "--data", data)
    assert (result.exit_code, result.stderr) == (
        2,
        f"{told}remove a partial copy before you try again\n",
    )
    assert run("backup", tmp_path / "backup", "--data", data).exit_code == 0
    result = run("restore", tmp_path / "backup", "--data", nowhere)
    assert (result.exit_code, result.stderr) == (
        2,
        f"{told}remove a partial copy before you try again\n",
    )


def test_a_damaged_journal_ends_with_what_to_do(data: Path) -> None:
    path = damage(data)
    for words in (("serve", "--listen", "0"), ("kv", "set", "key", "value")):
        result = process(*words, "--data", data)
        assert result.returncode == 2
        assert str(path) in result.stderr
        advice = "see `fjord journal verify` and `fjord journal repair`."
        assert result.stderr.rstrip().endswith(advice)


def test_a_damaged_backup_is_not_to_be_repaired(data: Path, tmp_path: Path) -> None:
    assert run("backup", tmp_path / "backup", "--data", data).exit_code == 0
    (tmp_path / "backup" / "manifest.json").write_text("{")
    result = run("restore", tmp_path / "backup", "--data", tmp_path / "new")
    assert result.exit_code == 2
    assert "fjord journal repair" not in result.stderr


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("0.0.0.0:0", "neither authentication nor TLS"),
        ("example.com:17994", "neither authentication nor TLS"),
        ("127.0.0.1:99999", "out of range"),
        ("99999", "out of range"),
        ("127.0.0.1", "127.0.0.1 has no port"),
        ("127.0.0.1:", "127.0.0.1: has no port"),
        ("[::1]", "[::1] has no port"),
        ("fjord://127.0.0.1", "fjord://127.0.0.1 has no port"),
        ("x[/y]:1", "x[/y]"),
    ],
)
@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_an_address_that_cannot_be_meant_is_wrong_use(
    tmp_path: Path, option: str, listen: str, said: str
) -> None:
    result = run("serve", "--data", tmp_path / "data", option, listen)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_command_loads_only_what_it_needs() -> None:
    program = "import sys; from fjord.cli.commands import app; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    heavy = {"asyncio", "lmdb", "prometheus_client", "pyspark", "re2", "rich", "uvloop"}
    heavy |= {"fjord.engine", "fjord.journal", "fjord.server", "fjord.spark", "fjord.tables"}
    assert loaded & heavy == set()
