"""What every test may use: numbered promises, long runs, and what a machine may lack."""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent


def _works(*command: str) -> bool:
    """Says whether a command is there and may do what it is for."""
    return (
        shutil.which(command[0]) is not None
        and subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    )


SPARK_GROUP = pytest.mark.xdist_group("spark")
# Marks that need something of the machine; where it is missing the tests are left out, and named
# at the end of the run.
# A container may have the tools and not the rights, so each is tried.
HAS = {
    "mariadb": all(
        shutil.which(name, path=f"{os.defpath}:/usr/sbin")
        for name in ("mariadb", "mariadb-dump", "mariadb-install-db", "mariadbd")
    ),
    "postgresql": bool(glob.glob("/usr/lib/postgresql/*/bin/initdb")),
    "pylibmc": importlib.util.find_spec("pylibmc") is not None,
    "root": os.geteuid() == 0,
    "strace": _works("strace", "-f", "-o", "/dev/null", "true"),
    "loop": shutil.which("mkfs.ext4") is not None and _works("losetup", "--find"),
}
LEFT_OUT = pytest.StashKey[list[str]]()

# How long an example takes says more of the machine than of the code.
hypothesis.settings.register_profile("fjord", deadline=None)
hypothesis.settings.load_profile("fjord")

# A run in the background is told to ignore it, and so would be all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What tests start need not compile the package each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Spark starts its Python workers by name; it must be the Python that runs the tests.
os.environ["PYSPARK_PYTHON"] = sys.executable
# Sessions are short: what the second compiler gains, it costs in compiling; a third less in all.
# Classes come from the file that scripts/archive-classes made, if it is there.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off "
    f"-XX:SharedArchiveFile={ROOT}/.venv/spark.jsa",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak-seconds",
        type=float,
        default=0.0,
        help="run the tests marked soak, each for this long",
    )
    parser.addoption(
        "--rewrite", action="store_true", help="write the answers of scenario files as they are now"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _check_numbers(items)
    _place(items)
    missing = [mark for mark, is_there in HAS.items() if not is_there]
    config.stash[LEFT_OUT] = _leave_out(config, items, missing)
    if hasattr(config, "workeroutput"):  # one of several processes: the first one reports
        config.workeroutput["left_out"] = config.stash[LEFT_OUT]
    if not config.getoption("--soak-seconds"):
        _leave_out(config, items, ["soak"])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left_out = terminalreporter.config.stash.get(LEFT_OUT, [])
    if left_out:
        terminalreporter.section("left out: this machine lacks what they need")
        for line in left_out:
            terminalreporter.line(line)


def _check_numbers(items: list[pytest.Item]) -> None:
    """Refuses a `req` mark whose number is not a promise: it would show nothing."""
    promises = (ROOT / "docs" / "promises.txt").read_text()
    known = set(re.findall(r"^[A-Z]{2}-\d\d", promises, flags=re.MULTILINE))
    for item in items:
        for mark in item.iter_markers("req"):
            if not mark.args or not known.issuperset(mark.args):
                raise pytest.UsageError(f"{item.nodeid}: not in docs/promises.txt: {mark.args}")


def _place(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(SPARK_GROUP)  # one session: all of them in one process
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(0))


def _leave_out(config: pytest.Config, items: list[pytest.Item], marks: list[str]) -> list[str]:
    """Takes the tests with any of these marks out of the run; returns a line for each."""
    needs = {
        item: [mark for mark in marks if item.get_closest_marker(mark)]
        for item in items
        if any(item.get_closest_marker(mark) for mark in marks)
    }
    if needs:
        items[:] = [item for item in items if item not in needs]
        config.hook.pytest_deselected(items=list(needs))
    return [f"{item.nodeid} (needs {', '.join(what)})" for item, what in needs.items()]


@pytest.fixture(scope="session")
def soak_seconds(pytestconfig: pytest.Config) -> float:
    """How long a test marked soak should run."""
    return float(pytestconfig.getoption("--soak-seconds"))
