"""Jobs in one process: pushing, merging, priorities, delays, leases, failures and dead letters.

    python examples/jobs.py

A guided tour with a small crawler that fetches nothing.  It uses a temporary directory through
`fjord.open`; with `fjord.connect("fjord://127.0.0.1:17994")` the same code works on a daemon.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterable

import fjord


def main() -> None:
    logging.getLogger("fjord").setLevel(logging.CRITICAL)  # the failures are intended
    with tempfile.TemporaryDirectory(prefix="fjord-jobs-") as directory:
        with fjord.open(directory) as db:
            pages = db.create_jobs("pages", lease=0.5, timeouts_max=2)
            push_pages(pages)
            change_a_page_three_times(pages)
            work(pages)
            wait_for_a_date(pages)
            forget_a_lease(pages)
            fail_until_dead(pages)
        with fjord.open(directory) as db:  # all of it was on disk
            bring_back(db)
            take_turns(db)


def push_pages(pages: fjord.Jobs) -> None:
    tell("Push three pages, the most important one last.")
    pages.push("http://example.com/old", priority=fjord.Priority.UPDATES)
    pages.push("http://example.com/new", priority=fjord.Priority.NEW_PAGE)
    pages.push("http://example.com/home", priority=fjord.Priority.NOW)
    show(pages.peek())


def change_a_page_three_times(pages: fjord.Jobs) -> None:
    tell("Push one of them three more times: it is still one job, with the newest value.")
    for version in (1, 2, 3):
        pages.push("http://example.com/new", f"version {version}", priority=fjord.Priority.UPDATES)
    show(pages.peek())


def work(pages: fjord.Jobs) -> None:
    tell("A worker takes them by priority.")
    while taken := pages.next(count=10):
        show(taken)
        pages.done_many(taken)


def wait_for_a_date(pages: fjord.Jobs) -> None:
    tell("Push a page with a delay of half a second, and wait for it without polling.")
    pages.push("http://example.com/soon", delay=0.5)
    due = pages.next_at()
    begun = time.monotonic()
    (job,) = pages.next(wait=30)
    print(f"   due at {due:%H:%M:%S.%f}, received after {time.monotonic() - begun:.3f} s")
    job.done()


def forget_a_lease(pages: fjord.Jobs) -> None:
    tell("A worker dies while it holds a job; when the lease expires, the next worker gets it.")
    pages.push("http://example.com/dropped")
    (first,) = pages.next()
    (second,) = pages.next(wait=30)
    print(f"   {second.key} again, timed out {second.timeouts} times")
    second.done()
    try:
        first.done()
    except fjord.StaleError as error:
        print(f"   the first worker comes back: {error.code}")


def fail_until_dead(pages: fjord.Jobs) -> None:
    tell("A page that fails three times goes to the dead letters, with the reason.")
    pages.push("http://example.com/broken")

    def fetch(job: fjord.Job) -> None:
        raise OSError("503 Service Unavailable")

    pages.run(fetch, retry_delay=0, stop=lambda: pages.count().dead == 1)
    for dead in pages.dead():
        print(f"   {dead.key}: {dead.reason}")


def bring_back(db: fjord.Database) -> None:
    tell("The process restarts. The dead page is revived, and now it succeeds.")
    pages = db.jobs("pages")
    print(f"   {pages.redrive(reason='503').revived} job waits again")
    print(f"   {pages.run(lambda job: None, stop=lambda: not pages.count().waiting)} job is done")
    print(f"   left: {pages.count()}")


def take_turns(db: fjord.Database) -> None:
    tell("One site pushes 10,000 pages, another only one: with fairness they take turns.")
    crawl = db.create_jobs("crawl", fairness="domain")
    crawl.push_many(keys=[f"http://large.example/{number}" for number in range(10_000)])
    crawl.push("http://small.example/")
    for job in crawl.next(count=3):
        print(f"   {job.domain:15}  {job.key}")


def show(jobs: Iterable[fjord.Job | fjord.JobInfo]) -> None:
    for job in jobs:
        print(f"   {job.priority:3}  {job.key}", "" if job.value is None else job.value)


def tell(text: str) -> None:
    print(f"\n{text}")


if __name__ == "__main__":
    main()
