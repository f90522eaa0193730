"""Every kind of bad message: one answer with a code, then the connection goes on or is closed.

After each of them what was stored is still there, and other connections are served.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Batch, Command, CreateTable, Delete, Get, Listen, Range, Rename, Set
from fjord.wire import Function
from tests.acceptance.daemon import Daemon
from tests.acceptance.raw import (
    BOOLEAN,
    COUNT,
    CURSOR,
    DATA,
    FLOAT,
    INTEGER,
    KEY_16,
    LISTEN,
    OVERWRITE,
    PERSIST,
    RANGE,
    REGEX,
    STRING,
    TIMEOUT,
    UPDATE_TIMEOUT,
    VALUE_8,
    VALUE_32,
    Raw,
    body,
    get,
    head,
    key,
    nop,
    now_us,
    set_,
    value,
)
from tests.unit.wire.seed_client import SeedReply
from tests.unit.wire.streams import sent

SETS = VALUE_8 | OVERWRITE | PERSIST
I64 = struct.Struct("<q")
F64 = struct.Struct("<d")
DAY_US = 24 * 3600 * 1_000_000

SET_MANY, BATCH = 32, 19


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("bad") / "data"
    with Daemon(path) as one:
        with Raw(one.port) as raw:
            # Its timestamp is older than that of any message below, which would therefore win.
            canary = (
                head(Function.SET, SETS, stamp=10**15) + key(b"canary") + value(STRING, b"alive")
            )
            assert raw.code(canary) == ""
            raw.ask(set_(b"string", STRING, b"text"))
            raw.ask(set_(b"integer", INTEGER, I64.pack(2**63 - 1)))
            raw.ask(set_(b"boolean", BOOLEAN, b"\1"))
        yield one


@pytest.fixture
def bad(daemon: Daemon) -> Iterator[Raw]:
    """The connection that sends something bad; afterwards all is well for everybody else."""
    with Raw(daemon.port) as other, Raw(daemon.port) as one:
        yield one
        for raw in (other, Raw(daemon.port)):
            with raw:
                reply = raw.ask(get(b"canary"))
                assert (reply.error, reply.data) == (b"", b"alive")
                assert raw.code(set_(b"served", STRING, b"yes")) == ""


def set_with(stamp: int, timeout: int | None = None) -> bytes:
    flags = SETS if timeout is None else SETS | TIMEOUT
    dates = b"" if timeout is None else struct.pack(">Q", timeout)
    return head(Function.SET, flags, stamp=stamp) + dates + key(b"k") + value(STRING, b"v")


def batch_of(*rows: tuple[bytes, bytes], type_: int = STRING) -> Set:
    return Set(
        table="default",
        keys=Strings.of([name for name, _ in rows]),
        types=bytes([type_]) * len(rows),
        values=Strings.of([data for _, data in rows]),
        timestamps_us=[now_us()] * len(rows),
    )


def modify(function: Function, name: bytes, type_: int, data: bytes) -> bytes:
    return head(function, VALUE_8) + key(name) + value(type_, data)


def query(flags: int, *fields: bytes) -> bytes:
    return head(Function.GET, DATA | flags) + b"".join(fields)


def test_the_tables_below_begin_with_messages_that_are_good(bad: Raw) -> None:
    """Else a row might be refused for another reason than the one it is about."""
    assert bad.code(set_with(now_us())) == ""
    assert bad.code(set_with(now_us(), now_us() + DAY_US)) == ""
    assert bad.code(sent(batch_of((b"k", b"v")), 1)) == ""
    assert bad.code(query(RANGE, struct.pack(">H", 1), key(b"a"), key(b"b"))) == ""
    assert bad.code(query(REGEX, key(rb"^user:\d+$"))) == ""


CLOSED: dict[str, list[bytes]] = {
    "BAD_MAGIC": [
        b"XX" + nop()[2:],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    "BAD_VERSION": [head(Function.NOP, version=2)],
    "UNKNOWN_FUNCTION": [head(31)],
    "FORBIDDEN": [head(Function.CHANGE) + key(b"k")],
    "BAD_FLAGS": [
        head(Function.GET, 1 << 15) + key(b"k"),
        head(Function.GET, 1 << 14) + key(b"k"),
        head(Function.DELETE, PERSIST) + key(b"k"),
        query(RANGE | LISTEN),
    ],
    "BAD_VALUE_SIZE": [
        head(Function.SET, SETS) + key(b"k") + b"\x00",
        head(Function.SET, OVERWRITE | PERSIST) + key(b"k"),
    ],
    "VALUE_TOO_LARGE": [head(Function.SET, SETS | VALUE_32) + key(b"k") + b"\xff\xff\xff\xff"],
    "TOO_LARGE": [head(SET_MANY) + b"\xff\xff\xff\xff"],
}


@pytest.mark.parametrize("code", CLOSED)
def test_what_cannot_be_followed_is_answered_once_and_closed(
    daemon: Daemon, bad: Raw, code: str
) -> None:
    for message in CLOSED[code]:
        with Raw(daemon.port) as raw:
            raw.send(message)
            reply = raw.next()
            assert isinstance(reply, SeedReply), message
            assert reply.error.startswith(code.encode() + b": "), message
            assert raw.next() is None
    assert bad.code(nop()) == ""


KEPT: dict[str, list[bytes]] = {
    "EMPTY_KEY": [
        get(b""),
        sent(batch_of((b"canary", b"dead"), (b"", b"x")), 1),
        head(Function.LISTEN) + key(b""),
    ],
    "KEY_TOO_LONG": [head(Function.GET, DATA | KEY_16) + struct.pack(">H", 481) + bytes(481)],
    "BAD_TYPE": [set_(b"k", 0, b"data"), set_(b"k", 6, b"")],
    "BAD_VALUE": [
        set_(b"k", BOOLEAN, b"\x02"),
        set_(b"k", FLOAT, bytes(4)),
        set_(b"k", STRING, b"\xff\xfe"),
        modify(Function.ADD, b"integer", FLOAT, F64.pack(float("nan"))),
    ],
    "TYPE_MISMATCH": [head(Function.NOT) + key(b"integer")],
    "OVERFLOW": [modify(Function.ADD, b"integer", INTEGER, I64.pack(1))],
    "BAD_SIZE": [modify(Function.TRUNCATE, b"string", INTEGER, I64.pack(5))],
    "BAD_TIMESTAMP": [
        set_with(0),
        set_with(now_us() + DAY_US),
        set_with(2**64 - 1),
        set_with(now_us() * 1000),
    ],
    "BAD_TIMEOUT": [
        set_with(now_us(), 0),
        set_with(now_us(), now_us() - DAY_US),
        query(UPDATE_TIMEOUT, key(b"canary")),
    ],
    "BAD_COUNT": [query(COUNT, b"\x00\x01", key(b"canary"))],
    "BAD_RANGE": [query(RANGE, b"\x00\x00", key(b"b"), key(b"a"))],
    "BAD_REGEX": [
        query(REGEX, key(b"(a")),
        query(REGEX, key(b"(a)\\1")),
        query(REGEX, key(b"((a{1,1000}){1,1000}){1,1000}")),
        query(REGEX | KEY_16, struct.pack(">H", 257) + b"a" * 257),
    ],
    "BAD_CURSOR": [query(CURSOR, key(bytes(60)))],
    "NOT_FOUND": [
        head(Function.RENAME) + key(b"nothing") + key(b"else"),
        sent(
            Batch(
                commands=[
                    batch_of((b"canary", b"dead")),
                    Rename(table="default", key=b"nothing", to=b"else", timestamp_us=now_us()),
                ]
            ),
            1,
        ),
    ],
    "EXISTS": [head(Function.RENAME) + key(b"string") + key(b"canary")],
    "NOT_OWNER": [head(Function.UNLOCK) + key(b"canary")],
    "BAD_BATCH": [
        body(SET_MANY, b""),
        body(SET_MANY, bytes(100)),
        sent(
            Batch(commands=[Delete(table="default", keys=Strings.of([b"k"]), timestamp_us=1)]),
            number=1,
        ),
    ],
    "VALUE_TOO_LARGE": [
        sent(batch_of((b"canary", b"dead"), (b"x", b"x" * (limits.VALUE_BYTES_MAX + 1))), 1)
    ],
    "QUOTA": [
        sent(
            Listen(
                table="default",
                keys=Strings.of([b"%d" % row for row in range(limits.LISTENED_KEYS_MAX + 1)]),
            ),
            1,
        )
    ],
}


@pytest.mark.parametrize("code", KEPT)
def test_what_is_refused_keeps_its_connection(bad: Raw, code: str) -> None:
    assert [bad.code(message) for message in KEPT[code]] == [code] * len(KEPT[code])
    assert bad.ask(get(b"canary")).data == b"alive"


NAMES = ["", "x" * 129, "..", "a/b", "/etc/x", ".", "~~", "x.pack", "x.123", "nul\0", "a\nb"]
NAMES += ["-x", "%2e%2e", "\u202eabc", "\u0430bc"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_that_is_none_is_refused(bad: Raw, name: str) -> None:
    keys = Strings.of([b"k"])
    asked: list[Command] = [
        Get(table=name, keys=keys),
        Range(table=name),
        Listen(table=name, keys=keys),
        Delete(table=name, keys=keys, timestamp_us=now_us()),
        CreateTable(name=name, kind=1),
    ]
    codes = [bad.code(sent(command, 1)) for command in asked]
    assert codes == ["BAD_NAME"] * len(asked)


def test_a_message_cut_at_any_byte_changes_nothing(daemon: Daemon, bad: Raw) -> None:
    messages = [
        set_(b"canary", STRING, b"dead"),
        head(Function.DELETE) + key(b"canary"),
        head(Function.RENAME) + key(b"canary") + key(b"other"),
        sent(batch_of((b"canary", b"dead")), 1),
    ]
    for message in messages:
        for size in range(len(message)):
            with Raw(daemon.port) as raw:
                raw.send(message[:size])
                raw.finish()
                assert raw.next() is None
    assert bad.ask(get(b"canary")).data == b"alive"


def test_an_identifier_in_use_is_refused_and_the_first_request_answered(bad: Raw) -> None:
    bad.send(set_(b"k", STRING, b"1", identifier=7), nop(7))
    errors = sorted(bad.reply().error.partition(b":")[0] for _ in range(2))
    assert errors == [b"", b"DUPLICATE_ID"]


def test_errors_say_nothing_of_files_and_echo_no_payload(bad: Raw, daemon: Daemon) -> None:
    for message in itertools.chain.from_iterable(KEPT.values()):
        error = bad.ask(message).error
        assert str(daemon.path).encode() not in error
        assert b"dead" not in error
        assert len(error) < 300


def test_no_payload_reaches_the_log(daemon: Daemon, bad: Raw) -> None:
    bad.send(b"secret-payload-that-is-no-message")
    assert bad.next() is not None
    assert "secret-payload" not in daemon.log()
    assert "Traceback" not in daemon.log()
