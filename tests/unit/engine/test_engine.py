"""The engine: groups, frames, rotation, takeovers, and who may open what."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from pathlib import Path

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Done, Get, Nop, Refusal
from fjord.disk import LocalDisk
from fjord.engine import Engine, EngineSettings, open_engine
from fjord.engine.backup import back_up, restore
from fjord.engine.memory import TREE_COUNT
from fjord.engine.read_only import ReadOnlyEngine
from fjord.errors import ClosedError, Code, DirectoryError, DiskFullError, DurabilityError
from fjord.index.memory import MemoryIndexes
from fjord.testing import SimClock, SimCrash, SimDisk
from tests.unit.engine import world
from tests.unit.tables.world import code_of


def test_a_group_larger_than_a_segment_goes_into_several_frames(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    now_us = clock.wall_us()
    big = {b"k%03d" % number: bytes([number]) * 2_000 for number in range(90)}
    keys = list(big)
    group = [  # nine keys each, so that they are not merged into one
        world.set_command({key: big[key] for key in keys[start : start + 9]}, timestamp_us=now_us)
        for start in range(0, len(keys), 9)
    ]
    group.append(world.set_command({b"huge": b"h" * 500_000}, timestamp_us=now_us))
    assert {type(reply) for reply in engine.run(group)} == {Done}
    engine.sync()
    assert world.read(engine, *big) == list(big.values())
    engine.abandon()
    assert len(list((tmp_path / "journal").glob("*.seg"))) > 2
    engine = world.open_at(tmp_path, clock)
    assert world.read(engine, *big, b"huge") == [*big.values(), b"h" * 500_000]


def test_an_index_that_runs_full_grows_and_nothing_is_lost(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    before = (tmp_path / "index" / "data.mdb").stat().st_size
    items = {b"key-%06d" % number: b"%d" % number for number in range(40_000)}
    keys = list(items)
    for start in range(0, len(keys), 5000):
        world.write(engine, clock, {key: items[key] for key in keys[start : start + 5000]})
    assert (tmp_path / "index" / "data.mdb").stat().st_size > before
    assert world.read(engine, *keys) == list(items.values())


@pytest.mark.req("KY-27")
def test_every_start_adds_a_takeover_at_the_seq_it_found(clock: SimClock, tmp_path: Path) -> None:
    seqs = []
    for clean in (True, False, True):
        engine = world.open_at(tmp_path, clock)
        world.write(engine, clock, {b"key": b"value"})
        seqs.append(engine.applied_seq)
        if clean:
            engine.close()
        else:
            engine.abandon()
    engine = world.open_at(tmp_path, clock)
    takeovers = engine.takeovers()
    assert [seq for _, seq in takeovers] == [0, *seqs]
    assert len({master for master, _ in takeovers}) == 4
    assert takeovers[-1][0] == engine.master
    engine.close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_lease_time_goes_on_over_restarts_and_ignores_the_wall_clock(
    engine: Engine, clock: SimClock, tmp_path: Path, is_clean: bool
) -> None:
    clock.advance(100)
    world.write(engine, clock, {b"key": b"value"})
    clock.jump(-3600)
    if is_clean:
        clock.advance(30)  # a clean stop says how late it is, a crash leaves what the frames say
    lease_us = engine._leases.lease_us()
    (engine.close if is_clean else engine.abandon)()
    later = SimClock()
    engine = world.open_at(tmp_path, later)
    assert abs(engine._leases.lease_us() - lease_us) < 10_000
    later.advance(5)
    assert abs(engine._leases.lease_us() - lease_us - 5_000_000) < 10_000


def test_use_after_close_and_after_fork_is_refused(engine: Engine) -> None:
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            engine.run([Nop()])
        except ClosedError as error:
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    engine.close()
    with pytest.raises(ClosedError):
        engine.run([Nop()])


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "data"), world.settings())
    engine.close()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "data").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_read_that_finds_no_file_to_open_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    clock = SimClock()
    engine = world.open_at(tmp_path, clock)
    world.write(engine, clock, {b"key": b"value"})
    engine.journal.close()
    get = Get(table=world.TABLE, keys=Strings.of([b"key"]))
    now_us = clock.wall_us()
    with monkeypatch.context() as patch:
        patch.setattr(LocalDisk, "open", too_many)
        refused, done = engine.run([get, world.set_command({b"other": b"x"}, timestamp_us=now_us)])
    assert code_of(refused) is Code.FAILED
    assert isinstance(done, Done)
    assert world.read(engine, b"key", b"other") == [b"value", b"x"]
    engine.close()


def test_a_failed_start_lets_go_of_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    world.open_at(tmp_path).close()
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_take_over", broken)
        with pytest.raises(RuntimeError) as caught:
            world.open_at(tmp_path)
    world.open_at(tmp_path).close()
    assert caught.value.__traceback__ is not None


def test_reads_on_a_full_disk_are_bounded_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    clock = SimClock()
    engine = world.open_at(tmp_path, clock)
    world.write(engine, clock, {b"key": b"v" * 1000})
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", 3000)
    monkeypatch.setattr(engine.writer, "append", full)
    get = Get(table=world.TABLE, keys=Strings.of([b"key"]))
    refused = world.set_command({b"key": b"new"}, timestamp_us=clock.wall_us())
    replies = engine.run_some([refused, *[get] * 10])
    assert isinstance(replies[0], Refusal)
    assert len(replies) == 4
    assert len(engine.run([refused, *[get] * 10])) == 11
    engine.abandon()


# -- directories that are not Fjord's -------------------------------------------------------------

FOREIGN: list[dict[str, bytes]] = [
    {"lock": b"somebody else's"},
    {"lock": b"123\n"},
    {"lock": b"", "journal/a.md": b"dear diary"},
    {"notes.txt": b""},
    {"journal": b"dear diary"},
    {"index": b"of a book"},
    {"lock": b"", "journal": b"dear diary"},
    {"journal/2024.md": b"dear diary"},
    {"index/owner": b"somebody"},
    {"clean": b"x"},
    {"published": bytes(4096)},
    {"ballast": bytes(10)},
    {"data.mdb": b"x", "lock.mdb": b"x"},
]


def look(root: Path) -> dict[str, tuple[int, bytes]]:
    """Returns all that is there, with its time of change."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [root, *root.rglob("*")]
    }


@pytest.fixture(params=FOREIGN, ids=lambda files: " ".join(files))
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for name, data in request.param.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def test_a_foreign_directory_is_refused_untouched(foreign: Path) -> None:
    before = look(foreign)
    with pytest.raises(DirectoryError, match="not Fjord's; choose an empty or a new directory"):
        open_engine(str(foreign), world.settings(SimClock()))
    with pytest.raises(DirectoryError, match="is not a Fjord data directory"):
        ReadOnlyEngine(str(foreign), world.settings(SimClock()))
    with pytest.raises(DirectoryError, match="is not a Fjord data directory"):
        back_up(str(foreign), str(foreign.parent / "backup"))
    assert look(foreign) == before
    assert os.listdir(foreign.parent) == ["data"]


def test_a_new_file_system_is_empty(tmp_path: Path) -> None:
    data, backup, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    for path in (data, backup, restored):
        (path / "lost+found").mkdir(parents=True)
    open_engine(str(data), world.settings(SimClock())).close()
    back_up(str(data), str(backup))
    manifest = restore(str(backup), str(restored))
    engine = open_engine(str(restored), world.settings(SimClock()))
    assert engine.applied_seq > manifest.seq
    engine.close()


def test_a_first_start_that_crashed_is_gone_on_with() -> None:
    for number in range(1, 100):
        for power in (False, True):
            disk = SimDisk(number, crash_at=number)
            where = EngineSettings(
                segment_bytes=world.SEGMENT_BYTES,
                disk=disk,
                clock=SimClock(),
                indexes=MemoryIndexes(TREE_COUNT),
            )
            with contextlib.suppress(SimCrash):
                open_engine("/srv/data", where).close()
                assert number > 10
                return
            if power:
                disk.power_cut()
            else:
                disk.process_crash()
            open_engine("/srv/data", where).close()


def test_too_little_space_is_said_and_nothing_is_left() -> None:
    for room in range(0, world.SEGMENT_BYTES, world.SEGMENT_BYTES // 8):
        disk = SimDisk(1, capacity=room)
        where = EngineSettings(
            segment_bytes=world.SEGMENT_BYTES,
            disk=disk,
            clock=SimClock(),
            indexes=MemoryIndexes(TREE_COUNT),
        )
        needed = world.SEGMENT_BYTES + where.index_step_bytes + 2**20
        with pytest.raises(DiskFullError, match=f"{needed} bytes are needed"):
            open_engine("/srv/data", where)
        assert disk.names("/") == []


def test_too_few_files_are_said_and_nothing_is_left() -> None:
    """Each directory and each file takes a place that a file system may not have."""
    for number in itertools.count(1):
        disk = SimDisk(1, errors={number: errno.ENOSPC})
        where = EngineSettings(
            segment_bytes=world.SEGMENT_BYTES,
            disk=disk,
            clock=SimClock(),
            indexes=MemoryIndexes(TREE_COUNT),
        )
        try:
            open_engine("/srv/data", where).close()
        except (DiskFullError, DurabilityError):
            if disk.calls[number - 1] in ("make_directory", "create"):
                assert disk.names("/") == []
        else:
            if number > len(disk.calls):
                break
    assert number > 10
