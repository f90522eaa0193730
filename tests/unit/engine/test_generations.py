"""Generations on an engine: they turn by themselves, and their space goes back to the disk."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fjord import commands, jobs
from fjord.columns import Strings
from fjord.commands import CreateTable, Numbers, Reply, Taken
from fjord.disk import LocalDisk
from fjord.engine import Engine, ReadOnlyEngine, doctor
from fjord.engine.memory import TREE_COUNT
from fjord.engine.replay import Replay
from fjord.index.memory import MemoryIndex
from fjord.jobs import Drained, Period
from fjord.journal import frame
from fjord.journal.reader import Journal
from fjord.kinds import Kind
from fjord.testing import SimClock
from tests.unit.engine import job_records as records
from tests.unit.engine.shore import Shore
from tests.unit.engine.test_job_packing import settle
from tests.unit.engine.world import SEGMENT_BYTES, open_at, read, settings, write

HOUR = 3600
TABLE = "pages"
SECRET = b"a secret of somebody "


def run(engine: Engine, command: commands.Command) -> Reply:
    (reply,) = engine.run([command])
    engine.sync()
    assert not isinstance(reply, commands.Refusal), reply
    return reply


def create(engine: Engine, *, changes: bool = False, **declared: Any) -> None:
    encoded = jobs.Settings(**declared).encode()
    run(engine, CreateTable(name=TABLE, kind=Kind.JOBS.number, settings=encoded, changes=changes))


_KEYS = itertools.count()


def push(engine: Engine, clock: SimClock, count: int = 1, value: bytes = b"v") -> None:
    keys = [b"%d" % next(_KEYS) for _ in range(count)]
    command = records.push(*keys, now_us=clock.wall_us(), table=TABLE)
    run(engine, replace(command, values=Strings.of([value] * count)))


def push_some(engine: Engine, clock: SimClock, count: int, value: bytes) -> None:
    """Pushes jobs in frames of some, so that they are in several segments."""
    for _ in range(0, count, 10):
        push(engine, clock, 10, value)


def take_all(engine: Engine) -> None:
    while True:
        reply = run(engine, commands.Next(table=TABLE, count=1000, done=True))
        assert isinstance(reply, Taken)
        if not reply.types:
            return


def listed(engine: Engine | ReadOnlyEngine, table: str = TABLE) -> dict[int, int]:
    """Returns how many jobs each generation has, by its number."""
    (reply,) = engine.run([commands.CountJobs(table=table, generations=True)])
    assert isinstance(reply, Numbers), reply
    told = dict(zip(reply.names.rows(), reply.values, strict=True))
    return {
        int(name.split(b".")[1]): told[name]
        for name in reply.names.rows()
        if name.endswith(b".jobs")
    }


def journal_bytes(path: Path) -> int:
    """Returns what the segments take, without the spare and the one that is written to."""
    segments = sorted((path / "journal").glob("*.seg"))
    return sum(segment.stat().st_size for segment in segments[:-1])


def rebuilt(engine: Engine, path: Path, clock: SimClock) -> Engine:
    """Returns the engine of a next start that has to make its index anew."""
    engine.close()
    found = doctor.examine(str(path), settings(clock))
    assert not found.difference_count, found.differences
    (path / "index" / "data.mdb").unlink()
    return open_at(path, clock)


@pytest.mark.req("SJ-18")
def test_generations_turn_by_themselves_at_the_end_of_the_hour(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    create(engine, period=Period.HOUR)
    push(engine, clock, 3)
    settle(engine, clock)
    assert listed(engine) == {1: 3}
    hour_us = HOUR * 1_000_000
    end_us = clock.wall_us() // hour_us * hour_us + hour_us
    while engine.upkeep_due_us() < end_us:
        clock.advance(max(0.0, (engine.upkeep_due_us() - clock.wall_us()) / 1e6))
        settle(engine, clock)
    assert engine.upkeep_due_us() == end_us
    clock.advance((end_us - clock.wall_us()) / 1e6)
    settle(engine, clock)
    assert listed(engine) == {1: 3, 2: 0}
    push(engine, clock, 2)
    assert listed(engine) == {1: 3, 2: 2}
    engine.close()
    engine = open_at(tmp_path, clock)
    assert listed(engine) == {1: 3, 2: 2}
    take_all(engine)
    settle(engine, clock)
    assert listed(engine) == {2: 0}


@pytest.mark.req("SJ-18")
@pytest.mark.parametrize("drained", list(Drained))
def test_a_rebuild_gives_the_same_generations_and_counts(
    engine: Engine, clock: SimClock, tmp_path: Path, drained: Drained
) -> None:
    """Also where jobs and the ops of their generations were said again by packing."""
    create(engine, period=Period.HOUR, drained=drained)
    for _ in range(6):
        push(engine, clock, 30, bytes(1000))
        reply = run(engine, commands.Next(table=TABLE, count=20, done=True))
        assert isinstance(reply, Taken)
        for number in range(40):  # what makes packing worthwhile
            write(engine, clock, {b"key": bytes(2000) + b"%d" % number})
        clock.advance(HOUR)
        settle(engine, clock)
    assert engine.stats()["packed_segments"] > 0
    before = listed(engine)
    assert sum(before.values()) == 60
    assert len(before) > 2
    engine = rebuilt(engine, tmp_path, clock)
    assert listed(engine) == before
    engine.close()
    reader = ReadOnlyEngine(str(tmp_path), settings(clock))
    assert listed(reader) == before
    reader.close()
    engine = open_at(tmp_path, clock)
    assert listed(engine) == before
    take_all(engine)
    clock.advance(HOUR)
    settle(engine, clock)
    assert list(listed(engine).values()) == [0]


@pytest.mark.req("SJ-18", "SJ-19", "SJ-20")
@pytest.mark.parametrize("drained", list(Drained))
def test_space_goes_back_when_a_generation_has_drained(
    engine: Engine, clock: SimClock, tmp_path: Path, drained: Drained
) -> None:
    create(engine, period=Period.HOUR, drained=drained)
    write(engine, clock, {b"key": b"of another table"})
    push_some(engine, clock, 90, bytes(1000))  # no more than packing leaves alone as a rule
    clock.advance(HOUR)
    settle(engine, clock)
    full = journal_bytes(tmp_path)
    assert full > SEGMENT_BYTES // 2
    take_all(engine)
    settle(engine, clock)
    assert listed(engine) == {2: 0}
    left = journal_bytes(tmp_path)
    assert left >= full if drained is Drained.RESET else left == 0
    assert read(engine, b"key") == [b"of another table"]
    # It is done: nothing more is packed, or looked for.
    packed = engine.stats()["packed_segments"]
    clock.advance(60)
    settle(engine, clock)
    assert engine.stats()["packed_segments"] == packed
    engine = rebuilt(engine, tmp_path, clock)
    assert listed(engine) == {2: 0}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_segment_that_is_held_for_blocks_is_waited_for(
    engine: Engine, clock: SimClock, tmp_path: Path, restarts: bool
) -> None:
    shore = Shore()
    shore.attach(engine)
    create(engine, period=Period.HOUR, drained=Drained.TRUNCATE)
    push_some(engine, clock, 90, bytes(1000))  # no more than packing leaves alone as a rule
    clock.advance(HOUR)
    settle(engine, clock)
    take_all(engine)
    settle(engine, clock)
    assert listed(engine) == {2: 0}
    assert journal_bytes(tmp_path) > SEGMENT_BYTES // 2
    assert engine.upkeep_due_us() > clock.wall_us()  # nothing is tried over and over
    if restarts:
        engine.close()
        engine = open_at(tmp_path, clock)
        shore.attach(engine)
    shore.seal(engine)
    settle(engine, clock)
    assert journal_bytes(tmp_path) == 0


@pytest.mark.req("SJ-18")
@pytest.mark.parametrize("drained", list(Drained))
def test_history_goes_with_its_generation_if_that_is_deleted(
    engine: Engine, clock: SimClock, drained: Drained
) -> None:
    shore = Shore()
    shore.attach(engine)
    create(engine, period=Period.HOUR, drained=drained)
    push(engine, clock, 10)
    take_all(engine)
    shore.seal(engine)
    old = engine.sealing.blocks(TABLE)
    assert old
    clock.advance(HOUR)
    settle(engine, clock)
    push(engine, clock, 10)
    settle(engine, clock)
    is_due = engine.sealing.due_us() == 0
    assert is_due is (drained is Drained.DELETE)
    gone = shore.retire(engine)
    assert gone == (old if drained is Drained.DELETE else [])
    shore.seal(engine)
    left = engine.sealing.blocks(TABLE)
    assert len(left) == (1 if drained is Drained.DELETE else 2)
    assert shore.retire(engine) == []


@pytest.mark.req("SJ-19")
@pytest.mark.parametrize("secure", [True, False])
def test_what_goes_is_overwritten_before(
    engine: Engine, clock: SimClock, tmp_path: Path, *, secure: bool
) -> None:
    create(engine, period=Period.HOUR, drained=Drained.TRUNCATE, secure=secure)
    push_some(engine, clock, 300, SECRET * 50)
    clock.advance(HOUR)
    settle(engine, clock)
    twins = tmp_path / "twins"
    twins.mkdir()
    for segment in sorted((tmp_path / "journal").glob("*.seg"))[:-1]:
        (twins / segment.name).hardlink_to(segment)
    sizes = {twin.name: twin.stat().st_size for twin in twins.iterdir()}
    assert len(sizes) > 2
    take_all(engine)
    settle(engine, clock)
    assert engine.stats()["packed_segments"] >= len(sizes)
    engine.close()
    left = b"".join(twin.read_bytes() for twin in twins.iterdir())
    assert (SECRET in left) is not secure
    assert len(left) >= sum(sizes.values()) - SEGMENT_BYTES
    assert not list((tmp_path / "journal").glob("*" + frame.UNWIPED))


@pytest.mark.req("SJ-19")
def test_the_next_start_goes_on_with_what_was_to_be_overwritten(
    clock: SimClock, tmp_path: Path
) -> None:
    open_at(tmp_path, clock).close()
    left = tmp_path / "journal" / ("0000000000.seg" + frame.UNWIPED)
    left.write_bytes(SECRET * 1000)
    twin = tmp_path / "twin"
    twin.hardlink_to(left)
    open_at(tmp_path, clock).close()
    assert not left.exists()
    assert twin.read_bytes() == bytes(len(SECRET) * 1000)


@pytest.mark.req("SJ-18")
def test_a_rebuild_that_was_cut_off_counts_at_its_end(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    """Wherever it was cut off: jobs stand before the ops that say where they belong."""
    create(engine, period=Period.HOUR)
    for _ in range(6):
        push_some(engine, clock, 20, bytes(500))
        run(engine, commands.Next(table=TABLE, count=3, done=True))
        clock.advance(HOUR)
        settle(engine, clock)
    for number in range(200):
        write(engine, clock, {b"key": bytes(2000) + b"%d" % number})
        engine.upkeep()
    settle(engine, clock)
    assert len(listed(engine)) > 3
    last_seq = engine.applied_seq
    engine.close()
    journal = Journal(LocalDisk(), str(tmp_path / "journal"))
    assert journal.first_seq > 1
    for stop in range(journal.first_seq, last_seq, 7):

        def cut_off(done: int, wanted: int, seq: int = stop) -> None:
            if done >= seq - journal.first_seq:
                raise KeyboardInterrupt

        index = MemoryIndex(TREE_COUNT)
        with contextlib.suppress(KeyboardInterrupt):
            Replay(journal, index, 5, cut_off).run(last_seq, moved_from=last_seq + 1)
        Replay(journal, index, 5, lambda *_: None).run(last_seq, moved_from=last_seq + 1)
        found = doctor.diagnose(journal, index, settings(clock), shown=3)
        assert not found.difference_count, found.differences
    journal.close()
