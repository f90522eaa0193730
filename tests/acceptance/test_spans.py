"""Spans through the client and a real daemon: batches that end where commits end, over kills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord
import fjord.aio
from fjord.errors import Code
from tests.acceptance.daemon import Daemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as one:
        yield one


def test_batches_cover_a_stream_once_whatever_happens_to_the_daemon(daemon: Daemon) -> None:
    sizes = [1, 7, 2, 30, 4, 4, 9, 1]
    with fjord.connect(daemon.url) as db:
        for count in sizes[:4]:
            db.stream("events").append_many([b"v"] * count)
            db.kv("other").set("k", 1)
    daemon.kill()
    daemon.start()
    with fjord.connect(daemon.url) as db:
        for count in sizes[4:]:
            db.stream("events").append_many([b"v"] * count)
        assert db.span("events").rows == sum(sizes)
        batches = []
        after, epoch = 0, ""
        while (found := db.span("events", after, rows_max=10, epoch=epoch)).rows:
            read = list(db.scan_arrow("events", after + 1, found.seq + 1, columns=["seq", "txn"]))
            assert sum(one.num_rows for one in read) == found.rows
            assert max(max(one["txn"].to_pylist()) for one in read) == found.seq
            batches.append(found.rows)
            after, epoch = found.seq, found.epoch
        assert batches == [10, 30, 8, 10]
        with pytest.raises(fjord.RefusedError) as caught:
            db.span("events", 1, epoch=epoch)
        assert caught.value.code is Code.FORKED
        db.seal("events")
        behind = db.blocks("events")[-1].last
        assert db.span("events", behind).rows == 0
