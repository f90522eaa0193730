"""Writer, forwarder and daemon, each killed by strace at its system calls: nothing is lost.

Every search first plays a script to its end to see the calls of a whole life.  Then it plays it
again for each call that is to be the last.  Whatever is left is then forwarded to its end: what
the writer was told is written is there once; what it was not told of is there once, or not at all.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import fjord
from fjord.client.spool import files, reader, records
from fjord.client.spool.writer import Sync
from fjord.forwarder import Forwarder
from tests.crash import spool_processes, spool_world, tracing

pytestmark = pytest.mark.strace

LATER = 1000  # the number of a record that is written after the kill, by somebody else
WRITTEN = 12
FORWARDED = 40
# Of the calls that are made again and again, every so many-th is a point to die at.
WRITER_STEP = 4
FORWARDER_STEP = 7
DAEMON_STEP = 4
SYNCS = [Sync.NONE, Sync.EACH, Sync.GROUP]


def chosen(found: Sequence[tracing.Point], step: int) -> list[tracing.Point]:
    """Returns all points that are rare, and every so many-th of the others."""
    return [
        point
        for number, point in enumerate(found)
        if point.name not in spool_processes.SPOOL_ROUTINE or number % step == 0
    ]


def inject(point: tracing.Point) -> tuple[str, ...]:
    calls = ",".join(spool_processes.SPOOL_CALLS)
    return ("-e", f"trace={calls}", "-e", f"inject={point.name}:signal=KILL:when={point.number}")


TRACE_ALL = ("-e", "trace=" + ",".join(spool_processes.SPOOL_CALLS))


# -- the writer -----------------------------------------------------------------------------------


def writing(folder: Path, sync: str) -> spool_processes.Writing:
    return spool_processes.Writing(
        data=folder / "spool",
        log=folder / "log",
        tables=spool_world.Tables(f"w-{folder.name}"),
        count=WRITTEN,
        sync=sync,
    )


def life_of_a_writer(folder: Path, sync: str) -> list[tracing.TracedCall]:
    life = writing(folder, sync)
    with spool_processes.TracedWriter(life, *TRACE_ALL) as traced:
        assert traced.told() == list(range(WRITTEN)), traced.log()
        assert traced.wait() == 0
        return traced.calls()


def survive_kill_of_writer(folder: Path, url: str, sync: str, point: tracing.Point) -> bool:
    """Writes until a point and forwards what is left; says whether it came there."""
    life = writing(spool_processes.folder_of(folder, f"{sync}-{point.name}-{point.number}"), sync)
    with tracing.noted(f"the writer was killed at {point}, sync {sync}"):
        with spool_processes.TracedWriter(life, *inject(point)) as traced:
            told = traced.told()
            code = traced.wait()
        assert code == 0 or spool_processes.is_killed(code), traced.log()
        assert told == list(range(len(told)))
        with spool_world.opened(
            life.data
        ) as spool:  # whoever comes next is not held up by what it finds
            spool_world.write(spool, life.tables, LATER)
        spool_world.forward(life.data, url)
        with fjord.connect(url) as db:
            spool_world.check(db, life.tables, [*told, LATER], [len(told)])
    return spool_processes.is_killed(code)


@pytest.mark.req("FJ-16", "FJ-21", "FJ-27")
@pytest.mark.parametrize("sync", SYNCS)
def test_a_writer_that_is_killed_at_any_call_loses_nothing_that_it_was_told(
    sync: str, daemon: str, tmp_path: Path
) -> None:
    found = tracing.points(life_of_a_writer(spool_processes.folder_of(tmp_path, "whole"), sync))
    step = WRITER_STEP if sync == Sync.NONE else 3 * WRITER_STEP
    wanted = chosen(found, step)
    killed = [survive_kill_of_writer(tmp_path, daemon, sync, point) for point in wanted]
    assert len(wanted) > 10
    assert sum(killed) >= 0.8 * len(wanted)


# -- the forwarder --------------------------------------------------------------------------------


def fill(directory: Path, tables: spool_world.Tables) -> list[int]:
    """Makes a spool of two files: of a period that is over, and of this one.

    The first has a torn record, the other one that no daemon takes.
    """
    with spool_world.opened(directory) as spool:
        spool_world.write_all(spool, tables, range(FORWARDED // 2))
        (path,) = spool_world.spool_files(directory)
        with path.open("ab") as file:
            file.write(b"@0000ffff01234567abc")  # the beginning of a line
        spool_world.write_all(spool, tables, range(FORWARDED // 2, FORWARDED))
    spool_world.put_in_the_past(directory)
    with spool_world.opened(directory) as spool:
        spool_world.write_all(spool, tables, range(FORWARDED, FORWARDED + 8))
        spool.jobs(tables.kv).push("a job in a table of values")
        spool_world.write_all(spool, tables, range(FORWARDED + 8, 2 * FORWARDED))
    return list(range(2 * FORWARDED))


def forwarding(folder: Path, url: str, bug: str = "") -> spool_processes.Forwarding:
    return spool_processes.Forwarding(data=folder / "spool", log=folder / "log", url=url, bug=bug)


def life_of_a_forwarder(folder: Path, url: str) -> list[tracing.TracedCall]:
    life = forwarding(folder, url)
    fill(life.data, spool_world.Tables(f"f-{folder.name}"))
    with spool_processes.TracedForwarder(life, *TRACE_ALL) as traced:
        assert traced.wait() == 0, traced.log()
        return traced.calls()


def survive_kill_of_forwarder(folder: Path, url: str, point: tracing.Point, bug: str = "") -> bool:
    """Forwards until a point, then to the end; says whether it came there."""
    folder = spool_processes.folder_of(folder, f"{point.name}-{point.number}")
    tables = spool_world.Tables(f"f-{folder.name}-{bug.replace(' ', '-')}")
    life = forwarding(folder, url, bug)
    numbers = fill(life.data, tables)
    with tracing.noted(f"the forwarder was killed at {point}"):
        with spool_processes.TracedForwarder(life, *inject(point)) as traced:
            code = traced.wait()
        assert code == 0 or spool_processes.is_killed(code), traced.log()
        spool_world.forward(life.data, url)
        with fjord.connect(url) as db:
            spool_world.check(db, tables, numbers)
        check_end(life.data)
    return spool_processes.is_killed(code)


def check_end(directory: Path) -> None:
    """The file that is over is gone, but for what was set aside; the other is erased."""
    (aside,) = files.aside_names(str(directory))
    torn = (directory / aside).read_bytes()[files.HEADER_BYTES :].split()
    assert torn == [b"!0000ffff01234567abc"]
    (path,) = spool_world.spool_files(directory)
    (refused,) = path.read_bytes()[files.HEADER_BYTES :].translate(None, b"\0").split()
    assert refused.startswith(b"!")


@pytest.mark.req("FJ-16", "FJ-24", "FJ-25", "FJ-26")
def test_a_forwarder_that_is_killed_at_any_call_sends_each_record_once(
    daemon: str, tmp_path: Path
) -> None:
    calls = life_of_a_forwarder(spool_processes.folder_of(tmp_path, "whole"), daemon)
    names = {call.name for call in calls}
    assert {"pwrite64", "rename", "flock", "sendto", "recvfrom"} <= names
    wanted = chosen(tracing.points(calls), FORWARDER_STEP)
    killed = [survive_kill_of_forwarder(tmp_path, daemon, point) for point in wanted]
    assert len(wanted) > 20
    assert sum(killed) >= 0.8 * len(wanted)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("pread64", "EIO"),
        ("pwrite64", "EIO"),
        ("pwrite64", "ENOSPC"),
        ("fdatasync", "EIO"),
        ("fsync", "EIO"),
        ("rename", "EIO"),
        ("sendto", "EPIPE"),
        ("recvfrom", "ECONNRESET"),
    ],
)
def test_a_call_of_a_forwarder_that_fails_doubles_and_loses_nothing(
    name: str, error: str, daemon: str, tmp_path: Path
) -> None:
    failed = 0
    for number in range(1, 40, 6):
        folder, tables = spool_processes.folder_of(tmp_path, str(number)), spool_world.Tables()
        life = forwarding(folder, daemon)
        numbers = fill(life.data, tables)
        inject = f"inject={name}:error={error}:when={number}"
        with tracing.noted(f"{error} at {name} number {number}"):
            with spool_processes.TracedForwarder(
                life, "-e", f"trace={name}", "-e", inject
            ) as traced:
                code = traced.wait()
            # It goes on, or it ends with an error and is started again.
            assert code in (0, 1), traced.log()
            spool_world.forward(life.data, daemon)
            with fjord.connect(daemon) as db:
                spool_world.check(db, tables, numbers)
            check_end(life.data)
        if not any(call.is_injected for call in traced.calls()):
            break  # there are no more of them
        failed += 1
    assert failed > 0


@pytest.mark.parametrize(
    ("bug", "call", "said"),
    [("erases early", "sendto", "lost"), ("forgets the name", "recvfrom", "too often")],
)
def test_the_search_finds_a_forwarder_with_a_bug(
    bug: str, call: str, said: str, daemon: str, tmp_path: Path
) -> None:
    def search() -> None:
        for number in range(3, 12):
            survive_kill_of_forwarder(tmp_path, daemon, tracing.Point(call, number), bug)

    with pytest.raises(AssertionError, match=said):
        search()


# -- the daemon -----------------------------------------------------------------------------------


async def forward_while_alive(directory: Path, traced: tracing.TracedDaemon) -> bool:
    """Forwards until nothing is left, or until the daemon is gone; says whether it was the end."""
    forwarder = Forwarder(str(directory), traced.url)
    task = asyncio.create_task(forwarder.run(until_empty=True))
    asyncio.get_running_loop().add_reader(traced.sentinel, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return False
    return True


def play(
    life: tracing.Life, directory: Path, *strace: str
) -> tuple[bool, list[tracing.TracedCall]]:
    """Forwards to a daemon that may be killed; says whether all was sent, and what it called."""
    with tracing.TracedDaemon(life, *strace) as traced:
        is_sent = traced.is_ready and asyncio.run(forward_while_alive(directory, traced))
        traced.kill()
        return is_sent, traced.calls() if strace else []


def survive_kill_of_daemon(folder: Path, point: tracing.Point) -> bool:
    folder = spool_processes.folder_of(folder, f"{point.name}-{point.number}")
    life, tables = (
        tracing.Life(data=folder / "data", log=folder / "log"),
        spool_world.Tables("killed"),
    )
    directory = folder / "spool"
    numbers = fill(directory, tables)
    with tracing.noted(f"the daemon was killed at {point}"):
        is_sent, _ = play(life, directory, *point.inject("signal=KILL"))
        with tracing.TracedDaemon(life) as traced:
            spool_world.forward(directory, traced.url)
            with fjord.connect(traced.url) as db:
                spool_world.check(db, tables, numbers)
        check_end(directory)
    return not is_sent


@pytest.fixture
def small_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (records, reader):
        monkeypatch.setattr(module, "ROWS_MAX", spool_world.LOAD_ROWS)


def points_of_a_daemon(folder: Path) -> list[tracing.Point]:
    fill(folder / "spool", spool_world.Tables("killed"))
    life = tracing.Life(data=folder / "data", log=folder / "log")
    is_sent, calls = play(life, folder / "spool", *tracing.trace())
    assert is_sent
    return tracing.points(calls)


@pytest.mark.usefixtures("small_loads")
@pytest.mark.req("FJ-16", "FJ-25")
def test_a_daemon_that_is_killed_at_any_call_has_each_record_once(tmp_path: Path) -> None:
    found = points_of_a_daemon(spool_processes.folder_of(tmp_path, "whole"))
    first = next(at for at, point in enumerate(found) if point.name in tracing.REPLY_CALLS)
    wanted = found[first::DAEMON_STEP]  # from its first answer on
    killed = [survive_kill_of_daemon(tmp_path, point) for point in wanted]
    assert len(wanted) > 10
    assert sum(killed) >= 0.8 * len(wanted)


# -- all of it ------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.usefixtures("small_loads")
def test_a_kill_at_every_call_of_everybody_loses_nothing(
    daemon: str, tmp_path: Path, soak_seconds: float
) -> None:
    deadline = time.monotonic() + soak_seconds
    killed = 0
    for number in itertools.count():
        folder = spool_processes.folder_of(tmp_path, str(number))
        for sync in SYNCS:
            for point in tracing.points(
                life_of_a_writer(spool_processes.folder_of(folder, f"whole-{sync}"), sync)
            ):
                killed += survive_kill_of_writer(folder, daemon, sync, point)
        for point in tracing.points(
            life_of_a_forwarder(spool_processes.folder_of(folder, "whole"), daemon)
        ):
            killed += survive_kill_of_forwarder(folder, daemon, point)
        for point in points_of_a_daemon(spool_processes.folder_of(folder, "whole-daemon")):
            killed += survive_kill_of_daemon(spool_processes.folder_of(folder, f"d-{point}"), point)
        print(f"round {number}: {killed} kills so far")
        if time.monotonic() > deadline:
            break
    assert killed > 0
