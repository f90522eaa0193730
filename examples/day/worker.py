"""A worker of the day: fetches pages that were edited, until it is told to stop.

    python -m examples.day.worker fjord://127.0.0.1:17994 SEED [dies]

Nothing is really fetched.  Some pages always fail, and some fail now and then.  A worker that dies
kills itself with SIGKILL after taking its first jobs: they are handed out again when their leases
expire.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from types import FrameType

import fjord
from examples.day import website

BATCH = 25
FLAKY = 0.02  # of all tries
FULL_SECONDS = 1  # well below a lease
SECONDS_PER_PAGE = 0.000_3
DONE, NOT_FOUND, OVERLOADED = "", "404 Not Found", "503 Service Unavailable"


def main(url: str, seed: int) -> None:
    chance = random.Random(seed)
    is_over = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, stop)
    with fjord.connect(url) as db:
        pages = db.jobs("pages")
        while not is_over:
            work(pages, chance)


def work(pages: fjord.Jobs, chance: random.Random) -> None:
    """Takes a few jobs, and reports the results."""
    taken = pages.next(count=BATCH, wait=0.5)
    if not taken:
        return
    time.sleep(SECONDS_PER_PAGE * len(taken) * chance.uniform(0.5, 2))
    outcomes: dict[str, list[fjord.Job]] = {DONE: [], NOT_FOUND: [], OVERLOADED: []}
    for job in taken:
        outcomes[outcome_of(job, chance)].append(job)
    pages.done_many(outcomes.pop(DONE))
    for reason, failed in outcomes.items():
        pages.fail_many(failed, delay=0.2, reason=reason)


def outcome_of(job: fjord.Job, chance: random.Random) -> str:
    if website.is_broken(job.key):
        return NOT_FOUND
    return OVERLOADED if chance.random() < FLAKY else DONE


def die(url: str) -> None:
    """Takes a batch of jobs, prints their rows, and dies."""
    taken: list[fjord.Job] = []
    until = time.perf_counter() + FULL_SECONDS
    with fjord.connect(url) as db:
        while len(taken) < BATCH and (not taken or time.perf_counter() < until):
            taken += db.jobs("pages").next(count=BATCH - len(taken), wait=0.5)
        print(*(job.row for job in taken), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[3:] == ["dies"]:
        die(sys.argv[1])
    main(sys.argv[1], int(sys.argv[2]))
