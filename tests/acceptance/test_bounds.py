"""What happens at each bound of a daemon: it says so, and everybody else is served."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
from pathlib import Path

from fjord import limits
from tests.acceptance.daemon import Daemon
from tests.acceptance.raw import STRING, Raw, get, nop, set_


def is_served(raw: Raw) -> bool:
    stored = raw.code(set_(b"canary", STRING, b"alive")) == ""
    return stored and raw.ask(get(b"canary")).data == b"alive"


def is_asleep(daemon: Daemon) -> bool:
    """Tells whether a daemon waits for something, as one that spins never does."""
    stat = Path(f"/proc/{daemon.process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


def test_a_daemon_out_of_files_does_not_spin_and_serves_who_is_there(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon, contextlib.ExitStack() as stack:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (60, most))
        first = stack.enter_context(Raw(daemon.port))
        assert is_served(first)
        others = [stack.enter_context(Raw(daemon.port)) for _ in range(100)]
        assert is_served(first)
        looks = [is_asleep(daemon) for _ in range(5000)]
        assert sum(looks) > len(looks) / 2
        assert others[-1].next() is None  # it is closed; nothing is said
        for other in others:
            other.socket.close()
        assert is_served(first)
        assert is_served(stack.enter_context(Raw(daemon.port)))


def test_no_more_connections_are_taken_than_there_are_files(tmp_path: Path) -> None:
    """So that the journal always finds one for its next segment."""
    files = limits.FILES_RESERVED + 20
    limit = f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({files}, {files}))"
    start = [sys.executable, "-c", f"{limit}; from fjord.cli import main; main()"]
    process = subprocess.Popen(
        [*start, "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        with contextlib.ExitStack() as stack:
            raws = [stack.enter_context(Raw(port)) for _ in range(25)]
            codes = [raw.code(nop()) for raw in raws]
            assert codes == [""] * 20 + ["BUSY"] * 5
            assert is_served(raws[0])
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.communicate()


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        with Raw(daemon.port) as raw:
            assert is_served(raw)
        modes = {path.stat().st_mode & 0o077 for path in [daemon.path, *daemon.path.rglob("*")]}
        assert modes == {0}
