"""Staging in a whole engine: in the same frame, over segments, blocks, restarts and scans."""

from __future__ import annotations

import shutil
from pathlib import Path

import fjord
from fjord.columns import Strings
from fjord.commands import CommitStages, Committed, Done, Messages, Read, Scan, Scanned, Stage
from fjord.engine import Engine, open_engine
from fjord.errors import Code
from fjord.testing import SimDisk
from tests.crash.stream_world import LOG
from tests.crash.test_staging import StagingWorld
from tests.unit.engine.shore import append_command, told
from tests.unit.tables.world import code_of


def stage(db: fjord.Database, *values: bytes, table: str = "events") -> int:
    keys = Strings.of([b"k%d" % number for number in range(len(values))])
    return db.staging(table).append(b"\1" * len(values), keys, Strings.of(list(values)))


def values_of(db: fjord.Database, table: str = "events") -> list[object]:
    found: list[object] = []
    batch = db.stream(table).read()
    while len(batch):
        found += [message.value for message in batch]
        batch = db.stream(table).read(after=batch)
    return found


def test_stage_commit_and_read_in_one_frame(tmp_path: Path) -> None:
    """What is staged, committed and read at once is not written anywhere yet."""
    engine: Engine = open_engine(str(tmp_path / "data"))
    rows = append_command("log", [(b"", b"a"), (b"", b"b")])
    seq = engine.applied_seq + 2  # the table comes first
    replies = engine.run(
        [
            Stage(rows=rows),
            CommitStages(table="log", writer="w", batch=0, stages=[seq]),
            Read(table="log", after=0),
        ]
    )
    staged, committed, read = replies
    assert isinstance(staged, Done)
    assert staged.seq == seq
    assert isinstance(committed, Committed)
    assert isinstance(read, Messages)
    assert [message.value for message in told(read)] == [b"a", b"b"]
    engine.close()


def test_a_scan_shows_messages_where_they_got_their_seqs(tmp_path: Path) -> None:
    with fjord.open(tmp_path / "data") as db:
        first = stage(db, b"a", b"b")
        db.stream("events").append(b"between")
        db.staging("events").commit("w", 0, [first])
        (table,) = db.scan_arrow("events")
        rows = table.to_pylist()
        assert [row["value"] for row in rows] == [b"between", b"a", b"b"]
        assert {row["op"] for row in rows} == {"APPEND"}
        assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
        assert rows[1]["txn"] == rows[2]["txn"] > rows[2]["seq"] - 1
        (named,) = db.scan_arrow("events", ops=["STREAM_APPEND"], key_prefix="k1")
        assert named["value"].to_pylist() == [b"b"]


def test_an_index_that_is_lost_is_made_again_with_stages_and_writers(tmp_path: Path) -> None:
    with fjord.open(tmp_path / "data") as db:
        pending = stage(db, b"later")
        db.staging("events").commit("w", 5, [stage(db, b"a")])
    shutil.rmtree(tmp_path / "data" / "index")
    (tmp_path / "data" / "clean").unlink()
    with fjord.open(tmp_path / "data") as db:
        assert db.staging("events").last_batch("w") == 5
        assert db.staging("events").commit("w", 6, [pending]).rows == 1
        assert values_of(db) == [b"a", b"later"]


def test_a_scan_of_messages_whose_stage_was_packed_says_that_they_are_cold() -> None:
    """The stage was in an older segment than the commit, and both are in a block."""
    world = StagingWorld(SimDisk(1))
    world.open()
    world.create()
    stage_ = world.stage(LOG, [(b"", b"a")])
    world.engine.begin_segment()
    world.commit(CommitStages(table=LOG, writer="w", batch=0, stages=[stage_]))
    later = world.append(LOG, [(b"", b"b")])
    world.round()
    world.upkeep()
    world.pack()
    reply = world.engine.scan(Scan(table=LOG, start_seq=1, end_seq=0))
    assert code_of(reply) is Code.BAD_RANGE
    assert isinstance(later, Done)
    reply = world.engine.scan(Scan(table=LOG, start_seq=later.seq, end_seq=0))
    assert isinstance(reply, Scanned)


def test_a_span_counts_the_bytes_of_what_was_staged(tmp_path: Path) -> None:
    with fjord.open(tmp_path / "data") as db:
        for number in range(3):
            db.staging("events").commit("w", number, [stage(db, b"x" * 1000)])
        assert db.span("events").bytes > 3000
        assert db.span("events", bytes_max=1500).rows == 1
