"""A spool that is written to, by threads, by processes, from hour to hour, on a disk that fails."""

from __future__ import annotations

import errno
import os
import resource
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fjord
from fjord.client.spool import files
from fjord.client.spool import writer as module
from fjord.client.spool.bell import Doorbell
from fjord.client.spool.files import HEADER_BYTES, Fate, Lines
from fjord.client.spool.records import HEAD
from fjord.client.spool.writer import Appender, Spool, open_spool
from fjord.errors import ClosedError, DirectoryError, DiskFullError, DurabilityError
from fjord.testing import SimClock
from tests.unit.client.spool.spool_samples import check_ended, in_child

HOUR = 3600


def found_in(path: Path) -> Lines:
    data = path.read_bytes()
    assert files.decode_header(data[:HEADER_BYTES]) is not None
    return files.parse(data[HEADER_BYTES:], HEADER_BYTES, is_closed=True)


def values_in(directory: Path) -> list[bytes]:
    """Returns what was appended to streams with a name of one byte, file by file."""
    return [
        record[HEAD.size + 1 :]
        for name in files.waiting_names(str(directory))
        for record in found_in(directory / name).records
    ]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimClock:
    """No hour ends before a test says so."""
    found = SimClock()
    monkeypatch.setattr(module, "SystemClock", lambda: found)
    return found


# -- one writer -----------------------------------------------------------------------------------


@pytest.mark.req("FJ-21")
def test_a_call_has_written_when_it_returns(tmp_path: Path) -> None:
    with fjord.spool(tmp_path / "spool") as spool:
        stream = spool.stream("s")
        for number in range(10):
            stream.append(b"%d" % number)
            assert values_in(tmp_path / "spool")[-1] == b"%d" % number
    assert values_in(tmp_path / "spool") == [b"%d" % number for number in range(10)]
    assert repr(spool) == f"<Spool {str(tmp_path / 'spool')!r}>"


@pytest.mark.req("FJ-26")
def test_every_hour_has_its_file(tmp_path: Path, clock: SimClock) -> None:
    spool = open_spool(tmp_path)
    stream = spool.stream("s")
    names = []
    for _ in range(25):
        stream.append(b"%d" % clock.wall_us())
        names.append(files.name_of(clock.wall_us() // (HOUR * 1_000_000)))
        clock.advance(HOUR)
    assert names[0] == names[24]  # names are used again
    # What is left from a day ago has another name by then.
    assert len(files.waiting_names(str(tmp_path))) == 25
    assert len(values_in(tmp_path)) == 25
    assert len(found_in(tmp_path / names[0]).records) == 1


@pytest.mark.req("FJ-26")
def test_a_file_that_was_deleted_is_made_again(tmp_path: Path, clock: SimClock) -> None:
    stream = open_spool(tmp_path, period=1).stream("s")
    for number in range(30):  # some names more than once
        stream.append(b"%d" % number)
        (name,) = files.waiting_names(str(tmp_path))
        file = files.SpoolFile(str(tmp_path), name)
        assert not file.try_lock()
        clock.advance(1)
        stream.append(b"next")  # the one before is open no more
        assert values_in(tmp_path).count(b"next") == 1
        assert file.try_lock()
        file.remove()
        file.close()
        (name,) = files.waiting_names(str(tmp_path))
        (tmp_path / name).unlink()  # by hand, though it is open
        clock.advance(1)
    assert files.waiting_names(str(tmp_path)) == []


def test_a_closed_spool_says_so(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    stream = spool.stream("s")
    stream.append(b"1")
    (name,) = files.waiting_names(str(tmp_path))
    file = files.SpoolFile(str(tmp_path), name)
    assert not file.try_lock()
    spool.close()
    spool.close()
    assert file.try_lock()  # it is free for the forwarder
    file.close()
    with pytest.raises(ClosedError, match="open it again"):
        stream.append(b"2")
    assert values_in(tmp_path) == [b"1"]


def test_options_that_cannot_be_meant_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sync must be one of none, each, group, not 'always'"):
        open_spool(tmp_path, sync="always")
    for period in (0, -1, 0.5, 8 * 24 * HOUR, float("nan")):
        with pytest.raises(ValueError, match="period must be from 1 second to 7 days"):
            open_spool(tmp_path, period=period)
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryError, match="cannot create the spool"):
        open_spool(tmp_path / "file")


@pytest.mark.req("FJ-23")
def test_a_write_rings_only_where_somebody_sleeps(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    stream = spool.stream("s")
    stream.append(b"1")
    doorbell = Doorbell(str(tmp_path))
    ping = doorbell._socket
    stream.append(b"2")
    assert not select.select([ping], [], [], 0)[0]
    doorbell.sleep()
    stream.append(b"3")
    assert select.select([ping], [], [], 0)[0]
    doorbell.close()
    stream.append(b"4")
    assert values_in(tmp_path) == [b"1", b"2", b"3", b"4"]


# -- many writers ---------------------------------------------------------------------------------


def run_threads(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("sync", ["none", "group"])
def test_a_fork_while_threads_write_can_write_too(tmp_path: Path, sync: str) -> None:
    spool = open_spool(tmp_path, sync=sync)
    stream = spool.stream("s")
    over = threading.Event()
    counts = [0, 0]

    def writing(thread: int) -> Callable[[], None]:
        def write() -> None:
            while not over.is_set():
                stream.append(b"%d:%d" % (thread, counts[thread]))
                counts[thread] += 1

        return write

    def forking() -> None:
        try:
            for _ in range(4):
                # Whatever a thread held when this process was copied, nobody waits for it.
                child = in_child(lambda: stream.append(b"child"))
                check_ended([child])
        finally:
            over.set()

    run_threads([writing(0), writing(1), forking])
    found = values_in(tmp_path)
    assert found.count(b"child") == 4
    for thread in range(2):
        mine = [value for value in found if value.startswith(b"%d:" % thread)]
        assert mine == [b"%d:%d" % (thread, n) for n in range(counts[thread])]


# -- sync -----------------------------------------------------------------------------------------


class Disk:
    """Counts the syncs of files, and fails on demand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.error: OSError | None = None
        monkeypatch.setattr(Appender, "sync", self._sync)

    def _sync(self) -> None:
        self.syncs += 1
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(("sync", "expected"), [("none", 0), ("each", 0), ("group", 3)])
def test_a_write_waits_for_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str, expected: int
) -> None:
    disk = Disk(monkeypatch)
    flags: list[int] = []
    os_open = os.open

    def watched(path: str, how: int, *args: int) -> int:
        if path.endswith(".spool"):
            flags.append(how)
        return os_open(path, how, *args)

    monkeypatch.setattr(os, "open", watched)
    stream = open_spool(tmp_path, sync=sync).stream("s")
    for _ in range(3):
        stream.append(b"1")
    assert disk.syncs == expected
    # With "each" it is the write itself that waits.
    assert all(bool(how & os.O_DSYNC) == (sync == "each") for how in flags)


def test_those_who_write_at_the_same_time_share_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_spool(tmp_path, sync="group")
    count = 8
    under_way, written = threading.Event(), threading.Semaphore(0)
    syncs = 0
    write = Appender.write

    def slow_sync(appender: Appender) -> None:
        nonlocal syncs
        syncs += 1
        if syncs == 1:
            under_way.set()
            for _ in range(count):
                written.acquire()  # all others write while the first one waits for the disk

    def counted(appender: Appender, line: bytes) -> int:
        size = write(appender, line)
        if under_way.is_set():
            written.release()
        return size

    monkeypatch.setattr(Appender, "sync", slow_sync)
    monkeypatch.setattr(Appender, "write", counted)

    def others() -> None:
        under_way.wait()
        run_threads([lambda: spool.stream("s").append(b"2") for _ in range(count)])

    run_threads([lambda: spool.stream("s").append(b"1"), others])
    assert syncs == 2
    assert len(values_in(tmp_path)) == count + 1


def test_a_disk_that_fails_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    spool = open_spool(tmp_path, sync="group")
    stream = spool.stream("s")
    stream.append(b"1")
    disk.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(DurabilityError, match=r"Input/output error.*may or may not be kept"):
        stream.append(b"2")
    disk.error = None
    with pytest.raises(DurabilityError, match="open the spool again"):
        stream.append(b"3")
    spool.close()
    again = open_spool(tmp_path, sync="group").stream("s")
    again.append(b"4")
    assert values_in(tmp_path)[-1] == b"4"


def test_who_waits_for_a_sync_is_told_that_it_failed_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SimClock
) -> None:
    # One thread has written, and before it waits for the disk another one goes on to the next
    # file: that syncs the old one for both, and fails.
    disk = Disk(monkeypatch)
    spool = open_spool(tmp_path, sync="group")
    stream = spool.stream("s")
    share, failures = Spool._share_sync, list[Exception]()

    def late(spool: Spool, ticket: int) -> None:
        monkeypatch.setattr(Spool, "_share_sync", share)
        clock.advance(HOUR)
        disk.error = OSError(errno.EIO, "Input/output error")
        try:
            stream.append(b"2")
        except DurabilityError as error:
            failures.append(error)
        share(spool, ticket)

    monkeypatch.setattr(Spool, "_share_sync", late)
    with pytest.raises(DurabilityError, match="may or may not be kept"):
        stream.append(b"1")
    assert len(failures) == 1


# -- a disk that is full --------------------------------------------------------------------------


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Lets every write beyond an offset fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 17, 40])
def test_a_full_disk_is_an_error_and_does_no_harm_later(tmp_path: Path, room: int) -> None:
    spool = open_spool(tmp_path)
    stream = spool.stream("s")
    stream.append(b"1")
    (name,) = files.waiting_names(str(tmp_path))
    path = tmp_path / name
    before = path.stat().st_size
    with files_of_at_most(before + room):
        for _ in range(2):
            with pytest.raises(DiskFullError, match="this record was not accepted"):
                stream.append(b"2")
    assert path.stat().st_size == before + room
    stream.append(b"3")
    found = found_in(path)
    assert [record[HEAD.size + 1 :] for record in found.records] == [b"1", b"3"]
    assert [piece.fate for piece in found.pieces] == [Fate.TORN] * bool(room)


def test_a_disk_too_full_for_a_new_file_is_an_error(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    stream = spool.stream("s")
    for room in (0, 50):
        with files_of_at_most(room), pytest.raises(DiskFullError):
            stream.append(b"1")
    assert files.waiting_names(str(tmp_path)) == []
    assert [name for name in os.listdir(tmp_path) if name.startswith(".new")] == []
    stream.append(b"2")
    assert values_in(tmp_path) == [b"2"]


def test_what_stands_in_the_way_is_an_error(tmp_path: Path, clock: SimClock) -> None:
    name = files.name_of(clock.wall_us() // (files.PERIOD_SECONDS * 1_000_000))
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    stream = open_spool(tmp_path).stream("s")
    with pytest.raises(DurabilityError, match="cannot be written"):
        stream.append(b"1")
    (tmp_path / name).unlink()
    stream.append(b"2")
    assert values_in(tmp_path) == [b"2"]
