"""Messages with dates on an engine: what comes late loses, whatever happened to the node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Done, Entries
from fjord.engine import doctor
from fjord.streams import Mode
from tests.unit.engine.stream_shell import Shell, append
from tests.unit.engine.world import settings

SECOND = 1_000_000


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    opened.create("latest", mode=Mode.LATEST, history=False)
    yield opened
    opened.close()


def dated(shell: Shell, ago: float, *given: tuple[str, str]) -> commands.Append:
    """Returns an append of messages that are so many seconds old."""
    command = append("latest", *given)
    command.timestamps_us = [shell.clock.wall_us() - round(ago * SECOND)] * len(given)
    return command


def put(shell: Shell, ago: float, *given: tuple[str, str]) -> int:
    reply = shell.run(dated(shell, ago, *given))
    assert isinstance(reply, Done), reply
    return reply.seq


def dates(shell: Shell, *keys: bytes) -> list[int]:
    reply = shell.run(commands.Get(table="latest", keys=Strings.of(list(keys))))
    assert isinstance(reply, Entries)
    return list(reply.timestamps_us)


@pytest.mark.parametrize("what", ["restart", "rebuild", "pack", "pack and rebuild"])
def test_dates_outlive_what_happens_to_a_node(shell: Shell, tmp_path: Path, what: str) -> None:
    put(shell, 10, ("a", "1"), ("b", "1"))
    put(shell, 20, ("a", "late"), ("c", "1"))
    shell.append("latest", ("d", "1"))
    known = dates(shell, b"a", b"b", b"c", b"d")
    messages = shell.read_all("latest")
    moments = list(shell.read("latest").walls_us)
    if "pack" in what:
        shell.pack()
    if "rebuild" in what:
        shell.engine.close()
        found = doctor.examine(str(tmp_path), settings(shell.clock))
        assert not found.difference_count, found.differences
        (tmp_path / "index" / "data.mdb").unlink()
    if what != "pack":
        shell.restart()
    assert dates(shell, b"a", b"b", b"c", b"d") == known
    assert shell.read_all("latest") == messages == [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]
    assert list(shell.read("latest").walls_us) == moments
    put(shell, 15, ("a", "late"), ("b", "late"), ("c", "2"), ("d", "late"))
    assert shell.read_all("latest") == [("a", "1"), ("b", "1"), ("d", "1"), ("c", "2")]
