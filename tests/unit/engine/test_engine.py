"""The engine: groups, frames, rotation, takeovers, and who may open what."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fjord
from fjord import limits
from fjord.columns import Strings
from fjord.commands import Command, Delete, Done, Entries, Get, Nop, Refusal, Scan, Scanned, Set
from fjord.disk import LocalDisk
from fjord.engine import Engine, open_engine
from fjord.errors import ClosedError, Code, DirectoryInUseError
from fjord.testing import SimClock
from tests.unit.engine.world import TABLE, open_at, read, set_command, settings, write


def test_commands_of_a_group_see_each_other_in_order(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    keys = Strings.of([b"key"])
    now_us = clock.wall_us()
    group: list[Command] = [
        Get(table=TABLE, keys=keys),
        set_command({b"key": b"one"}, timestamp_us=now_us),
        Get(table=TABLE, keys=keys),
        set_command({b"key": b"two"}, timestamp_us=now_us + 1),
        Get(table=TABLE, keys=keys),
        Delete(table=TABLE, keys=keys, timestamp_us=now_us + 2),
        Get(table=TABLE, keys=keys),
        Nop(),
    ]
    replies = engine.run(group)
    found = [reply.values[0] for reply in replies if isinstance(reply, Entries)]
    assert found == [b"", b"one", b"two", b""]
    assert isinstance(replies[-1], Done)
    assert replies[-1].seq == engine.applied_seq
    engine.close()


def test_small_sets_of_a_group_share_one_op_and_each_has_its_reply(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    write(engine, clock, {b"key": b"there"})
    now_us = clock.wall_us()
    group = [set_command({b"k%d" % n: b"v%d" % n}, timestamp_us=now_us + n) for n in range(10)]
    replies = engine.run(group)
    engine.sync()
    assert [type(reply) for reply in replies] == [Done] * 10
    assert read(engine, b"k0", b"k9") == [b"v0", b"v9"]
    scanned = engine.scan(Scan(table=TABLE, start_seq=engine.applied_seq - 9, end_seq=0))
    assert isinstance(scanned, Scanned)
    assert len(scanned.ops) == 1
    engine.close()


def test_one_bad_command_in_a_group_is_refused_alone(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    now_us = clock.wall_us()
    group = [
        set_command({b"good": b"1"}, timestamp_us=now_us),
        set_command({b"k" * 500: b"2"}, timestamp_us=now_us),
        set_command({b"also good": b"3"}, timestamp_us=now_us),
    ]
    good, bad, also_good = engine.run(group)
    assert isinstance(bad, Refusal)
    assert bad.code is Code.KEY_TOO_LONG
    assert isinstance(good, Done)
    assert isinstance(also_good, Done)
    assert read(engine, b"good", b"also good") == [b"1", b"3"]
    engine.close()


def test_the_same_key_twice_in_a_group_leaves_both_ops_in_history(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    now_us = clock.wall_us()
    engine.run([set_command({b"key": b"1"}, timestamp_us=now_us)])
    engine.run([set_command({b"key": value}, timestamp_us=now_us) for value in (b"2", b"3")])
    engine.sync()
    assert read(engine, b"key") == [b"3"]
    scanned = engine.scan(Scan(table=TABLE, start_seq=1, end_seq=0))
    assert isinstance(scanned, Scanned)
    assert len(scanned.ops) == 4
    engine.close()


def test_a_group_larger_than_a_segment_goes_into_several_frames(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    now_us = clock.wall_us()
    big = {b"k%03d" % number: bytes([number]) * 2_000 for number in range(90)}
    keys = list(big)
    group = [  # nine keys each, so that they are not merged into one
        set_command({key: big[key] for key in keys[start : start + 9]}, timestamp_us=now_us)
        for start in range(0, len(keys), 9)
    ]
    group.append(set_command({b"huge": b"h" * 500_000}, timestamp_us=now_us))
    assert {type(reply) for reply in engine.run(group)} == {Done}
    engine.sync()
    assert read(engine, *big) == list(big.values())
    engine.abandon()
    assert len(list((tmp_path / "journal").glob("*.seg"))) > 2
    engine = open_at(tmp_path, clock)
    assert read(engine, *big, b"huge") == [*big.values(), b"h" * 500_000]
    engine.close()


def test_an_index_that_runs_full_grows_and_nothing_is_lost(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    before = (tmp_path / "index" / "data.mdb").stat().st_size
    items = {b"key-%06d" % number: b"%d" % number for number in range(40_000)}
    keys = list(items)
    for start in range(0, len(keys), 5000):
        write(engine, clock, {key: items[key] for key in keys[start : start + 5000]})
    assert (tmp_path / "index" / "data.mdb").stat().st_size > before
    assert read(engine, *keys) == list(items.values())
    engine.close()


@pytest.mark.req("KY-27")
def test_every_start_adds_a_takeover_at_the_seq_it_found(tmp_path: Path) -> None:
    clock = SimClock()
    seqs = []
    for clean in (True, False, True):
        engine = open_at(tmp_path, clock)
        write(engine, clock, {b"key": b"value"})
        seqs.append(engine.applied_seq)
        if clean:
            engine.close()
        else:
            engine.abandon()
    engine = open_at(tmp_path, clock)
    takeovers = engine.takeovers()
    assert [seq for _, seq in takeovers] == [0, *seqs]
    assert len({master for master, _ in takeovers}) == 4
    assert takeovers[-1][0] == engine.master
    engine.close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_lease_time_goes_on_over_restarts_and_ignores_the_wall_clock(
    tmp_path: Path, is_clean: bool
) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    clock.advance(100)
    write(engine, clock, {b"key": b"value"})
    clock.jump(-3600)
    if is_clean:
        clock.advance(30)  # a clean stop says how late it is, a crash leaves what the frames say
    lease_us = engine._leases.lease_us()
    (engine.close if is_clean else engine.abandon)()
    later = SimClock()
    engine = open_at(tmp_path, later)
    assert abs(engine._leases.lease_us() - lease_us) < 10_000
    later.advance(5)
    assert abs(engine._leases.lease_us() - lease_us - 5_000_000) < 10_000
    engine.close()


def test_a_second_writer_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    engine = open_at(tmp_path)
    with pytest.raises(DirectoryInUseError, match=str(os.getpid())):
        open_at(tmp_path)
    engine.close()
    open_at(tmp_path).close()


def test_a_writer_in_another_process_is_refused(tmp_path: Path) -> None:
    code = "import sys, fjord; fjord.open(sys.argv[1])"
    engine = open_at(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "DirectoryInUseError" in done.stderr
    assert "read_only=True" in done.stderr
    engine.close()


def test_use_after_close_and_after_fork_is_refused(tmp_path: Path) -> None:
    engine = open_at(tmp_path)
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
    engine.close()


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "data"), settings())
    engine.close()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "data").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_values_with_persist_off_are_gone_after_a_restart(tmp_path: Path) -> None:
    with fjord.open(tmp_path) as db:
        kv = db.kv()
        kv.set("memory", "only", persist=False)
        kv.set("stored", "first")
        kv.set("stored", "memory only now", persist=False)
        assert kv.get("memory") == "only"
        assert kv.get("stored") == "memory only now"
    with fjord.open(tmp_path) as db:
        assert db.kv().get("memory") is None
        assert db.kv().get("stored") is None


def test_a_refused_batch_leaves_nothing_behind(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    before = engine.applied_seq
    command = Set(
        table=TABLE,
        keys=Strings.of([b"good", b""]),
        types=b"\1\1",
        values=Strings.of([b"1", b"2"]),
        timestamps_us=[clock.wall_us()] * 2,
    )
    (reply,) = engine.run([command])
    assert isinstance(reply, Refusal)
    assert reply.code is Code.EMPTY_KEY
    assert engine.applied_seq == before
    assert read(engine, b"good") == [None]
    engine.close()


def test_a_read_that_finds_no_file_to_open_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    clock = SimClock()
    engine = open_at(tmp_path, clock)
    write(engine, clock, {b"key": b"value"})
    engine.journal.close()
    get = Get(table=TABLE, keys=Strings.of([b"key"]))
    now_us = clock.wall_us()
    with monkeypatch.context() as patch:
        patch.setattr(LocalDisk, "open", too_many)
        refused, done = engine.run([get, set_command({b"other": b"x"}, timestamp_us=now_us)])
    assert isinstance(refused, Refusal)
    assert refused.code is Code.FAILED
    assert isinstance(done, Done)
    assert read(engine, b"key", b"other") == [b"value", b"x"]
    engine.close()


def test_a_failed_start_lets_go_of_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    open_at(tmp_path).close()
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_take_over", broken)
        with pytest.raises(RuntimeError) as caught:
            open_at(tmp_path)
    open_at(tmp_path).close()
    assert caught.value.__traceback__ is not None


def test_reads_on_a_full_disk_are_bounded_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    clock = SimClock()
    engine = open_at(tmp_path, clock)
    write(engine, clock, {b"key": b"v" * 1000})
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", 3000)
    monkeypatch.setattr(engine.writer, "append", full)
    get = Get(table=TABLE, keys=Strings.of([b"key"]))
    refused = set_command({b"key": b"new"}, timestamp_us=clock.wall_us())
    replies = engine.run_some([refused, *[get] * 10])
    assert isinstance(replies[0], Refusal)
    assert len(replies) == 4
    assert len(engine.run([refused, *[get] * 10])) == 11
    engine.abandon()
