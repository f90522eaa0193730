"""A forwarder turns its loop for what happens, not round and round while events wait."""

from __future__ import annotations

import asyncio
import selectors
from pathlib import Path

import pytest

import fjord
from fjord.forwarder import Forwarder
from tests.acceptance.daemon import Daemon

RECORDS = 20_000
# A batch is sent in a few pieces, and its answer comes in one or two.
TURNS_PER_BATCH_MAX = 60


class CountingSelector(selectors.EpollSelector):
    """Counts how often it is asked what has happened: once for each turn of a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(timeout)


@pytest.mark.req("FJ-22")
def test_file_events_do_not_keep_it_busy_while_it_works(tmp_path: Path) -> None:
    selector = CountingSelector()
    with fjord.spool(tmp_path / "spool") as spool:
        pages = spool.jobs("pages")
        for number in range(RECORDS):
            pages.push(f"http://example.com/{number}", b"x" * 100)

    async def forward(url: str) -> Forwarder:
        forwarder = Forwarder(str(tmp_path / "spool"), url)
        await forwarder.run(until_empty=True)
        return forwarder

    with (
        Daemon(tmp_path / "data") as daemon,
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner,
    ):
        progress = runner.run(forward(daemon.url)).progress
    assert progress.records == RECORDS
    # Each batch that is erased is an event of the file system, which is not looked at meanwhile.
    assert selector.turns < TURNS_PER_BATCH_MAX * (progress.batches + 1)
