"""Files of a spool: how they are made, shared, erased and removed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.client.spool import files
from fjord.client.spool.bell import socket_address
from fjord.client.spool.files import HEADER_BYTES, Header, SpoolFile, line_of, parse
from fjord.client.spool.writer import Appender
from fjord.errors import DirectoryError, DirectoryInUseError
from tests.unit.client.spool import spool_samples as samples

PERIOD = 3600 * 1_000_000
NAME = files.name_of(files.slot_of(samples.NOW, PERIOD))
HEADER = Header(samples.IDENTITY, samples.NOW, bytes(8))


def opened(directory: Path, now_us: int = samples.NOW) -> Appender:
    return Appender(str(directory), now_us, PERIOD)


def written(directory: Path, *records: bytes, now_us: int = samples.NOW) -> Appender:
    appender = opened(directory, now_us)
    for record in records:
        line = line_of(record)
        assert appender.write(line) == len(line)
    return appender


def records_in(path: Path) -> list[bytes]:
    data = path.read_bytes()
    assert files.decode_header(data[:HEADER_BYTES]) is not None
    found = parse(data[HEADER_BYTES:], HEADER_BYTES, is_closed=True)
    assert not found.pieces
    return found.records


# -- names and headers ----------------------------------------------------------------------------


@pytest.mark.req("FJ-26")
def test_the_name_of_a_file_is_the_hour_of_the_day() -> None:
    hour = 3600 * 1_000_000
    names = [files.name_of(files.slot_of(n * hour + n, hour)) for n in range(50)]
    assert names[:3] == ["00.spool", "01.spool", "02.spool"]
    assert names[23:26] == ["23.spool", "00.spool", "01.spool"]
    assert len(set(names)) == files.SLOTS == 24


def test_a_header_that_was_changed_anywhere_is_damaged() -> None:
    data = files.encode_header(HEADER)
    for at in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            assert files.decode_header(bytes(broken)) is None
        assert files.decode_header(data[:at]) is None


# -- the directory --------------------------------------------------------------------------------


def test_a_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    files.make_directory(str(path))
    files.make_directory(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert os.stat(path).st_uid == os.geteuid()
    files.check_owner(str(path))


def test_what_is_no_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryError, match="cannot create the spool"):
        files.make_directory(str(tmp_path / "file"))
    with pytest.raises(DirectoryError, match="cannot be used as a spool"):
        files.check_owner(str(tmp_path / "missing"))
    with pytest.raises(DirectoryError, match="cannot be used as a spool"):
        files.lock_for_forwarder(str(tmp_path / "missing"))


@pytest.mark.root
def test_the_directory_of_somebody_else_is_an_error(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(DirectoryError, match="belongs to user 12345"):
        files.check_owner(str(tmp_path))


def test_there_is_one_forwarder(tmp_path: Path) -> None:
    assert not files.is_forwarded(str(tmp_path))
    lock = files.lock_for_forwarder(str(tmp_path))
    assert files.is_forwarded(str(tmp_path))

    def second() -> None:
        with pytest.raises(DirectoryInUseError, match=r"forwards from .*; stop it first"):
            files.lock_for_forwarder(str(tmp_path))

    samples.check_ended([samples.in_child(second)])
    lock.release()
    files.lock_for_forwarder(str(tmp_path)).release()


def test_what_is_left_of_writers_that_died_is_removed(tmp_path: Path) -> None:
    for name in (".new-" + "0" * 32, ".new-mine", "07.spool", "asleep"):
        (tmp_path / name).touch()
    files.remove_leftovers(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [".new-mine", "07.spool", "asleep"]


@pytest.mark.parametrize("length", [1, 60, 95, 150, 200])
def test_a_path_may_be_too_long_for_a_socket(tmp_path: Path, length: int) -> None:
    directory = tmp_path / ("d" * length)
    directory.mkdir()
    with socket_address(str(directory), is_new=True) as address:
        assert len(address) <= 107
        Path(address).touch()
    assert (directory / "forwarder.sock").exists()
    with socket_address(str(directory), is_new=True) as address:
        assert not Path(address).exists()


# -- writers --------------------------------------------------------------------------------------


@pytest.mark.req("FJ-21")
@pytest.mark.parametrize("days", [1, 2])
def test_no_record_lands_in_a_file_that_is_removed(tmp_path: Path, days: int) -> None:
    # With two days in turn, writers put files away, too, each from under the others.
    each = 100

    def write() -> None:
        for number in range(each):
            now_us = samples.NOW + number % days * 24 * PERIOD
            written(tmp_path, b"%d:%d" % (os.getpid(), number), now_us=now_us).close()

    children = [samples.in_child(write) for _ in range(3)]
    running, found, removed = set(children), [], 0
    while running:
        for child in list(running):
            if (ended := os.waitpid(child, os.WNOHANG))[0]:
                assert ended == (child, 0)
                running.remove(child)
        taken = take_all(tmp_path)
        found += taken
        removed += bool(taken)
    found += take_all(tmp_path)
    assert sorted(found) == sorted(
        b"%d:%d" % (child, number) for child in children for number in range(each)
    )
    assert removed  # else it would show nothing
    assert os.listdir(tmp_path) == []


def take_all(directory: Path) -> list[bytes]:
    names = files.waiting_names(str(directory))
    return [record for name in names for record in take(directory, name)]


def take(directory: Path, name: str) -> list[bytes]:
    """Removes a file as a forwarder does; returns what was in it."""
    try:
        file = SpoolFile(str(directory), name)
    except FileNotFoundError:
        return []
    try:
        if not file.try_lock() or not file.is_named():
            return []
        found = parse(samples.rest_of(file), 0, is_closed=True)
        assert not found.pieces
        file.remove()
        return found.records
    finally:
        file.close()


def test_a_file_that_is_open_is_not_removed(tmp_path: Path) -> None:
    appender = written(tmp_path, b"1")
    file = SpoolFile(str(tmp_path), NAME)
    assert not file.try_lock()
    appender.close()
    assert file.try_lock()
    file.unlock()
    # A fork keeps it open, too.
    appender = written(tmp_path, b"2")
    done, end = os.pipe()

    def hold() -> None:
        os.close(end)
        os.read(done, 1)

    child = samples.in_child(hold)
    appender.close()
    assert not file.try_lock()
    os.close(end)
    os.close(done)
    samples.check_ended([child])
    assert file.try_lock()
    file.close()


@pytest.mark.req("FJ-26")
def test_a_file_from_the_last_time_round_is_put_away(tmp_path: Path) -> None:
    # Else what is written now would be sent before what was written an hour ago.
    written(tmp_path, b"yesterday").close()
    (header,) = [SpoolFile(str(tmp_path), NAME).header]
    assert header is not None
    written(tmp_path, b"today", now_us=samples.NOW + 24 * PERIOD).close()
    assert records_in(tmp_path / NAME) == [b"today"]
    assert records_in(tmp_path / files.named("old", header.identity)) == [b"yesterday"]


def test_a_file_from_before_the_last_start_of_the_machine_is_put_away(tmp_path: Path) -> None:
    # A power cut may have shortened it, and the daemon knows what was there.
    header = Header(samples.IDENTITY, samples.NOW, bytes(8))
    (tmp_path / NAME).write_bytes(files.encode_header(header) + line_of(b"before"))
    written(tmp_path, b"after").close()
    assert records_in(tmp_path / NAME) == [b"after"]
    assert records_in(tmp_path / files.named("old", samples.IDENTITY)) == [b"before"]


def test_a_file_whose_header_is_damaged_is_written_to_its_end(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"#" * HEADER_BYTES)
    written(tmp_path, b"1").close()
    assert (tmp_path / NAME).read_bytes() == b"#" * HEADER_BYTES + line_of(b"1")


@pytest.mark.parametrize("kind", ["fifo", "symlink", "dangling", "directory"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / NAME
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        target = tmp_path / "target"
        if kind == "symlink":
            target.write_bytes(files.encode_header(files.new_header(samples.NOW)))
        path.symlink_to(target)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"regular|symbolic|directory|device"):
        opened(tmp_path)
    for is_writable in (True, False):
        with pytest.raises(OSError, match=r"regular|symbolic|directory|device"):
            SpoolFile(str(tmp_path), NAME, is_writable=is_writable)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_leftover_that_is_swept_away_is_made_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[str] = []
    link = os.link

    def swept_away(*args: str, follow_symlinks: bool) -> None:
        if not swept:
            swept.extend(os.listdir(tmp_path))
            files.remove_leftovers(str(tmp_path))
        link(*args, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "link", swept_away)
    written(tmp_path, b"1").close()
    assert len(swept) == 1
    assert records_in(tmp_path / NAME) == [b"1"]
    assert os.listdir(tmp_path) == [NAME]


# -- the forwarder's side -------------------------------------------------------------------------


PAGE = os.sysconf("SC_PAGESIZE")


@given(st.integers(0, 5 * PAGE), st.integers(0, 5 * PAGE), st.booleans())
def test_an_erase_changes_nothing_around_it(
    tmp_path_factory: pytest.TempPathFactory, one: int, other: int, can_punch: bool
) -> None:
    start, end = sorted((HEADER_BYTES + one, HEADER_BYTES + other))
    file = samples.make_file(tmp_path_factory.mktemp("spool"), b"x" * 5 * PAGE)
    if not can_punch:
        file._punch = lambda offset, size: False  # type: ignore[method-assign]
    before = file.read(0, file.size())
    file.erase(start, end)
    after = file.read(0, file.size())
    assert len(after) == len(before)
    assert (after[:start], after[end:]) == (before[:start], before[end:])
    assert not after[start:end].strip(b" \n\0")
    assert end == start or after[end - 1 : end] in (b"\n", b"\0")
    file.close()


def test_a_file_knows_whether_its_name_is_still_its_own(tmp_path: Path) -> None:
    file = samples.make_file(tmp_path, b"")
    assert file.is_named()
    assert not file.is_moved()
    os.rename(file.path, tmp_path / "elsewhere")
    assert not file.is_named()
    assert file.is_moved()
    samples.make_file(tmp_path, b"").close()  # another one in its place
    assert not file.is_named()
    (tmp_path / "elsewhere").unlink()
    assert not file.is_moved()  # it is gone
    file.close()
    file.close()
