"""Compares this checkout with another one: processor time of single calls and of batches.

    git worktree add ../before v0.1
    python -m benchmarks.versions ../before

Each round runs both checkouts one after the other, each with its own daemon and its own client
process. The figure is the processor time of client and daemon together, user and system, per call:
noise moves it less than it moves wall time. A ratio above 1 means that this checkout takes less.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
BATCH = 1000
# How many calls a round makes of each, so that each takes about as long.
CALLS = {
    "push": 600,
    "next and done": 300,
    "append": 600,
    "kv.set": 600,
    "kv.get": 600,
    "read and ack": 300,
    "push_many of 1,000": 20,
    "next(1,000) and done_many": 20,
    "append_many of 1,000": 200,
    "set_many of 1,000": 20,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--awake-us", help="passed to both daemons")
    asked = parser.parse_args()
    if not (asked.other / "src" / "fjord").is_dir():
        parser.error(f"{asked.other} is not a checkout of Fjord")
    checkouts = {"other": asked.other.resolve(), "this": HERE}
    options = [] if asked.awake_us is None else ["--awake-us", asked.awake_us]
    times: dict[str, dict[str, list[float]]] = {
        name: {call: [] for call in CALLS} for name in checkouts
    }
    for round_ in range(asked.rounds):
        print(f"round {round_ + 1} of {asked.rounds}", file=sys.stderr)
        for name, checkout in checkouts.items():
            for call, us in _measure(checkout, options).items():
                times[name][call].append(us)
    print(f"{'us of processor time':28}{'other':>9}{'this':>9}{'ratio':>8}")
    for call in CALLS:
        other, this = (statistics.median(times[name][call]) for name in checkouts)
        print(f"{call:28}{other:9,.0f}{this:9,.0f}{other / this:8.2f}")


def _measure(checkout: Path, options: list[str]) -> dict[str, float]:
    """Returns microseconds per call of one checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    with tempfile.TemporaryDirectory(prefix=".fjord-bench-", dir=HERE) as folder:
        start = "import sys; from fjord.cli import main; sys.argv[0] = 'fjord'; main()"
        serve = ["serve", "--data", f"{folder}/data", "--listen", "127.0.0.1:0", *options]
        daemon = subprocess.Popen(
            [sys.executable, "-c", start, *serve],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert daemon.stdout is not None
            url = daemon.stdout.readline().split()[1]
            client = [sys.executable, __file__, "--client", url, str(daemon.pid)]
            run = subprocess.run(
                client, env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
        finally:
            daemon.terminate()
            daemon.wait(30)
            assert daemon.stdout is not None
            daemon.stdout.close()
    measured: dict[str, float] = json.loads(run.stdout)
    return measured


# -- the client process, which imports the Fjord of its checkout ----------------------------------


def _client(url: str, daemon: int) -> None:
    import fjord

    with fjord.connect(url) as db:
        jobs, stream, kv = db.jobs("pages"), db.stream("events"), db.kv("values")
        subscriber = stream.subscriber("reader")
        value = b"x" * 100
        number = iter(range(1_000_000_000))

        def read() -> None:
            subscriber.ack(subscriber.read(1))

        def take(count: int) -> None:
            jobs.done_many(jobs.next(count))

        def push_many() -> None:
            keys = [f"http://example.com/{next(number)}" for _ in range(BATCH)]
            jobs.push_many(keys=keys, values=[value] * BATCH)

        calls: dict[str, Callable[[], object]] = {
            "push": lambda: jobs.push(f"http://example.com/{next(number)}", value),
            "next and done": lambda: take(1),
            "append": lambda: stream.append(value),
            "kv.set": lambda: kv.set("a", value),
            "kv.get": lambda: kv.get("a"),
            "read and ack": read,
            "push_many of 1,000": push_many,
            "next(1,000) and done_many": lambda: take(BATCH),
            "append_many of 1,000": lambda: stream.append_many([value] * BATCH),
            "set_many of 1,000": lambda: kv.set_many(
                {f"k{next(number)}": value for _ in range(BATCH)}
            ),
        }
        print(
            json.dumps({name: _cost_us(call, CALLS[name], daemon) for name, call in calls.items()})
        )


def _cost_us(call: Callable[[], object], count: int, daemon: int) -> float:
    for _ in range(max(count // 10, 2)):
        call()
    before = _spent(daemon)
    for _ in range(count):
        call()
    return (_spent(daemon) - before) / count * 1e6


def _spent(daemon: int) -> float:
    """Returns the processor seconds that this process and the threads of the daemon have taken."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    threads = Path(f"/proc/{daemon}/task").glob("*/schedstat")
    return (
        own.ru_utime + own.ru_stime + sum(int(one.read_text().split()[0]) for one in threads) / 1e9
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        _client(sys.argv[2], int(sys.argv[3]))
    else:
        main()
