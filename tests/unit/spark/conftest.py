"""A directory with cold and warm history, made once; nobody writes to it."""

from __future__ import annotations

from pathlib import Path

import pytest

import fjord
from tests.acceptance.conftest import spark

__all__ = ["mixed", "spark"]


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stream `events`: 30 commits of 10 rows in 3 blocks, 5 commits behind them; and others.

    Table `other` has a row between any two commits, so seqs have gaps.
    """
    path = tmp_path_factory.mktemp("mixed") / "data"
    with fjord.open(path) as database:
        events = database.create_stream("events")
        for number in range(35):
            database.kv("other").set("k", number)
            events.append_many([b"%d-%d" % (number, row) for row in range(10)], [b"a", b"b"] * 5)
            if number in (9, 19, 29):
                database.seal("events")
        profiles = database.create_stream("profiles", mode="latest")
        profiles.append_many([b"Oslo", b"Rome", b"Bonn"], [b"7", b"8", b"9"])
        profiles.append(b"Bergen", b"7")
        profiles.delete(b"8")
        database.jobs("pages").push_many(keys=[f"http://example.com/{n}" for n in range(5)])
        database.jobs("pages").done_many(database.jobs("pages").next(count=2))
    return path
