"""The main job, end to end: a day of a website through Fjord and Spark.

    make run
    make run KEEP=1          # leaves everything in build/day, to look at

A daemon with default settings serves a new directory.  A website writes everything that happens to
a spool, without waiting: edits of pages become jobs, everything else goes to a stream; `fjord
forward` sends them.  Workers do the jobs; some fail, and one dies.  In the middle of the day the
daemon is killed with SIGKILL, and so is the forwarder.  Old history goes to cold blocks, and in the
evening Spark copies the day to a warehouse, makes a table of the newest event of each page and a
report on the jobs, and compares all copies.

A day takes about ten seconds: an hour is 0.4 s, and dates in the tables are those of the clock.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console

import fjord
from examples.day import evening, website
from examples.day.node import Aside, Daemon, Forwarder, Workers
from examples.day.website import Fed

HOUR_SECONDS: Final = 0.4
WORKERS: Final = 3
# Much longer than the daemon is away: only a dead worker may lose its jobs.
LEASE_SECONDS: Final = 5
WORKER_DIES_AT, DAEMON_DIES_AT, FORWARDER_DIES_AT, SEALED_AT = 9, 13, 16, 19
# How long the last jobs may take; their leases and delays are a few seconds.
REST_SECONDS: Final = 60
READ_COUNT: Final = 10_000

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.day")
    parser.add_argument("--keep", metavar="DIR", help="write everything there, and keep it")
    keep = parser.parse_args().keep
    directory = Path(keep or tempfile.mkdtemp(prefix="fjord-day-")).absolute()
    if keep and directory.exists() and any(directory.iterdir()):
        sys.exit(f"{directory} is not empty; remove it, or name another one")
    directory.mkdir(parents=True, exist_ok=True)
    try:
        tell_story(directory, is_kept=bool(keep))
    finally:
        if not keep:
            shutil.rmtree(directory)
    console.print(f"\nThe result is in {directory}." if keep else "\nAll files are removed again.")


def tell_story(directory: Path, *, is_kept: bool) -> None:
    begun = time.perf_counter()
    with Daemon(directory / "data", directory / "daemon.log") as daemon:
        left = "" if is_kept else ", which is removed at the end (make run KEEP=1 keeps it)"
        tell(f"A daemon at {daemon.url} serves {directory / 'data'}{left}.")
        with (
            fjord.connect(daemon.url) as db,
            fjord.spool(directory / "spool") as spool,
            Forwarder(directory / "spool", daemon.url, directory / "forwarder.log") as forwarder,
        ):
            fed = live(db, spool, daemon, forwarder)
            check(db, fed)
        evening.tell(daemon.url, directory, fed, console, is_kept=is_kept)
    tell(f"[green]Everything agrees.[/green] {time.perf_counter() - begun:.0f} s in total.")


def live(db: fjord.Database, spool: fjord.Spool, daemon: Daemon, forwarder: Forwarder) -> Fed:
    """Runs the day; returns what was written to the spool."""
    pages = db.create_jobs("pages", lease=LEASE_SECONDS, timeouts_max=2)
    day, fed = website.Day(), Fed()
    tell(
        f"[bold]The day[/bold] (an hour takes {HOUR_SECONDS} s): {website.EDITS:,} edits of "
        f"{website.PAGES:,} pages, {website.EVENTS:,} events,\nall of them through a spool that "
        f"`fjord forward` sends from; {WORKERS} workers."
    )
    with Workers(daemon.url, WORKERS) as workers:
        for hour in range(website.HOURS):
            ends = time.perf_counter() + HOUR_SECONDS
            with happening(db, hour, daemon, forwarder, workers, fed):
                feed(spool, day, hour, fed)
            time.sleep(max(0.0, ends - time.perf_counter()))
        wait_for_rest(db, pages, forwarder, workers, fed)
    return fed


@contextlib.contextmanager
def happening(
    db: fjord.Database, hour: int, daemon: Daemon, forwarder: Forwarder, workers: Workers, fed: Fed
) -> Iterator[None]:
    """Runs the incident of an hour, if any, beside its edits and events."""
    if hour == WORKER_DIES_AT:
        workers.send_one_that_dies()
        yield
        fed.dropped = workers.dropped()
        tell(
            f"  {hour:02}:00  SIGKILL for a worker with {len(fed.dropped)} jobs: "
            f"others take them after {LEASE_SECONDS} s."
        )
    elif hour == DAEMON_DIES_AT:
        aside = Aside(daemon)
        try:
            yield
        finally:
            fed.away_seconds = aside.join()
        tell(
            f"  {hour:02}:00  SIGKILL for the daemon: away for {fed.away_seconds:.1f} s; "
            "the website kept writing, forwarder and workers waited."
        )
    else:
        yield
        if hour == FORWARDER_DIES_AT:
            forwarder.kill()
            tell(f"  {hour:02}:00  SIGKILL for the forwarder: the next one continues.")
        elif hour == SEALED_AT:
            seal(db, hour)


def seal(db: fjord.Database, hour: int) -> None:
    db.seal()
    events, jobs = (len(db.blocks(table)) for table in ("events", "pages"))
    tell(
        f"  {hour:02}:00  Old history goes to cold blocks, Parquet files: "
        f"{events} of events, {jobs} of jobs."
    )


def feed(spool: fjord.Spool, day: website.Day, hour: int, fed: Fed) -> None:
    """Writes the edits and events of an hour; calls return at once, even without a daemon."""
    pages, edited, stream = spool.jobs("pages"), spool.stream("edits"), spool.stream("events")
    for edits in day.edits(hour):
        pages.push_many(
            keys=edits.keys, values=edits.values, priority=edits.priorities, delay=edits.delays
        )
        edited.append_many(edits.values, keys=edits.keys)
        fed.versions += edits.values
    for events in day.events(hour):
        stream.append_many(events.values, keys=events.keys)
        fed.events += len(events.keys)
        fed.keys.update(events.keys)
    # Writes of one process arrive in order: once this one has arrived, so have all earlier ones.
    spool.kv("counters").set("edits", fed.edits)


def wait_for_rest(
    db: fjord.Database, pages: fjord.Jobs, forwarder: Forwarder, workers: Workers, fed: Fed
) -> None:
    """Waits until everything has arrived, and only dead jobs are left."""
    until = time.perf_counter() + REST_SECONDS
    while (
        db.kv("counters").get("edits") != fed.edits or (left := pages.count()).waiting or left.taken
    ):
        forwarder.check()
        workers.check()
        if time.perf_counter() > until:
            sys.exit(f"not everything has arrived, or jobs are left over: {pages.count()}")
        time.sleep(0.05)


def check(db: fjord.Database, fed: Fed) -> None:
    """Compares the daemon's data with what was written; exits if they differ."""
    dead = list(db.jobs("pages").dead())
    fed.dead = len(dead)
    arrived = versions(db)
    tell(
        f"  24:00  {fed.edits:,} edits were written, {len(arrived):,} arrived, each once and in "
        f"order. No job is left;\n         {len(dead)} are dead: "
        f"{', '.join(sorted({job.reason for job in dead}))}."
    )
    if arrived != fed.versions or fed.edits != website.EDITS or fed.events != website.EVENTS:
        sys.exit("something that was written is missing, or arrived twice")


def versions(db: fjord.Database) -> list[str]:
    """Returns the daemon's list of all edits, in order."""
    found: list[str] = []
    for batch in db.stream("edits").reader().batches(READ_COUNT):
        found += map(str, batch.values)
    return found


def tell(text: str) -> None:
    console.print(f"\n{text}" if not text.startswith(" ") else text)


if __name__ == "__main__":
    main()
