"""Files of a spool: how they are made, shared, erased and removed."""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.client.spool import files
from fjord.client.spool.bell import Flag, socket_address
from fjord.client.spool.files import HEADER_BYTES, Header, SpoolFile, line_of, parse
from fjord.client.spool.writer import Appender
from fjord.errors import DirectoryError, DirectoryInUseError
from tests.unit.client.spool.spool_samples import (
    IDENTITY,
    NOW,
    check_ended,
    in_child,
    make_file,
    rest_of,
)

PERIOD = 3600 * 1_000_000
NAME = files.name_of(files.slot_of(NOW, PERIOD))
HEADER = Header(IDENTITY, NOW, bytes(8))


def opened(directory: Path, now_us: int = NOW) -> Appender:
    return Appender(str(directory), now_us, PERIOD)


def written(directory: Path, *records: bytes, now_us: int = NOW) -> Appender:
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


def test_names_are_known_by_their_form(tmp_path: Path) -> None:
    waiting = ["00.spool", "23.spool", files.old_name(IDENTITY), files.retry_name(IDENTITY)]
    aside = files.aside_name(IDENTITY)
    others = ["asleep", "forwarder.lock", "0.spool", "000.spool", "07.spool~", ".new-1", "a.spool"]
    for name in [*waiting, aside, *others]:
        (tmp_path / name).touch()
    assert files.waiting_names(str(tmp_path)) == sorted(waiting)
    assert files.aside_names(str(tmp_path)) == [aside]
    assert files.is_aside(aside)
    assert not any(map(files.is_aside, waiting))


def test_a_header_comes_back() -> None:
    data = files.encode_header(HEADER)
    assert len(data) == HEADER_BYTES == 96
    assert data.startswith(b"#fjord-spool 1 000102030405060708090a0b0c0d0e0f 00060a24181e4000 ")
    assert data.endswith(b"\n")
    assert files.decode_header(data) == HEADER


def test_a_header_that_was_changed_anywhere_is_damaged() -> None:
    data = files.encode_header(HEADER)
    for at in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            assert files.decode_header(bytes(broken)) is None
        assert files.decode_header(data[:at]) is None


def test_every_new_header_is_another_one() -> None:
    first, second = files.new_header(NOW), files.new_header(NOW)
    assert first.identity != second.identity
    assert first.created_us == NOW
    assert first.is_of_this_boot
    assert first.boot == second.boot
    assert not replace(first, boot=bytes(8)).is_of_this_boot


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

    check_ended([in_child(second)])
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


def test_a_flag_is_seen_by_others(tmp_path: Path) -> None:
    mine, other = Flag(str(tmp_path)), Flag(str(tmp_path))
    assert not other.is_set()
    mine.put(is_set=True)
    assert other.is_set()

    def lower() -> None:
        Flag(str(tmp_path)).put(is_set=False)

    check_ended([in_child(lower)])
    assert not mine.is_set()
    assert stat.S_IMODE((tmp_path / "asleep").stat().st_mode) == 0o600
    mine.close()
    other.close()


# -- writers --------------------------------------------------------------------------------------


@pytest.mark.req("FJ-26")
def test_an_append_makes_the_file_if_it_is_missing(tmp_path: Path) -> None:
    directory = tmp_path / "spool"  # it may even be gone as a whole
    written(directory, b"1").close()
    assert os.listdir(directory) == [NAME]
    assert records_in(directory / NAME) == [b"1"]
    assert stat.S_IMODE((directory / NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    (directory / NAME).unlink()
    written(directory, b"2").close()
    assert records_in(directory / NAME) == [b"2"]


def test_many_write_to_one_file(tmp_path: Path) -> None:
    first, second = written(tmp_path, b"1"), written(tmp_path, b"2")
    first.write(line_of(b"3"))
    second.write(line_of(b"4"))
    second.sync()
    assert records_in(tmp_path / NAME) == [b"1", b"2", b"3", b"4"]
    first.close()
    first.close()  # once more does no harm
    second.close()


def test_of_many_that_come_first_one_makes_the_file(tmp_path: Path) -> None:
    start, go = os.pipe()

    def write() -> None:
        os.close(go)
        os.read(start, 1)  # until all are there
        written(tmp_path, b"%d" % os.getpid())

    children = [in_child(write) for _ in range(8)]
    os.close(start)
    os.close(go)
    check_ended(children)
    assert os.listdir(tmp_path) == [NAME]  # nothing is left of the others
    assert sorted(records_in(tmp_path / NAME)) == sorted(b"%d" % child for child in children)


@pytest.mark.req("FJ-21")
@pytest.mark.parametrize("days", [1, 2])
def test_no_record_lands_in_a_file_that_is_removed(tmp_path: Path, days: int) -> None:
    # With two days in turn, writers put files away, too, each from under the others.
    each = 100

    def write() -> None:
        for number in range(each):
            now_us = NOW + number % days * 24 * PERIOD
            written(tmp_path, b"%d:%d" % (os.getpid(), number), now_us=now_us).close()

    children = [in_child(write) for _ in range(3)]
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
        found = parse(rest_of(file), 0, is_closed=True)
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

    child = in_child(hold)
    appender.close()
    assert not file.try_lock()
    os.close(end)
    os.close(done)
    check_ended([child])
    assert file.try_lock()
    file.close()


@pytest.mark.req("FJ-26")
def test_a_file_from_the_last_time_round_is_put_away(tmp_path: Path) -> None:
    # Else what is written now would be sent before what was written an hour ago.
    written(tmp_path, b"yesterday").close()
    (header,) = [SpoolFile(str(tmp_path), NAME).header]
    assert header is not None
    written(tmp_path, b"today", now_us=NOW + 24 * PERIOD).close()
    assert records_in(tmp_path / NAME) == [b"today"]
    assert records_in(tmp_path / files.old_name(header.identity)) == [b"yesterday"]


def test_a_file_that_somebody_has_open_since_then_gets_another_name_too(tmp_path: Path) -> None:
    idle = written(tmp_path, b"yesterday")
    written(tmp_path, b"today", now_us=NOW + 24 * PERIOD).close()
    assert records_in(tmp_path / NAME) == [b"today"]
    (old,) = tmp_path.glob("old-*")
    assert records_in(old) == [b"yesterday"]
    idle.close()


def test_a_file_from_before_the_last_start_of_the_machine_is_put_away(tmp_path: Path) -> None:
    # A power cut may have shortened it, and the daemon knows what was there.
    header = Header(IDENTITY, NOW, bytes(8))
    (tmp_path / NAME).write_bytes(files.encode_header(header) + line_of(b"before"))
    written(tmp_path, b"after").close()
    assert records_in(tmp_path / NAME) == [b"after"]
    assert records_in(tmp_path / files.old_name(IDENTITY)) == [b"before"]


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
            target.write_bytes(files.encode_header(files.new_header(NOW)))
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


def test_a_file_without_a_whole_header_is_damaged(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"#fjord-spool 1 ")
    file = SpoolFile(str(tmp_path), NAME)
    assert file.header is None
    file.put_header(HEADER)
    file.sync()
    assert SpoolFile(str(tmp_path), NAME).header == file.header == HEADER


PAGE = os.sysconf("SC_PAGESIZE")


@given(st.integers(0, 5 * PAGE), st.integers(0, 5 * PAGE), st.booleans())
def test_an_erase_changes_nothing_around_it(
    tmp_path_factory: pytest.TempPathFactory, one: int, other: int, can_punch: bool
) -> None:
    start, end = sorted((HEADER_BYTES + one, HEADER_BYTES + other))
    file = make_file(tmp_path_factory.mktemp("spool"), b"x" * 5 * PAGE)
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


def test_whole_pages_give_their_space_back(tmp_path: Path) -> None:
    file = make_file(tmp_path, b"x" * 100 * PAGE)
    file.sync()
    before = file.stat().st_blocks
    file.erase(HEADER_BYTES, file.size())
    file.sync()
    assert file.stat().st_blocks < before / 10
    assert file.size() == HEADER_BYTES + 100 * PAGE
    file.close()


def test_marks_are_put_in_place(tmp_path: Path) -> None:
    file = make_file(tmp_path, line_of(b"1"))
    file.put_status(HEADER_BYTES, b"!")
    assert rest_of(file) == b"!" + line_of(b"1")[1:]
    file.close()


def test_a_file_knows_whether_its_name_is_still_its_own(tmp_path: Path) -> None:
    file = make_file(tmp_path, b"")
    assert file.is_named()
    assert not file.is_moved()
    os.rename(file.path, tmp_path / "elsewhere")
    assert not file.is_named()
    assert file.is_moved()
    make_file(tmp_path, b"").close()  # another one in its place
    assert not file.is_named()
    (tmp_path / "elsewhere").unlink()
    assert not file.is_moved()  # it is gone
    file.close()
    file.close()


def test_a_file_gets_another_name_and_goes(tmp_path: Path) -> None:
    file = make_file(tmp_path, line_of(b"1"))
    assert file.try_lock()
    file.rename(files.aside_name(IDENTITY))
    assert os.listdir(tmp_path) == [file.name] == [files.aside_name(IDENTITY)]
    assert file.is_named()
    file.remove()
    assert os.listdir(tmp_path) == []
    file.close()


def test_locks_are_those_that_other_programs_see(tmp_path: Path) -> None:
    appender = written(tmp_path, b"1")
    with (tmp_path / NAME).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_UN)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        appender.close()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
