"""What clients of memcached meet at `fjord kestrel serve`, in processes of their own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord
from tests.acceptance.daemon import Daemon
from tests.acceptance.kestrel_server import Serving, expect, raw, serving

COUNT = 500


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("foreign") / "data") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def tables(daemon: Daemon) -> Iterator[Serving]:
    with serving(daemon.path.parent / "queues", "--to", daemon.url) as server:
        yield server


@pytest.mark.pylibmc
def test_libmemcached_understands_the_version(tables: Serving) -> None:
    """As memcstat, memcping and PHP ask for it."""
    pylibmc = pytest.importorskip("pylibmc")
    folder = Path(pylibmc.__file__).parent.parent / "pylibmc.libs"
    library = ctypes.CDLL(str(next(folder.glob("libmemcached-*"))))
    library.memcached.restype = ctypes.c_void_p
    for name in ("memcached_version", "memcached_free"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    options = f"--SERVER=127.0.0.1:{tables.port}".encode()
    client = library.memcached(options, ctypes.c_size_t(len(options)))
    assert client
    assert library.memcached_version(client) == 0
    library.memcached_free(client)


def test_a_name_that_no_table_can_have_is_refused_with_the_reason(tables: Serving) -> None:
    reason = b"a name is 1 to 128 of A-Z a-z 0-9 _ -, and does not begin with -"
    for request in (b"set cars+seo 0 0 1\r\nx\r\n", b"get a:b\r\n", b"get a:b/peek\r\n"):
        with raw(tables.port) as client:
            expect(client, request, b"CLIENT_ERROR %b\r\n" % reason)
            assert client.recv(1) == b""
    with raw(tables.text_port) as client:
        expect(client, b"put cars+seo:\nx\n\n", b"-%b\n" % reason)
        expect(client, b"get a:b\n", b"-%b\n" % reason)
        expect(client, b"delete a:b\n", b"+0\n")  # as of any queue that is not there


def test_pipelined_puts_on_tables_share_commits(daemon: Daemon, tables: Serving) -> None:
    with fjord.connect(daemon.url) as db, raw(tables.port) as client:
        expect(client, b"set q 0 0 1\r\na\r\n", b"STORED\r\n")
        before = int(db.stats()["groups"])
        items = [b"%d" % number for number in range(COUNT)]
        sets = [b"set q 0 0 %d\r\n%b\r\n" % (len(item), item) for item in items]
        expect(client, b"".join(sets), b"STORED\r\n" * COUNT)
        assert int(db.stats()["groups"]) - before < COUNT // 10
        assert [job.value for job in db.jobs("q").peek(COUNT + 1)] == [b"a", *items]
        db.drop("q")


def test_puts_that_share_a_commit_are_answered_one_by_one(tables: Serving) -> None:
    large = bytes(1024 * 1024 + 1)
    sets = [
        b"set r 0 0 1\r\na\r\n",
        b"set r 0 0 %d\r\n%b\r\n" % (len(large), large),
        b"set r 0 0 1 noreply\r\nb\r\n",
        b"set r 0 -1 1\r\nx\r\n",
        b"set other 0 0 1\r\nd\r\n",
        b"set r 0 1000 1\r\nc\r\n",
    ]
    with raw(tables.port) as client:
        expect(client, b"".join(sets), b"STORED\r\nNOT_STORED\r\n" + b"STORED\r\n" * 3)
        for item in b"abc":
            expect(client, b"get r\r\n", b"VALUE r 0 1\r\n%c\r\nEND\r\n" % item)
        expect(client, b"get r\r\nget other\r\n", b"END\r\nVALUE other 0 1\r\nd\r\nEND\r\n")


def test_a_put_of_the_text_protocol_is_one_commit(daemon: Daemon, tables: Serving) -> None:
    with fjord.connect(daemon.url) as db, raw(tables.text_port) as client:
        expect(client, b"put s:\na\n\n", b"+1\n")
        before = int(db.stats()["groups"])
        expect(client, b"put s:\n%b\n" % (b"item\n" * COUNT), b"+%d\n" % COUNT)
        assert int(db.stats()["groups"]) - before < COUNT // 10
        db.drop("s")


def test_puts_of_the_text_protocol_are_counted_one_by_one(tables: Serving) -> None:
    with raw(tables.text_port) as client:
        expect(client, b"put t:\na\nb\n\nput t:\nc\nd\ne\n\n", b"+2\n+3\n")
        expect(client, b"put t:\n\nput t:\nf\n\nput t:\n\n", b"+0\n+1\n+0\n")
        expect(client, b"get t\n" * 7, b":a\n:b\n:c\n:d\n:e\n:f\n*\n")
