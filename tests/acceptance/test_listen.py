"""Listening to changes: a real daemon, connections that write and connections that are told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fjord.commands import Entries
from fjord.wire import Function
from tests.acceptance.daemon import Daemon
from tests.acceptance.raw import STRING, Raw, head, key, set_
from tests.unit.wire.seed_client import SeedReply


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("listen") / "data"
    with Daemon(path, "--idle-seconds", "0.5", "--message-seconds", "2") as one:
        yield one


@pytest.fixture
def ear(daemon: Daemon) -> Iterator[Raw]:
    with Raw(daemon.port) as one:
        yield one


@pytest.fixture
def writer(daemon: Daemon) -> Iterator[Raw]:
    with Raw(daemon.port) as one:
        yield one


def listen(name: bytes, identifier: int = 1) -> bytes:
    return head(Function.LISTEN, identifier=identifier) + key(name)


@pytest.mark.req("FJ-44")
def test_a_listener_is_told_of_every_change(ear: Raw, writer: Raw) -> None:
    assert ear.code(listen(b"told", 77)) == ""
    assert writer.code(set_(b"other", STRING, b"x")) == ""
    assert writer.code(set_(b"told", STRING, b"one")) == ""
    assert writer.code(head(Function.DELETE) + key(b"told")) == ""
    one, gone = ear.change(), ear.change()
    assert (one.identifier, one.key, one.type, one.value) == (77, b"told", STRING, b"one")
    assert (gone.identifier, gone.key, gone.type) == (77, b"told", Entries.MISSING)
    assert gone.timestamp_us >= one.timestamp_us


def test_who_listens_is_not_idle_and_who_does_not_is(daemon: Daemon, ear: Raw) -> None:
    assert ear.code(listen(b"patient")) == ""
    with Raw(daemon.port) as idle:
        reply = idle.next()
        assert isinstance(reply, SeedReply)
        assert reply.error.startswith(b"IDLE_TIMEOUT: ")
        assert idle.next() is None
    with Raw(daemon.port) as fresh:
        assert fresh.code(set_(b"patient", STRING, b"x")) == ""
    assert ear.change().value == b"x"
