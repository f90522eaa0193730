"""What the command does when nobody takes what it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fjord

FJORD = (sys.executable, "-c", "from fjord.cli import main; main()")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with fjord.open(tmp_path / "data") as db:
        db.kv("many").set_many({f"key {number}": "x" * 100 for number in range(5_000)})
    return tmp_path / "data"


def test_an_output_on_a_full_disk_is_told_in_a_sentence(directory: Path) -> None:
    listing = [*FJORD, "kv", "list", "--table", "many", "--data", str(directory)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            listing, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    told = "fjord: cannot write to standard output or a file: No space left on device\n"
    assert done.stderr == told


def test_a_reader_that_goes_away_is_no_error_worth_a_word(directory: Path) -> None:
    listing = [*FJORD, "kv", "list", "--table", "many", "--data", str(directory)]
    with subprocess.Popen(listing, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"key 0\t")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1
