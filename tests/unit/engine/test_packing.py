from __future__ import annotations

import errno
import random
from dataclasses import replace
from pathlib import Path

import pytest

from fjord.commands import Batch, Numbered, Scan, Scanned
from fjord.engine import Engine, ReadOnlyEngine, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.errors import Code
from fjord.index.memory import MemoryIndexes
from fjord.testing import SimClock, SimDisk
from tests.unit.engine.world import SEGMENT_BYTES, TABLE, read, set_command, settings, write
from tests.unit.tables.world import code_of

KEYS = [b"key-%03d" % number for number in range(50)]


def churn(engine: Engine, clock: SimClock, rounds: int, *, seed: int = 1) -> dict[bytes, bytes]:
    """Overwrites keys until most of the journal is dead; returns what they have in the end."""
    dice = random.Random(seed)
    model: dict[bytes, bytes] = {}
    for _ in range(rounds):
        items = {key: dice.randbytes(300) for key in dice.sample(KEYS, 10)}
        write(engine, clock, items)
        model |= items
    return model


def settle(engine: Engine) -> None:
    while engine.upkeep():
        pass
    engine.sync()


def check(engine: Engine | ReadOnlyEngine, model: dict[bytes, bytes]) -> None:
    assert read(engine, *KEYS) == [model.get(key) for key in KEYS]


def test_dead_segments_go_and_live_rows_stay(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    model = churn(engine, clock, 200)
    settle(engine)
    stats = engine.stats()
    assert stats["packed_segments"] > 3
    assert stats["first_seq"] > 1
    assert stats["journal_bytes"] <= 2.5 * stats["live_bytes"] + 2 * SEGMENT_BYTES
    check(engine, model)
    names = sorted(path.name for path in (tmp_path / "journal").iterdir())
    assert len([name for name in names if name.endswith(".seg")]) == stats["segments"]


def test_what_does_not_count_as_live_is_not_packed_over_and_over(
    engine: Engine, clock: SimClock
) -> None:
    """The answers of many clients are kept, and are no rows of any table."""
    command = set_command({b"k": b"v"}, timestamp_us=clock.wall_us())
    for number in range(3000):
        client = number.to_bytes(16, "big")
        engine.run([Numbered(command=Batch(commands=[command]), client=client, number=1)])
    stats = engine.stats()
    assert stats["journal_bytes"] > 2 * stats["live_bytes"] + 2 * SEGMENT_BYTES
    settle(engine)
    packed = engine.stats()["packed_segments"]
    assert 0 < packed <= 3 * stats["segments"]
    settle(engine)
    assert engine.stats()["packed_segments"] == packed


def test_a_reader_beside_the_packer_finds_everything(clock: SimClock) -> None:
    shared = replace(settings(clock), disk=SimDisk(), indexes=MemoryIndexes(TREE_COUNT))
    engine = open_engine("/data", shared)
    model = churn(engine, clock, 150)
    reader = ReadOnlyEngine("/data", shared)
    check(reader, model)
    settle(engine)
    assert engine.stats()["packed_segments"] > 1
    check(reader, model)
    model |= churn(engine, clock, 150, seed=3)
    settle(engine)
    check(reader, model)


def test_a_scan_from_the_beginning_begins_with_what_is_left(
    engine: Engine, clock: SimClock
) -> None:
    churn(engine, clock, 200)
    settle(engine)
    piece = engine.scan(Scan(table=TABLE, start_seq=1, end_seq=0))
    assert isinstance(piece, Scanned)
    assert piece.first_seqs[0] >= engine.stats()["first_seq"]
    refused = engine.scan(Scan(table=TABLE, start_seq=2, end_seq=0))
    assert code_of(refused) is Code.BAD_RANGE


def test_an_oldest_segment_that_cannot_be_read_stops_packing_and_nothing_else(
    clock: SimClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = replace(settings(clock), disk=SimDisk(), indexes=MemoryIndexes(TREE_COUNT))
    engine = open_engine("/data", shared)
    churn(engine, clock, 200)
    first = engine.journal.segments[0].segment

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    engine.journal._values.forget(first)
    monkeypatch.setattr(engine.journal._file(first), "read", broken)
    settle(engine)
    assert engine.stats()["packing_blocked"] == 1
    write(engine, clock, {b"new": b"1"})
    assert read(engine, b"new") == [b"1"]
