"""Wake-ups over UDP, end to end: real daemons, workers and forwarders, and a proxy that loses them.

Where a test is to show that a wake-up woke somebody, it polls once an hour; so without one it would
not end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord
import fjord.aio
from fjord.client.spool import bell
from fjord.forwarder import Forwarder
from fjord.wire.wakeups import EVERYBODY
from tests.acceptance.daemon import FJORD, Daemon
from tests.acceptance.forward_process import Forwarding
from tests.acceptance.shell import run
from tests.acceptance.wake_proxy import Mess, WakeProxy, free_port

HOUR = 3600
SECONDS_MAX = 60.0  # after which something hangs


@pytest.fixture
def port() -> int:
    return free_port(EVERYBODY)


@contextlib.contextmanager
def working(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Runs `fjord work` meanwhile; SIGTERM must end it at once, whatever it waits for."""
    worker = subprocess.Popen(
        [*FJORD, "work", *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield worker
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(SECONDS_MAX) == 0
    finally:
        worker.kill()
        worker.communicate(timeout=SECONDS_MAX)


def done(worker: subprocess.Popen[str], count: int) -> list[str]:
    """Returns the lines of so many jobs that were done."""
    assert worker.stdout is not None
    return [worker.stdout.readline() for _ in range(count)]


def udp_sockets(pid: int) -> list[str]:
    """Returns the sockets of a process that are neither TCP nor of a path: also unbound ones."""
    others = {
        inode
        for name, column in (("tcp", 9), ("tcp6", 9), ("unix", 6))
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        for inode in line.split()[column : column + 1]
    }
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    return sorted(inodes - others)


def until_heard(port: int) -> None:
    """Returns when somebody hears wake-ups at a port."""
    wanted = f":{port:04X} "
    while wanted not in Path("/proc/self/net/udp").read_text():
        pass


# -- workers --------------------------------------------------------------------------------------


@pytest.mark.req("SJ-28", "SJ-29")
def test_workers_without_a_request_on_the_server_are_woken(tmp_path: Path, port: int) -> None:
    with (
        Daemon(tmp_path / "data", "--wake", str(port)) as daemon,
        fjord.connect(daemon.url) as db,
        working(
            *("pages", "--exec", "true", "--to", daemon.url),
            *("--wake", str(port), "--poll", str(HOUR), "--workers", "3"),
        ) as worker,
    ):
        until_heard(port)
        pages = db.jobs("pages")
        pages.push("now")
        assert '"now"' in done(worker, 1)[0]
        pages.push("at its date", delay=0.5)
        assert '"at its date"' in done(worker, 1)[0]
        pages.push_many(keys=[f"many-{number}" for number in range(50)])
        assert len(set(done(worker, 50))) == 50
        stats = db.stats()
        assert stats["parked_waits"] == 0
        assert stats["jobs_waiting"] == stats["jobs_taken"] == 0
        assert stats["wakeups"] >= 3
        assert stats["wakeups_lost"] == 0


def test_wakeups_that_are_lost_doubled_and_overtaken_change_nothing(tmp_path: Path) -> None:
    port, mess, sent = free_port(), Mess(1), threading.Semaphore(0)

    def fate(datagram: bytes) -> list[bytes]:
        sent.release()
        return mess(datagram)

    with (
        WakeProxy(("127.0.0.1", port), fate) as proxy,
        Daemon(tmp_path / "data", "--wake", proxy.address) as daemon,
        fjord.connect(daemon.url) as db,
    ):
        pages = db.jobs("pages")
        found: list[str | bytes] = []
        over = threading.Event()

        def work() -> None:
            with fjord.connect(daemon.url) as mine:
                for job in mine.jobs("pages").work(wake=f"127.0.0.1:{port}", poll=0.25, stop=over):
                    found.append(job.key)
                    if job.key == "last":
                        job.done()
                        return

        worker = threading.Thread(target=work)
        worker.start()
        for number in range(40):
            pages.push(f"page-{number}", delay=number % 4 / 20)
            assert sent.acquire(timeout=SECONDS_MAX)  # they are not one wake-up
        pages.push("last", delay=1)
        worker.join(SECONDS_MAX)
        over.set()
        assert sorted(map(str, found)) == sorted(["last", *(f"page-{n}" for n in range(40))])
        assert proxy.came >= 40
        assert pages.count() == (0, 0, 0)


# -- off ------------------------------------------------------------------------------------------


def test_nothing_is_opened_unless_it_is_asked_for(tmp_path: Path, port: int) -> None:
    spool = tmp_path / "spool"
    with Daemon(tmp_path / "data") as daemon, fjord.connect(daemon.url) as db:
        with (
            fjord.spool(spool) as written,
            Forwarding(spool, daemon.url) as forwarder,
            working("pages", "--exec", "true", "--to", daemon.url) as worker,
        ):
            written.jobs("pages").push("page")
            done(worker, 1)
            for pid in (daemon.process.pid, forwarder.process.pid, worker.pid, os.getpid()):
                assert udp_sockets(pid) == []
        assert db.stats()["wakeups"] == 0
    with Daemon(tmp_path / "data", "--wake", str(port)) as daemon:
        assert len(udp_sockets(daemon.process.pid)) == 1  # so the others were looked for rightly


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("serve", "--data", "x", "--wake", "192.0.2.1:5"), "loopback addresses only"),
        (("serve", "--data", "x", "--wake", "5,,6"), "not an address for wake-ups"),
        (("serve", "--data", "x", "--wake", ",".join(map(str, range(1, 18)))), "at most 16"),
        (("work", "t", "--exec", "true", "--wake", "no"), "not an address for wake-ups"),
        (("work", "t", "--exec", "true", "--poll", "5"), "--poll needs --wake"),
        (("work", "t", "--exec", "true", "--wake", "5", "--data", "x"), "--wake needs a daemon"),
        (
            ("work", "t", "--exec", "true", "--wake", "127.0.0.1:5", "--workers", "2"),
            "give a port alone",
        ),
        (("forward", "--spool", "x", "--wake", "0"), "not an address for wake-ups"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run(*words)
    assert ended.exit_code == 2
    assert text in ended.stderr
    assert list(tmp_path.iterdir()) == []


# -- forwarders -----------------------------------------------------------------------------------


class Deaf(bell.Doorbell):
    """A doorbell that hears nothing: as where neither PING nor events of files get through."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.descriptors = []


async def forwarded(spool: fjord.Spool, url: str, heard_at: str | int, poll: float) -> int:
    """Writes some records, each when the one before has arrived; returns how many arrived."""
    forwarder = Forwarder(spool.path, url, poll=poll, wake=heard_at)
    running = asyncio.create_task(forwarder.run())
    async with asyncio.timeout(SECONDS_MAX), await fjord.aio.connect(url) as db:
        for number in range(3):
            spool.stream("events").append(b"%d" % number)
            while forwarder.progress.records <= number and not running.done():
                await db.stats()
    forwarder.stop()
    await running
    return forwarder.progress.records


@pytest.mark.parametrize("has_flag", [True, False])
def test_a_forwarder_that_hears_nothing_else_is_woken(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, has_flag: bool
) -> None:
    monkeypatch.setattr(bell, "Doorbell", Deaf)
    flag = tmp_path / "spool" / "asleep"
    if not has_flag:
        flag.mkdir(parents=True)  # what the writer cannot open
        flag.parent.chmod(0o700)
    with Daemon(tmp_path / "data") as daemon, fjord.spool(flag.parent, wake=port) as spool:
        if not has_flag:
            flag.rmdir()
        assert asyncio.run(forwarded(spool, daemon.url, port, HOUR)) == 3


def test_a_forwarder_of_the_command_line_hears_wakeups_and_ends(tmp_path: Path, port: int) -> None:
    spool = tmp_path / "spool"
    with (
        Daemon(tmp_path / "data") as daemon,
        fjord.connect(daemon.url) as db,
        fjord.spool(spool, wake=port) as written,
        Forwarding(spool, daemon.url, "--wake", str(port), "--poll", str(HOUR)) as forwarder,
    ):
        assert len(udp_sockets(forwarder.process.pid)) == 1
        written.jobs("pages").push("page")
        assert [job.key for job in db.jobs("pages").next(wait=SECONDS_MAX, done=True)] == ["page"]
        assert forwarder.stop() == 0
