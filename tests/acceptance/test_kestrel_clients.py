"""Clients of memcached, unchanged, against `fjord kestrel serve`: on files and on a daemon.

One server of each kind serves all of these, so each test has queues of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fjord.kestrel import session
from tests.acceptance.daemon import Daemon
from tests.acceptance.kestrel_server import Serving, expect, raw, serving
from tests.acceptance.memcache_clients import Adapter, Pylibmc, Pymemcache, PythonMemcached

SECONDS_MAX = 60
NUMBERS = itertools.count()
MIB = 1024 * 1024

# What a jobs table does otherwise is said where it matters.
CONFIG = {"maxOpenTransactions": 3, "queues": {"small": {"maxItems": 1}}}

Connect = Callable[[], Adapter]


@contextlib.contextmanager
def files(path: Path) -> Iterator[Serving]:
    config = path / "kestrel.json"
    config.write_text(json.dumps(CONFIG))
    with serving(path / "queues", "--config", str(config)) as server:
        yield server


@contextlib.contextmanager
def tables(path: Path) -> Iterator[Serving]:
    with Daemon(path / "data") as daemon, serving(path / "queues", "--to", daemon.url) as server:
        yield server


@pytest.fixture(params=[files, tables], ids=["files", "tables"], scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    with request.param(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture
def is_files(server: Serving) -> bool:
    return "--to" not in server.process.args  # type: ignore[operator]


@pytest.fixture(
    params=[
        Pymemcache,
        PythonMemcached,
        pytest.param(Pylibmc, marks=pytest.mark.pylibmc),
    ]
)
def connect(request: pytest.FixtureRequest, server: Serving) -> Iterator[Connect]:
    """Makes a client, with a connection of its own."""
    with contextlib.ExitStack() as made:

        def connect() -> Adapter:
            client: Adapter = request.param(server.port)
            made.callback(client.close)
            return client

        yield connect


@pytest.fixture
def client(connect: Connect) -> Adapter:
    return connect()


@pytest.fixture
def queue() -> str:
    return f"q{next(NUMBERS)}"


def test_items_come_in_order_and_once(client: Adapter, queue: str) -> None:
    items = [b"one", b"", b"a\r\nEND\r\n\0\xff"]
    assert [client.set(queue, item) for item in items] == [True] * 3
    assert [client.get(queue) for _ in items] == items
    assert client.get(queue) is None


def test_wait_for_an_item(client: Adapter, connect: Connect, server: Serving, queue: str) -> None:
    found: list[bytes | None] = []

    def wait() -> None:
        other = connect()  # here, as a client of python-memcached has a connection for each thread
        found.append(other.get(f"{queue}/t=4000"))  # libmemcached gives up after 5 seconds
        other.close()

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: "waiters=1" in dumped(server, queue))
    assert client.set(queue, b"one")
    waiting.join(SECONDS_MAX)
    assert found == [b"one"]


def test_open_peek_and_close(client: Adapter, connect: Connect, is_files: bool, queue: str) -> None:
    assert client.delete("small")
    assert client.get(f"{queue}/t=1/peek") is None
    assert client.set_many({queue: b"one", "small": b"1"})
    assert client.set(queue, b"two")
    assert client.get(f"{queue}/peek") == client.get(f"{queue}/open") == b"one"
    assert client.get(f"{queue}/abort") is None
    assert client.get(f"{queue}/t=1000/open") == b"one"
    assert client.get("small/open") == b"1"  # another queue
    holder = connect()
    assert holder.get(f"{queue}/open") == b"two"
    holder.close()  # which gives it back
    assert client.get(f"{queue}/close") is None
    assert client.get(f"{queue}/t=4000/open") == b"two"
    assert client.get(f"{queue}/open/close/t=1") is None
    items = [b"one", b"two", b"three"] if is_files else [b"one"]  # as many as may be
    assert [client.set(queue, item) for item in items] == [True] * len(items)
    assert [client.get(f"{queue}/open") for _ in items] == items
    assert [client.get(f"{queue}/close") for _ in (*items, "")] == [None] * (len(items) + 1)
    assert client.get("small/abort") is None
    assert client.set("small", b"2") is not is_files  # a table takes what there is


def test_refused_requests_change_nothing(client: Adapter, connect: Connect, queue: str) -> None:
    assert client.set(queue, b"one")
    assert client.get(f"{queue}/open") == b"one"
    with contextlib.suppress(*client.errors):
        assert client.get(queue) is None
    assert connect().get(f"{queue}/t=4000") == b"one"
    with contextlib.suppress(*client.errors):
        assert not client.add(queue, b"one")
    assert connect().get(queue) is None


def test_items_of_all_sorts(client: Adapter, is_files: bool, queue: str) -> None:
    large = bytes(range(256)) * (MIB // 256)
    assert client.set(queue, large)
    assert client.set(queue, large * 8) is is_files  # a value of a table has 1 MiB at most
    assert client.get(queue) == large
    assert client.get(queue) == (large * 8 if is_files else None)
    given: tuple[object, ...] = ("text", 17, b"bytes")
    assert [client.set(queue, one) for one in given] == [True] * 3
    found = [client.gets(queue) for _ in range(4)]
    assert found == [b"text", b"17", b"bytes", None]


def test_items_expire(client: Adapter, queue: str) -> None:
    assert client.set(queue, b"long gone", expire=1_000_000)  # seconds since 1970
    assert client.set(queue, b"for a while", expire=1000)
    assert client.set(queue, b"until then", expire=int(time.time()) + 1000)
    assert client.set(queue, b"as good as ever", expire=2**32 - 1)
    assert client.set(queue, b"soon gone", expire=1)
    assert client.set(queue, b"for ever")
    assert client.get(queue) == b"for a while"
    assert client.get(queue) == b"until then"
    assert client.get(queue) == b"as good as ever"
    until(lambda: client.get(f"{queue}/peek") == b"for ever")
    assert client.get(queue) == b"for ever"


def test_many_at_once(client: Adapter, queue: str) -> None:
    one, two, missing = (f"{queue}-{number}" for number in range(3))
    assert client.set_many({one: b"1", two: b"2"})
    assert client.set_many({one: b"3", two: b"4"})
    assert client.get_many([one, missing, two]) == {one: b"1", two: b"2"}
    opened = [f"{one}/open", f"{missing}/t=1/open", f"{two}/t=1000/open"]
    assert client.get_many(opened) == {opened[0]: b"3", opened[2]: b"4"}
    assert client.get_many([f"{one}/close", f"{two}/abort"]) == {}
    assert client.get_many([one, two]) == {two: b"4"}
    assert client.delete_many([one, two, missing])


def test_without_replies(client: Adapter, queue: str) -> None:
    client.set_without_reply(queue, b"one")
    client.set_without_reply(queue, b"two")
    assert client.get(queue) == b"one"
    client.delete_without_reply(queue)
    assert client.get(queue) is None


def test_stats_and_version(client: Adapter, queue: str) -> None:
    before = client.stats()
    assert before["version"] == session.VERSION
    assert client.set(queue, b"one")
    assert client.set(queue, b"two")
    assert client.get(queue) == b"one"
    after = client.stats()
    assert int(after["curr_items"]) == int(before["curr_items"]) + 1
    assert int(after["cmd_set"]) == int(before["cmd_set"]) + 2
    assert int(after["get_hits"]) == int(before["get_hits"]) + 1
    if not isinstance(client, Pylibmc):  # libmemcached knows names of memcached only
        assert after[f"queue_{queue}_items"] == "1"


def test_flush_and_delete(client: Adapter, queue: str) -> None:
    names = [f"{queue}-{number}" for number in range(3)]
    assert client.set_many(dict.fromkeys(names, b"x"))
    assert client.delete(names[0])
    assert client.delete(names[0])
    assert client.get_many(names) == dict.fromkeys(names[1:], b"x")
    assert client.set_many(dict.fromkeys(names, b"y"))
    assert client.flush_all()
    assert client.get_many(names) == {}
    assert client.set(names[0], b"z")
    assert client.get(names[0]) == b"z"


def until(holds: Callable[[], bool]) -> None:
    """Asks until something is so."""
    end = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < end


def dumped(server: Serving, queue: str) -> str:
    with raw(server.port) as client:
        client.sendall(b"dump_stats %b\r\n" % queue.encode())
        found = b""
        while not found.endswith(b"END\r\n"):
            found += client.recv(65536)
        expect(client, b"status\r\n", b"UP\r\n")
    return found.decode()
