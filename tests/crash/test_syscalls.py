"""The real daemon, killed by strace at its system calls: nothing acknowledged is lost.

The search first plays a script to its end to see the calls of a whole life, from the making of
the directory to the clean stop.  Then it plays it again for each call that is to be the last.
"""

from __future__ import annotations

import itertools
import signal
import time
from pathlib import Path

import pytest

from fjord.errors import Code, CorruptionError, RefusedError
from tests.crash import tracing
from tests.crash.world import KEYS, TABLE, make_script

pytestmark = pytest.mark.strace

SCRIPT_LENGTH = 200
SEED = 1
PARTS = 2
# Of the calls that each step makes, every so many-th is a point to die at.
ROUTINE_STEP = 29


def whole_life(folder: Path, seed: int) -> list[tracing.TracedCall]:
    """Plays a script to its end; returns all calls of the daemon."""
    life, player = tracing.Life(data=folder / "data", log=folder / "log"), tracing.Player()
    with tracing.TracedDaemon(life, *tracing.trace()) as traced:
        assert player.play(traced, make_script(seed, SCRIPT_LENGTH))
        assert traced.stop() == 0
        return traced.calls()


def survive_kill(folder: Path, seed: int, point: tracing.Point, flaw: str = "") -> bool:
    """Plays a script until a point and looks at what is left; says whether it came there."""
    folder = folder / f"{point.name}-{point.number}"
    folder.mkdir()
    life, player = (
        tracing.Life(data=folder / "data", log=folder / "log", flaw=flaw),
        tracing.Player(),
    )
    with tracing.noted(f"replay: survive_kill(folder, {seed}, {point})"):
        with tracing.TracedDaemon(life, *point.inject("signal=KILL")) as traced:
            if traced.is_ready:
                player.play(traced, make_script(seed, SCRIPT_LENGTH))
            code = traced.stop()
        assert code in (0, -signal.SIGKILL), traced.log()
        player.check(life)
    return code != 0


@pytest.mark.req("FJ-16", "FJ-18")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_kill_at_any_call_keeps_exactly_what_was_acknowledged(part: int, tmp_path: Path) -> None:
    wanted = tracing.chosen(tracing.points(whole_life(tmp_path, SEED)), ROUTINE_STEP)[part::PARTS]
    killed = [survive_kill(tmp_path, SEED, point) for point in wanted]
    # What a daemon does by itself depends on time, so that a few points may not come again.
    assert sum(killed) >= 0.9 * len(wanted) > 20


def test_the_script_rotates_and_packs(tmp_path: Path) -> None:
    calls = whole_life(tmp_path, SEED)
    assert len(tracing.points(calls)) > 3 * SCRIPT_LENGTH
    made = [call for call in calls if call.name == "rename" and '.seg")' in call.rest]
    gone = [
        call
        for call in calls
        if (call.name == "unlink" and '.seg")' in call.rest)
        or (call.name == "rename" and '.seg", ' in call.rest)
    ]
    assert len(made) >= 4
    assert gone, "no segment was packed"


def test_a_recovery_that_is_killed_at_each_of_its_calls_loses_nothing(tmp_path: Path) -> None:
    life, player = tracing.Life(data=tmp_path / "data", log=tmp_path / "log"), tracing.Player()
    with tracing.TracedDaemon(life) as traced:
        assert player.play(traced, make_script(SEED, SCRIPT_LENGTH))
        traced.kill()
    killed = 0
    for name in tracing.DISK_CALLS:
        for number in itertools.count(1):
            with tracing.TracedDaemon(
                life, *tracing.Point(name, number).inject("signal=KILL")
            ) as traced:
                is_over = traced.is_ready
                traced.kill()
            if is_over:
                break
            killed += 1
            with tracing.noted(f"after a recovery that was killed at {name} number {number}"):
                player.check(life)
    assert killed > 10


def test_the_search_finds_a_daemon_that_writes_late(tmp_path: Path) -> None:
    # That it was acknowledged is published, so the missing frame counts as damage.
    with pytest.raises(CorruptionError, match="is not readable"):
        survive_kill(tmp_path, SEED, tracing.Point("pwrite64", 20), flaw="writes late")


def test_calls_that_are_interrupted_are_made_again(tmp_path: Path) -> None:
    life, player = tracing.Life(data=tmp_path / "data", log=tmp_path / "log"), tracing.Player()
    interrupted = "pwrite64,fdatasync,fsync,fallocate"
    options = (*tracing.trace(), "-e", f"inject={interrupted}:error=EINTR:when=2+3")
    with tracing.TracedDaemon(life, *options) as traced:
        assert player.play(traced, make_script(SEED, SCRIPT_LENGTH)), traced.log()
        assert traced.stop() == 0
        injected = {call.name for call in traced.calls() if call.is_injected}
    assert injected == set(interrupted.split(","))
    player.check(life)


def test_a_read_that_fails_is_refused_and_the_next_one_served(tmp_path: Path) -> None:
    life, player = tracing.Life(data=tmp_path / "data", log=tmp_path / "log"), tracing.Player()
    with tracing.TracedDaemon(life) as traced:
        player.play(traced, make_script(SEED, 20))
        traced.stop()
    key = max(player.acknowledged, key=lambda key: len(player.acknowledged[key]))
    with tracing.TracedDaemon(life) as traced, tracing.connected(traced) as db:
        traced.attach("-e", "trace=pread64", "-e", "inject=pread64:error=EIO:when=1")
        with pytest.raises(RefusedError) as refusal:
            db.kv(TABLE).get(key)
        assert refusal.value.code is Code.FAILED
        assert db.kv(TABLE).get_many(KEYS) == player.acknowledged
        assert traced.stop() == 0


@pytest.mark.soak
def test_scripts_without_end_survive_a_kill_at_every_call(
    tmp_path: Path, soak_seconds: float
) -> None:
    deadline = time.monotonic() + soak_seconds
    killed = 0
    for seed in itertools.count(1_000):
        folder = tmp_path / str(seed)
        folder.mkdir()
        for point in tracing.points(whole_life(folder, seed)):
            killed += survive_kill(folder, seed, point)
        print(f"seed {seed}: {killed} kills so far")
        if time.monotonic() > deadline:
            break
    assert killed > 0
