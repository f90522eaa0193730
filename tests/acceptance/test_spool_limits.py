"""The largest calls that a spool takes arrive: what is accepted is never set aside for its size."""

from __future__ import annotations

from pathlib import Path

import fjord
from fjord import limits
from tests.acceptance.daemon import Daemon
from tests.crash.spool_world import forward

LARGE = limits.VALUE_BYTES_MAX


def test_the_largest_calls_arrive(daemon: Daemon, tmp_path: Path) -> None:
    rows = limits.BATCH_ROWS_MAX
    many = limits.BATCH_BYTES_MAX // LARGE
    with fjord.spool(tmp_path / "spool") as spool:
        spool.jobs("rows").push_many(keys=[f"{n:06}" for n in range(rows)], expires_at=None)
        spool.stream("rows-log").append_many([b""] * rows)
        # The keys have their bytes too, so the last value is shorter by them.
        values = [bytes(LARGE)] * (many - 1) + [bytes(LARGE - many)]
        spool.jobs("bytes").push_many(keys=[str(n) for n in range(many)], values=values)
        spool.stream("bytes-log").append_many([bytes(LARGE)] * many)
        spool.kv("one").set("k" * limits.KV_KEY_BYTES_MAX, bytes(LARGE))
        spool.jobs("one-job").push("k" * limits.JOB_KEY_BYTES_MAX, bytes(LARGE))
    progress = forward(tmp_path / "spool", daemon.url)
    assert (progress.records, sum(progress.refused.values())) == (6, 0)
    with fjord.connect(daemon.url) as db:
        assert db.jobs("rows").count().waiting == rows
        assert db.jobs("bytes").count().waiting == many
        assert len(db.stream("rows-log").read(rows)) == rows
        assert db.jobs("one-job").count().waiting == 1
        assert db.kv("one").exists("k" * limits.KV_KEY_BYTES_MAX)
