"""The main job in one go: write, kill, restart, read back, and count with Spark.

A daemon runs on a temporary directory.  Values go in through the Python client and as raw bytes.
The daemon is killed with SIGKILL while a client counts, and started again: the client goes on by
itself, and not one count is lost or made twice.  Everything that was acknowledged is there
afterwards: in the daemon, in the directory itself, and in Spark.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

import fjord
from fjord import spark as fjord_spark

BATCH = 1_000
BATCHES = 200
COUNTS = 1_000
FJORD = [sys.executable, "-c", "from fjord.cli import main; main()"]
# SET k="v" as docs/protocol.md spells it out byte by byte, and GET k.
RAW_SET = bytes.fromhex("464a000100021234022200060a24181e4000016b020276")
RAW_GET = bytes.fromhex("464a00010003123504000000000000000000016b")

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="fjord-first-run-"))
    try:
        tell_story(directory)
    finally:
        shutil.rmtree(directory)


def tell_story(directory: Path) -> None:
    with daemon(directory) as (process, url):
        console.print(f"A daemon serves {directory} at {url}.")
        write_batches(url)
        write_raw(url)
        counting = begin_counting(url)
        process.kill()
        console.print("SIGKILL in the middle of counting.")
    with daemon(directory, url) as (_, url):
        counting.join(timeout=60)
        read_back(url)
    read_directory(directory)
    count_with_spark(directory)
    console.print("\n[green]Everything that was acknowledged is there.[/green]")


@contextlib.contextmanager
def daemon(
    directory: Path, url: str = "fjord://127.0.0.1:0"
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs `fjord serve`; yields the process and its address."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [*FJORD, "serve", "--data", str(directory), "--listen", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    words = process.stdout.readline().split()
    if not words:
        sys.exit("the daemon did not start; try: fjord serve --data some-directory")
    console.print(f"\n[bold]fjord serve[/bold] was ready after {seconds_since(started)}.")
    try:
        yield process, words[1]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def write_batches(url: str) -> None:
    with fjord.connect(url) as db:
        kv = db.kv("pages")
        started = time.perf_counter()
        for batch in range(BATCHES):
            rows = range(batch * BATCH, (batch + 1) * BATCH)
            kv.set_many({f"page:{row}": b"x" * 100 for row in rows})
        rate = BATCH * BATCHES / (time.perf_counter() - started)
    console.print(
        f"The client wrote {BATCH * BATCHES:,} values of 100 bytes in batches of {BATCH:,}, "
        f"each batch on disk before its reply: {rate:,.0f} values/s."
    )


def write_raw(url: str) -> None:
    host, port = url.removeprefix("fjord://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(RAW_SET)
        raw.recv(100)
        raw.sendall(RAW_GET)
        reply = raw.recv(100)
    console.print(f"{len(RAW_SET)} raw bytes set the key k; its value came back as {reply[-1:]!r}.")


def begin_counting(url: str) -> threading.Thread:
    """Adds 1 a thousand times in a thread of its own; returns when half of it is done."""
    half = threading.Event()

    def count() -> None:
        with fjord.connect(url) as db:
            counter = db.kv("counter")
            counter.set("number", 0)
            for number in range(COUNTS):
                counter.add("number", 1)
                if number == COUNTS // 2:
                    half.set()

    counting = threading.Thread(target=count)
    counting.start()
    half.wait(timeout=60)
    return counting


def read_back(url: str) -> None:
    started = time.perf_counter()
    found = 0
    with fjord.connect(url) as db:
        for batch in range(BATCHES):
            rows = range(batch * BATCH, (batch + 1) * BATCH)
            found += len(db.kv("pages").get_many(f"page:{row}" for row in rows))
        number = db.kv("counter").get("number")
        raw = db.kv().get("k")
    rate = found / (time.perf_counter() - started)
    console.print(
        f"After the restart: {found:,} values ({rate:,.0f}/s), k = {raw!r}, and the client went on "
        f"counting: {number!r}."
    )
    if found != BATCH * BATCHES or raw != "v" or number != COUNTS:
        sys.exit("something that was acknowledged is missing, or was counted twice")


def read_directory(directory: Path) -> None:
    with fjord.open(directory, read_only=True) as db:
        assert db.kv().get("k") == "v"
    console.print("\nThe same directory opens without a server: fjord.open(directory).")


def count_with_spark(directory: Path) -> None:
    console.print("Spark reads its history ...")
    started = time.perf_counter()
    with quiet(directory.with_suffix(".spark-log")):
        session = fjord_spark.session()
        frame = session.read.format("fjord").option("table", "pages").load(str(directory))
        ready = time.perf_counter()
        rows, keys = frame.count(), frame.select("key").distinct().count()
        first = frame.orderBy("seq").limit(3).collect()
        session.stop()
    console.print(
        f"{rows:,} rows, {keys:,} keys, counted in {seconds_since(ready)} "
        f"(Spark itself took {ready - started:.1f} s to start):"
    )
    for row in first:
        console.print(f"  seq {row.seq}  {row.op}  {bytes(row.key).decode()}  {row.ts:%H:%M:%S.%f}")
    if rows != BATCH * BATCHES or keys != rows:
        sys.exit("Spark counts other rows than were written")


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Keeps what a JVM says while it starts out of the story; shows it if something fails."""
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("w+b") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            os.write(before, log.read_bytes())
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)
            log.unlink()


def seconds_since(start: float) -> str:
    return f"{time.perf_counter() - start:.1f} s"


if __name__ == "__main__":
    main()
