"""Directories of a real engine, damaged at random: verify says it, and repair loses nothing.

Each seed takes a directory with key/value entries, jobs and messages in several segments, packed
or not, closed or left by a crash, and does it harm of one to three kinds.  What `plain_reader`
can read of it before the repair it must read after it, and nothing else.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import fjord
from fjord import commands
from fjord.cli.journal import app
from fjord.commands import CreateTable, Finish, Next, Taken
from fjord.engine import Engine, open_engine
from fjord.errors import FjordError
from fjord.kinds import Kind
from fjord.testing import SimClock
from tests.crash import plain_reader
from tests.unit.engine.job_records import push
from tests.unit.engine.shore import append_command
from tests.unit.engine.world import set_command, settings

SEEDS = range(30)
SOAK_SEEDS = range(500)


# -- directories ----------------------------------------------------------------------------------


class Base(NamedTuple):
    """A directory of which copies are damaged."""

    whole: Path
    earlier: Path  # its journal at an earlier moment, for stale copies


def one_round(engine: Engine, clock: SimClock, rng: random.Random, latest: str) -> None:
    clock.advance(0.01)
    now_us = clock.wall_us()
    value = rng.randbytes(rng.choice([10, 300, 3000]))
    wanted: list[commands.Command] = [
        set_command({b"key-%d" % rng.randrange(40): value}, timestamp_us=now_us)
    ]
    if rng.random() < 0.5:
        wanted.append(push(b"job-%d" % rng.randrange(10**6), now_us=now_us))
    if rng.random() < 0.5:
        wanted.append(append_command(latest, [(b"car-%d" % rng.randrange(20), value[:500])]))
    if rng.random() < 0.2:
        keys = {b"many-%d" % number: b"x" * 20 for number in range(rng.randrange(2, 60))}
        wanted.append(set_command(keys, timestamp_us=now_us))
    engine.run(wanted)
    if rng.random() < 0.3:
        (reply,) = engine.run([Next(table="pages", count=3)])
        if isinstance(reply, Taken):
            xids = range(reply.first_xid, reply.first_xid + len(reply.rows))
            engine.run([Finish(table="pages", xids=xids)])
    if rng.random() < 0.6:
        engine.sync()


def fill(path: Path, rng: random.Random, rounds: int, *, packs: bool, earlier: Path | None) -> None:
    clock = SimClock()
    engine = open_engine(str(path), settings(clock))
    latest = CreateTable(name="cars", kind=Kind.STREAM.number, settings=b'{"mode": "latest"}')
    engine.run([latest, CreateTable(name="clicks", kind=Kind.STREAM.number)])
    for number in range(rounds):
        one_round(engine, clock, rng, "cars" if packs else rng.choice(["cars", "clicks"]))
        while packs and engine.upkeep():
            pass
        if earlier is not None and number == rounds // 2:
            engine.sync()
            shutil.copytree(path / "journal", earlier)
        if rng.random() < 0.02:  # recovery writes the last frames again
            engine.abandon()
            clock.advance(1)
            engine = open_engine(str(path), settings(clock))
    engine.sync()
    engine.close()


@functools.cache
def bases(root: Path) -> list[Base]:
    made = []
    for number, rounds in enumerate((90, 200, 260, 400)):
        rng = random.Random(number)
        base = Base(root / f"{number}", root / f"{number}-earlier")
        fill(base.whole, rng, rounds, packs=number % 2 == 1, earlier=base.earlier)
        assert run("verify", base.whole)[0] == 0
        made.append(base)
    counts = [len(list(base.whole.glob("journal/*.seg"))) for base in made]
    assert min(counts) >= 3, counts
    begins = [plain_reader.read(base.whole / "journal").begin_seq for base in made]
    assert begins[0] == 1
    assert begins[1] > 1
    return made


@pytest.fixture(scope="session")
def base_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bases")


# -- harm -----------------------------------------------------------------------------------------


class Harmed:
    """A copy of a directory, while it is damaged."""

    def __init__(self, base: Base, path: Path, rng: random.Random) -> None:
        self.base, self.path, self.rng = base, path, rng
        self.journal = path / "journal"
        shutil.copytree(base.whole, path, ignore=shutil.ignore_patterns("*.mdb", "ballast"))
        self.names = [one.name for one in sorted(self.journal.glob("*.seg"))]

    def file(self) -> Path:
        there = [one for one in sorted(self.journal.glob("*.seg")) if one.stat().st_size > 64]
        return self.rng.choice(there) if there else self.journal / self.names[0]

    def frame(self, path: Path) -> tuple[int, int]:
        """Where a frame of a file was before anything was damaged."""
        found = plain_reader.places(self.base.whole / "journal" / path.name)
        return self.rng.choice(found) if found else (64, 64)

    def write(self, path: Path, at: int, data: bytes) -> None:
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(at)
            file.write(data)

    def flip(self, path: Path, at: int) -> None:
        data = path.read_bytes() if path.exists() else b""
        if at < len(data):
            self.write(path, at, bytes([data[at] ^ 1 << self.rng.randrange(8)]))


def flip_in_a_frame_header(harmed: Harmed) -> None:
    path = harmed.file()
    harmed.flip(path, harmed.frame(path)[0] + harmed.rng.randrange(64))


def flip_in_a_body(harmed: Harmed) -> None:
    path = harmed.file()
    at, length = harmed.frame(path)
    harmed.flip(path, at + harmed.rng.randrange(64, max(65, length)))


def flip_in_a_segment_header(harmed: Harmed) -> None:
    harmed.flip(harmed.file(), harmed.rng.randrange(64))


def cut(harmed: Harmed) -> None:
    path = harmed.file()
    with path.open("r+b") as file:
        file.truncate(harmed.rng.randrange(path.stat().st_size))


def zeros(harmed: Harmed) -> None:
    path = harmed.file()
    at = harmed.rng.randrange(path.stat().st_size) & ~511
    harmed.write(path, at, bytes(min(512, path.stat().st_size - at)))


def missing(position: int | None) -> Callable[[Harmed], None]:
    def harm(harmed: Harmed) -> None:
        there = sorted(harmed.journal.glob("*.seg"))
        if len(there) > 1:
            (harmed.rng.choice(there) if position is None else there[position]).unlink()

    return harm


def swap(harmed: Harmed) -> None:
    one, other, aside = harmed.file(), harmed.file(), harmed.journal / "aside"
    if one != other:
        one.rename(aside)
        other.rename(one)
        aside.rename(other)


def misdirect(harmed: Harmed) -> None:
    """A frame is written over another one's place, in its own file or another one."""
    source, target = harmed.file(), harmed.file()
    if harmed.rng.random() < 0.7:
        target = source
    at, length = harmed.frame(source)
    data = source.read_bytes()[at : at + length]
    if harmed.rng.random() < 0.5:  # and it is nowhere else
        harmed.write(source, at, bytes(min(length, 64)))
    harmed.write(target, harmed.frame(target)[0], data)


def duplicate(harmed: Harmed) -> None:
    source, name = harmed.file(), harmed.rng.choice(harmed.names)
    if source.name != name:
        shutil.copy(source, source.with_name(name))


def put_back_stale(harmed: Harmed) -> None:
    """An older copy of a segment, perhaps of one that was packed."""
    stale = harmed.rng.choice(sorted(harmed.base.earlier.glob("*.seg")))
    shutil.copy(stale, harmed.journal / stale.name)


HARMS: dict[str, Callable[[Harmed], None]] = {
    "frame header": flip_in_a_frame_header,
    "body": flip_in_a_body,
    "segment header": flip_in_a_segment_header,
    "cut": cut,
    "zeros": zeros,
    "first missing": missing(0),
    "one missing": missing(None),
    "last missing": missing(-1),
    "swapped": swap,
    "misdirected": misdirect,
    "duplicate": duplicate,
    "stale": put_back_stale,
}


# -- what must hold -------------------------------------------------------------------------------


def run(verb: str, path: Path, *options: str) -> tuple[int, dict[str, object]]:
    result = CliRunner().invoke(app, [verb, "--data", str(path), "--json", *options])
    assert result.exit_code in (0, 2), (result.output, result.exception)
    return result.exit_code, json.loads(result.stdout) if result.stdout else {}


def segments_of(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes().rstrip(b"\0") for one in (path / "journal").glob("*.seg")}


def opens(path: Path) -> bool:
    """Says whether a copy of a directory opens."""
    copy = path.with_name(path.name + "-copy")
    shutil.copytree(path, copy, ignore=shutil.ignore_patterns("lock"))
    try:
        fjord.open(copy).close()
    except FjordError:
        return False
    finally:
        shutil.rmtree(copy)
    return True


class Outcome(NamedTuple):
    """What became of one directory."""

    kinds: tuple[str, ...]
    is_damaged: bool
    lost_rows: int
    frames: int  # readable before, and after


def repair_one(base: Base, path: Path, seed: int) -> Outcome:
    rng = random.Random(f"repair {seed}")
    harmed = Harmed(base, path, rng)
    is_crashed = rng.random() < 0.25
    if is_crashed:
        (path / "clean").unlink()
    kinds = tuple(rng.choices(list(HARMS), k=rng.choice([1, 1, 1, 2, 3])))
    for kind in kinds:
        HARMS[kind](harmed)
    before = plain_reader.read(harmed.journal)
    code, report = run("verify", path)
    hint = f"seed {seed}, {kinds}, {'crashed' if is_crashed else 'clean'}"
    if code == 0:
        assert opens(path), f"{hint}: called whole, and does not open"
        if segments_of(path) != segments_of(base.whole):
            check_whole(base, before, hint, is_crashed=is_crashed)
    run("repair", path, "--yes")
    after = plain_reader.read(harmed.journal)
    if before.has_uuid:
        assert after.said() <= before.said(), f"{hint}: something is there that was not"
    vouched = before.durable_seq if is_crashed else 2**64
    gone = {one for one in before.said() - after.said() if one.last_seq <= vouched}
    assert not gone, f"{hint}: {len(gone)} readable frames are gone, {min(gone)[:2]}"
    assert run("verify", path)[0] == 0, f"{hint}: not whole after the repair"
    with fjord.open(path) as database:
        database.kv("default").set("after", "repair")
        assert database.kv("default").get("after") == "repair"
    assert run("verify", path)[0] == 0, f"{hint}: not whole after a start"
    lost = report.get("lost_rows", 0)
    assert isinstance(lost, int)
    return Outcome(kinds, code == 2, lost, len(after.said()))


def check_whole(base: Base, before: plain_reader.Found, hint: str, *, is_crashed: bool) -> None:
    """What is called whole although bytes differ has all that was written, or a torn tail."""
    missing_ = plain_reader.read(base.whole / "journal").said() - before.said()
    assert is_crashed or not missing_, f"{hint}: called whole, {len(missing_)} frames are gone"
    assert not {one for one in missing_ if one.last_seq <= before.durable_seq}, hint


@pytest.mark.parametrize("seed", SEEDS)
def test_a_repair_keeps_all_that_can_be_read(base_root: Path, tmp_path: Path, seed: int) -> None:
    base = bases(base_root)[seed % len(bases(base_root))]
    repair_one(base, tmp_path / "data", seed)


@pytest.mark.soak
def test_five_hundred_repairs_keep_all_that_can_be_read(base_root: Path, tmp_path: Path) -> None:
    made, kinds = bases(base_root), Counter[str]()
    done, failed = [], []
    for seed in SOAK_SEEDS:
        path = tmp_path / str(seed)
        try:
            done.append(repair_one(made[seed % len(made)], path, seed))
            kinds.update(done[-1].kinds)
        except (AssertionError, OSError, LookupError, ValueError, FjordError) as error:
            failed.append(f"{seed}: {error!r}"[:300])
        shutil.rmtree(path, ignore_errors=True)
    told = sum(one.is_damaged for one in done)
    print(f"{len(done)} repairs, {told} were told as damaged, harms {dict(kinds)}")
    print(f"{sum(one.lost_rows for one in done)} rows lost, {sum(x.frames for x in done)} frames")
    print(*failed, sep="\n")
    assert not failed
