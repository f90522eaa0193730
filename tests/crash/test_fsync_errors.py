"""A disk that fails to sync: the daemon acknowledges nothing more, never asks again, and ends."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from fjord.cli.output import EXIT_DISK, EXIT_USAGE
from tests.acceptance.daemon import FJORD
from tests.crash import tracing
from tests.crash.ext4 import Cut, Ext4
from tests.crash.test_power_cut import DISK_MIB, Load, life_on
from tests.crash.world import make_script

pytestmark = pytest.mark.strace

SYNCS = ("fdatasync", "fsync")
SCRIPT = make_script(2, 60)
LONG_SCRIPT = make_script(2, 200)  # long enough to be packed
PARTS = 2
SAMPLE = 6
RARE_MAX = 8


def sync_points(folder: Path) -> list[tracing.Point]:
    """Returns all calls of a whole life that wait for the disk."""
    life, player = tracing.Life(data=folder / "data", log=folder / "log"), tracing.Player()
    with tracing.TracedDaemon(life, *tracing.trace()) as traced:
        assert player.play(traced, SCRIPT)
        assert traced.stop() == 0
        return [point for point in tracing.points(traced.calls()) if point.name in SYNCS]


def check_calls_after_failure(calls: list[tracing.TracedCall]) -> None:
    """Asserts that nothing is acknowledged after a failed sync, and that none is made again."""
    failed = next(number for number, call in enumerate(calls) if call.is_injected)
    path = calls[failed].path
    later = calls[failed + 1 :]
    assert [call for call in later if call.name in SYNCS and call.path == path] == []
    replies = [
        call for call in later if call.name in tracing.REPLY_CALLS and "socket:" in call.path
    ]
    assert replies == []


def check_last_words(log: str) -> None:
    """Asserts that the end is explained by one line, not by a traceback."""
    assert "Traceback" not in log
    (line,) = re.findall("^fjord: .*$", log, flags=re.MULTILINE)
    assert re.search("cannot be synced|cannot be opened|failed|not clean", line)
    assert re.search("Input/output error|No space left|quota exceeded", line)


def fail_sync(
    folder: Path, point: tracing.Point, what: str, *, for_ever: bool = False, flaw: str = ""
) -> None:
    """Plays the script on a disk that fails at one point, and looks at the end of the daemon."""
    folder = folder / f"{point.name}-{point.number}"
    folder.mkdir()
    life, player = (
        tracing.Life(data=folder / "data", log=folder / "log", flaw=flaw),
        tracing.Player(),
    )
    with tracing.noted(f"replay: fail_sync(folder, {point}, {what!r}, for_ever={for_ever})"):
        options = point.inject(what, for_ever=for_ever)
        with tracing.TracedDaemon(life, *options) as traced:
            lived = traced.is_ready and player.play(traced, SCRIPT)
            code = traced.stop() if lived else traced.wait()
        # Before it serves there is nothing to lose, and it may say that it cannot be opened.
        assert code == EXIT_DISK or (code == EXIT_USAGE and not traced.is_ready), traced.log()
        check_last_words(traced.log())
        check_calls_after_failure(traced.calls())
        player.check(life)


@pytest.mark.req("FJ-16", "FJ-18")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_sync_that_fails_once_is_the_end(part: int, tmp_path: Path) -> None:
    found = sync_points(tmp_path)
    assert len(found) > len(SCRIPT)
    for point in found[part :: 2 * PARTS]:
        fail_sync(tmp_path, point, "error=EIO")


def test_syncs_that_fail_for_ever_are_the_end(tmp_path: Path) -> None:
    for point in sync_points(tmp_path)[1::SAMPLE]:
        fail_sync(tmp_path, point, "error=EIO", for_ever=True)


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT"])
@pytest.mark.parametrize("number", [1, 2, 20, 50])
def test_a_full_disk_that_a_sync_meets_is_the_end_too(
    error: str, number: int, tmp_path: Path
) -> None:
    life, player = tracing.Life(data=tmp_path / "data", log=tmp_path / "log"), tracing.Player()
    with tracing.TracedDaemon(life) as traced:
        traced.attach(*tracing.Point("fdatasync", number).inject(f"error={error}"))
        assert not player.play(traced, SCRIPT)
        assert traced.wait() == EXIT_DISK, traced.log()
    check_last_words(traced.log())
    check_calls_after_failure(traced.calls())
    player.check(life)


@pytest.mark.parametrize("number", [1, 2, 20, 50])
def test_a_write_that_fails_is_the_end(number: int, tmp_path: Path) -> None:
    assert fail_call(tmp_path, tracing.Point("pwrite64", number))


@pytest.mark.parametrize("name", ["fallocate", "ftruncate", "rename"])
def test_a_rare_call_that_fails_is_the_end_or_does_no_harm(name: str, tmp_path: Path) -> None:
    for number in range(1, RARE_MAX):
        folder = tmp_path / str(number)
        folder.mkdir()
        if not fail_call(folder, tracing.Point(name, number)):
            break
    assert number > 1


def fail_call(folder: Path, point: tracing.Point) -> bool:
    """Lets a call of a daemon that serves fail; says whether there is such a call."""
    life, player = tracing.Life(data=folder / "data", log=folder / "log"), tracing.Player()
    with tracing.noted(f"replay: fail_call(folder, {point})"):
        with tracing.TracedDaemon(life) as traced:
            traced.attach(*point.inject("error=EIO"))
            goes_on = player.play(traced, LONG_SCRIPT)
            code = traced.stop() if goes_on else traced.wait()
        if not goes_on or code or point.name == "pwrite64":
            assert code == EXIT_DISK, traced.log()
            check_last_words(traced.log())
        player.check(life)
    return any(call.is_injected for call in traced.calls())


def test_the_search_finds_a_daemon_that_syncs_again(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="0 == 3"):
        fail_sync(tmp_path, tracing.Point("fdatasync", 20), "error=EIO", flaw="syncs again")


def test_a_sync_that_fails_under_load_ends_every_session(tmp_path: Path) -> None:
    life, load = tracing.Life(data=tmp_path / "data", log=tmp_path / "log"), Load()
    with tracing.TracedDaemon(life) as traced:
        load.check(traced)
        with load.run(traced, 0):
            load.wait_for(20)
            traced.attach(*tracing.Point("fdatasync", 10).inject("error=EIO"))
            assert traced.wait() == EXIT_DISK, traced.log()
        check_last_words(traced.log())
        check_calls_after_failure(traced.calls())
    with tracing.TracedDaemon(life) as traced:
        load.check(traced)


@pytest.mark.root
@pytest.mark.loop
@pytest.mark.parametrize("cut", Cut)
def test_what_is_served_after_a_failed_sync_survives_a_power_cut(cut: Cut, tmp_path: Path) -> None:
    # A sync that strace lets fail is not made: what was written is in the page cache only.
    for number in (12, 30, 50):
        folder = tmp_path / str(number)
        folder.mkdir()
        player = tracing.Player()
        with tracing.noted(f"at the fdatasync number {number}"), Ext4(folder, mib=DISK_MIB) as disk:
            options = tracing.Point("fdatasync", number).inject("error=EIO")
            with tracing.TracedDaemon(life_on(disk, folder, boot=1), *options) as traced:
                assert not player.play(traced, SCRIPT)
                assert traced.wait() == EXIT_DISK, traced.log()
            player.check(life_on(disk, folder, boot=1))
            disk.cut_power(cut)
            disk.unmount()
            disk.mount()
            player.check(life_on(disk, folder, boot=2))


def test_the_command_ends_with_code_3_and_one_line(tmp_path: Path) -> None:
    trace_path, log_path = tmp_path / "strace", tmp_path / "log"
    options = ["-f", "-y", "-s", "0", "-o", str(trace_path)]
    options += tracing.Point("fdatasync", 9).inject("error=EIO")
    command = [*FJORD, "serve", "--data", str(tmp_path / "data"), "--listen", "0"]
    with log_path.open("w") as log:
        served = subprocess.Popen(
            ["strace", *options, *command], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert served.stdout is not None
        url = served.stdout.readline().split()[1]
        with (
            pytest.raises(tracing.GONE),
            tracing.connected_to(url, os.pidfd_open(served.pid)) as db,
        ):
            for number in range(20):
                db.kv().set("key", number)
        assert served.wait(tracing.DEADLINE_SECONDS) == EXIT_DISK
    finally:
        served.kill()
        served.communicate()
    check_last_words(log_path.read_text())
    check_calls_after_failure(tracing.parse_trace(trace_path.read_text()))
