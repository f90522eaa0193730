"""What the command does when nobody takes what it prints, and that its help has examples."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import fjord
from fjord.cli.commands import app
from tests.acceptance.daemon import FJORD


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


def verbs(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yields each verb below a command, and its help."""
    if not hasattr(command, "commands"):
        yield path, command.help
        return
    for name, one in command.commands.items():
        yield from verbs(one, f"{path} {name}")


def test_every_verb_has_an_example() -> None:
    found = dict(verbs(typer.main.get_command(app), "fjord"))
    assert len(found) > 80
    assert [verb for verb, text in found.items() if f"Example: {verb}" not in text] == []
