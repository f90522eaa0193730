"""How a forwarder is woken."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import fjord
from fjord.client.spool import bell as waking
from fjord.client.spool.bell import PING, Bell, Doorbell, Flag
from fjord.wire.wakeups import SPOOL, Wakeup, What, decode
from tests.unit.client.spool.spool_samples import check_ended, in_child


def is_rung(doorbell: Doorbell) -> bool:
    return bool(select.select(doorbell.descriptors, [], [], 0)[0])


@pytest.fixture
def doorbell(tmp_path: Path) -> Iterator[Doorbell]:
    found = Doorbell(str(tmp_path))
    found.wake()
    yield found
    found.close()


def is_wanted(bell: Bell) -> bool:
    return bell.is_wanted()


@pytest.mark.req("FJ-22", "FJ-23")
def test_a_ping_wakes_who_sleeps(tmp_path: Path, doorbell: Doorbell) -> None:
    bell = Bell(str(tmp_path))
    doorbell.wake()  # a writer that comes makes itself heard, too
    assert not is_wanted(bell)
    doorbell.sleep()
    assert is_wanted(bell)
    assert not is_rung(doorbell)
    bell.ring()
    assert is_rung(doorbell)
    assert doorbell._socket.recv(64) == PING
    assert not is_rung(doorbell)
    bell.ring()
    doorbell.wake()
    assert not is_rung(doorbell)
    assert not is_wanted(bell)


@pytest.mark.req("FJ-22")
def test_whatever_is_written_wakes_who_waits(tmp_path: Path, doorbell: Doorbell) -> None:
    path = tmp_path / "07.spool"
    path.write_bytes(b"made")
    assert is_rung(doorbell)
    doorbell.wake()
    assert not is_rung(doorbell)

    def write() -> None:
        with path.open("ab") as file:
            file.write(b"more")

    check_ended([in_child(write)])
    assert is_rung(doorbell)
    doorbell.wake()
    os.rename(path, tmp_path / "retry.spool")
    assert is_rung(doorbell)


def test_a_ring_that_nobody_hears_is_not_wanted_again(tmp_path: Path) -> None:
    bell = Bell(str(tmp_path))
    for leave in (False, True):  # nobody was ever there; somebody was killed
        Flag(str(tmp_path)).put(is_set=True)
        if leave:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
                gone.bind(str(tmp_path / "forwarder.sock"))
        assert is_wanted(bell)
        bell.ring()
        assert not is_wanted(bell)


def test_a_bell_that_cannot_ring_does_no_harm(
    tmp_path: Path, doorbell: Doorbell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The record is in the file by then: an error would be taken for that of the write.
    bell = Bell(str(tmp_path))
    doorbell.wake()
    doorbell.sleep()

    def refused(*args: object) -> socket.socket:
        raise PermissionError

    monkeypatch.setattr(socket, "socket", refused)
    bell.ring()
    assert is_wanted(bell)
    assert not is_rung(doorbell)


@pytest.fixture
def ear() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        found.settimeout(10)
        yield found


def heard(ear: socket.socket) -> Wakeup:
    found = decode(ear.recv(600))
    assert found is not None
    assert (found.what, found.table) == (What.WRITTEN, SPOOL)
    return found


def test_whoever_is_forked_is_another_sender(tmp_path: Path, ear: socket.socket) -> None:
    (tmp_path / "asleep").mkdir()
    with fjord.spool(tmp_path, wake="{}:{}".format(*ear.getsockname())) as spool:
        spool.stream("events").append(b"mine")
        check_ended([in_child(lambda: spool.stream("events").append(b"its"))])
        spool.stream("events").append(b"mine")
    found = [heard(ear) for _ in range(3)]
    assert len({(one.sender, one.number) for one in found}) == 3
    assert found[0].sender == found[2].sender != found[1].sender


def test_a_new_forwarder_takes_the_place_of_one_that_died(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(tmp_path / "forwarder.sock"))
    doorbell = Doorbell(str(tmp_path))
    doorbell.sleep()
    bell = Bell(str(tmp_path))
    bell.ring()
    assert is_rung(doorbell)
    doorbell.close()
    assert not is_wanted(bell)


@pytest.mark.parametrize("call", ["inotify_init1", "inotify_add_watch"])
def test_without_file_events_there_is_still_the_ping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    # The kernel has no file events, or none to spare.
    calls = {"inotify_init1": waking._libc.inotify_init1, call: lambda *args: -1}
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(waking, "_libc", SimpleNamespace(**calls))
    doorbell = Doorbell(str(tmp_path))
    assert len(doorbell.descriptors) == 1
    doorbell.sleep()
    Bell(str(tmp_path)).ring()
    assert is_rung(doorbell)
    doorbell.wake()
    assert not is_rung(doorbell)
    doorbell.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
