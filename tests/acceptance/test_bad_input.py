"""Every kind of bad message: one answer with a code, then the connection goes on or is closed.

After each of them what was stored is still there, and other connections are served.
"""

from __future__ import annotations

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

MESSAGE_SECONDS = 0.5
SETS = VALUE_8 | OVERWRITE | PERSIST
I64 = struct.Struct("<q")
F64 = struct.Struct("<d")
DAY_US = 24 * 3600 * 1_000_000

SET_MANY, BATCH = 32, 19


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("bad") / "data"
    with Daemon(path, "--message-seconds", str(MESSAGE_SECONDS)) as one:
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


CLOSED: dict[str, tuple[bytes, str]] = {
    "another magic": (b"XX" + nop()[2:], "BAD_MAGIC"),
    "a reply": (b"JR" + nop()[2:], "BAD_MAGIC"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "BAD_MAGIC"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "BAD_MAGIC"),
    "version 0": (head(Function.NOP, version=0), "BAD_VERSION"),
    "version 2": (head(Function.NOP, version=2), "BAD_VERSION"),
    "version 65535": (head(Function.NOP, version=65535), "BAD_VERSION"),
    "function 31": (head(31), "UNKNOWN_FUNCTION"),
    "function 65535": (head(65535), "UNKNOWN_FUNCTION"),
    "a function for servers": (head(Function.CHANGE) + key(b"k"), "FORBIDDEN"),
    "bit 15": (head(Function.GET, 1 << 15) + key(b"k"), "BAD_FLAGS"),
    "bit 13 without meaning": (head(Function.DELETE, 1 << 13) + key(b"k"), "BAD_FLAGS"),
    "bit 14 without meaning": (head(Function.GET, 1 << 14) + key(b"k"), "BAD_FLAGS"),
    "a flag of another function": (head(Function.DELETE, PERSIST) + key(b"k"), "BAD_FLAGS"),
    "listening to a range": (query(RANGE | LISTEN), "BAD_FLAGS"),
    "value size 0": (head(Function.SET, SETS) + key(b"k") + b"\0", "BAD_VALUE_SIZE"),
    "no value": (head(Function.SET, OVERWRITE | PERSIST) + key(b"k"), "BAD_VALUE_SIZE"),
    "a value of 4 GiB": (
        head(Function.SET, SETS | VALUE_32) + key(b"k") + b"\xff\xff\xff\xff",
        "VALUE_TOO_LARGE",
    ),
    "a body of 4 GiB": (head(SET_MANY) + b"\xff\xff\xff\xff", "TOO_LARGE"),
}


@pytest.mark.parametrize("what", CLOSED)
def test_what_cannot_be_followed_is_answered_once_and_closed(bad: Raw, what: str) -> None:
    message, code = CLOSED[what]
    bad.send(message)
    reply = bad.next()
    assert isinstance(reply, SeedReply)
    assert reply.error.startswith(code.encode() + b": ")
    assert bad.next() is None


KEPT: dict[str, tuple[bytes, str]] = {
    "an empty key": (get(b""), "EMPTY_KEY"),
    "a long key": (
        head(Function.GET, DATA | KEY_16) + struct.pack(">H", 481) + bytes(481),
        "KEY_TOO_LONG",
    ),
    "a void with data": (set_(b"k", 0, b"data"), "BAD_TYPE"),
    "type 6": (set_(b"k", 6, b""), "BAD_TYPE"),
    "type 255": (set_(b"k", 255, b""), "BAD_TYPE"),
    "boolean 2": (set_(b"k", BOOLEAN, b"\2"), "BAD_VALUE"),
    "an integer of 7 bytes": (set_(b"k", INTEGER, bytes(7)), "BAD_VALUE"),
    "a float of 4 bytes": (set_(b"k", FLOAT, bytes(4)), "BAD_VALUE"),
    "no UTF-8": (set_(b"k", STRING, b"\xff\xfe"), "BAD_VALUE"),
    "adding NaN": (
        modify(Function.ADD, b"integer", FLOAT, F64.pack(float("nan"))),
        "BAD_VALUE",
    ),
    "adding to a string": (
        modify(Function.ADD, b"string", INTEGER, I64.pack(1)),
        "TYPE_MISMATCH",
    ),
    "not of an integer": (head(Function.NOT) + key(b"integer"), "TYPE_MISMATCH"),
    "adding beyond 64 bits": (
        modify(Function.ADD, b"integer", INTEGER, I64.pack(1)),
        "OVERFLOW",
    ),
    "truncating to more": (
        modify(Function.TRUNCATE, b"string", INTEGER, I64.pack(5)),
        "BAD_SIZE",
    ),
    "truncating below 0": (
        modify(Function.TRUNCATE, b"string", INTEGER, I64.pack(-1)),
        "BAD_SIZE",
    ),
    "no timestamp": (set_with(0), "BAD_TIMESTAMP"),
    "a timestamp of tomorrow": (set_with(now_us() + DAY_US), "BAD_TIMESTAMP"),
    "a timestamp of 2^63": (set_with(2**63), "BAD_TIMESTAMP"),
    "a timestamp of 2^64-1": (set_with(2**64 - 1), "BAD_TIMESTAMP"),
    "a timestamp in nanoseconds": (set_with(now_us() * 1000), "BAD_TIMESTAMP"),
    "timeout 0": (set_with(now_us(), 0), "BAD_TIMEOUT"),
    "a timeout in the past": (set_with(now_us(), now_us() - DAY_US), "BAD_TIMEOUT"),
    "a timeout far ahead": (set_with(now_us(), now_us() + 31 * DAY_US), "BAD_TIMEOUT"),
    "updating without a timeout": (query(UPDATE_TIMEOUT, key(b"canary")), "BAD_TIMEOUT"),
    "a count without a range": (query(COUNT, b"\0\1", key(b"canary")), "BAD_COUNT"),
    "a range from high to low": (query(RANGE, b"\0\0", key(b"b"), key(b"a")), "BAD_RANGE"),
    "half an expression": (query(REGEX, key(b"(a")), "BAD_REGEX"),
    "a backreference": (query(REGEX, key(rb"(a)\1")), "BAD_REGEX"),
    "a look-around": (query(REGEX, key(rb"(?=a)")), "BAD_REGEX"),
    "an expression that explodes": (
        query(REGEX, key(rb"((a{1,1000}){1,1000}){1,1000}")),
        "BAD_REGEX",
    ),
    "a long expression": (
        query(REGEX | KEY_16, struct.pack(">H", 257) + b"a" * 257),
        "BAD_REGEX",
    ),
    "a random cursor": (query(CURSOR, key(bytes(60))), "BAD_CURSOR"),
    "a missing key": (get(b"nothing"), "NOT_FOUND"),
    "renaming what is missing": (
        head(Function.RENAME) + key(b"nothing") + key(b"else"),
        "NOT_FOUND",
    ),
    "renaming onto another": (
        head(Function.RENAME) + key(b"string") + key(b"canary"),
        "EXISTS",
    ),
    "unlocking what is free": (head(Function.UNLOCK) + key(b"canary"), "NOT_OWNER"),
    "a body of nothing": (body(SET_MANY, b""), "BAD_BATCH"),
    "a body of zeros": (body(SET_MANY, bytes(100)), "BAD_BATCH"),
    "a batch of 0 rows": (sent(batch_of(), 1), "BAD_BATCH"),
    "a batch of noise": (body(BATCH, bytes(range(200))), "BAD_BATCH"),
    "a batch with one bad row": (
        sent(batch_of((b"canary", b"dead"), (b"", b"x")), 1),
        "EMPTY_KEY",
    ),
    "a batch with one large value": (
        sent(batch_of((b"canary", b"dead"), (b"x", b"x" * (limits.VALUE_BYTES_MAX + 1))), 1),
        "VALUE_TOO_LARGE",
    ),
    "a batch of two, one refused": (
        sent(
            Batch(
                commands=[
                    batch_of((b"canary", b"dead")),
                    Rename(table="default", key=b"nothing", to=b"else", timestamp_us=now_us()),
                ]
            ),
            1,
        ),
        "NOT_FOUND",
    ),
    "a numbered batch without hello": (
        sent(
            Batch(
                commands=[Delete(table="default", keys=Strings.of([b"k"]), timestamp_us=1)],
            ),
            number=1,
        ),
        "BAD_BATCH",
    ),
    "listening to nothing": (head(Function.LISTEN) + key(b""), "EMPTY_KEY"),
    "listening to many keys": (
        sent(
            Listen(
                table="default",
                keys=Strings.of([b"%d" % row for row in range(limits.LISTENED_KEYS_MAX + 1)]),
            ),
            1,
        ),
        "QUOTA",
    ),
}


@pytest.mark.parametrize("what", KEPT)
def test_what_is_refused_keeps_its_connection(bad: Raw, what: str) -> None:
    message, code = KEPT[what]
    assert bad.code(message) == code
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


def test_messages_that_are_never_finished_are_given_up(daemon: Daemon, bad: Raw) -> None:
    message = set_(b"canary", STRING, b"dead")
    slow = [Raw(daemon.port) for _ in range(300)]
    for number, raw in enumerate(slow):
        raw.send(message[: 1 + number % (len(message) - 1)])
        assert number % 50 or bad.code(nop()) == ""  # others are served meanwhile
    for raw in slow:
        with raw:
            reply = raw.next()
            assert isinstance(reply, SeedReply)
            assert reply.error.startswith(b"READ_TIMEOUT: ")
            assert raw.next() is None


def test_an_identifier_in_use_is_refused_and_the_first_request_answered(bad: Raw) -> None:
    bad.send(set_(b"k", STRING, b"1", identifier=7), nop(7))
    errors = sorted(bad.reply().error.partition(b":")[0] for _ in range(2))
    assert errors == [b"", b"DUPLICATE_ID"]


def test_a_lock_ends_with_its_connection(daemon: Daemon, bad: Raw) -> None:
    with Raw(daemon.port) as holder:
        assert holder.code(head(Function.LOCK) + key(b"locked")) == ""
        assert holder.code(head(Function.LOCK) + key(b"locked")) == "LOCKED"
        assert bad.code(head(Function.UNLOCK) + key(b"locked")) == "NOT_OWNER"
        assert bad.code(set_(b"locked", STRING, b"x")) == "LOCKED"
        holder.send(head(Function.QUIT))
        holder.reply()
        assert holder.next() is None
    while bad.code(set_(b"locked", STRING, b"x")) == "LOCKED":
        pass  # the daemon learns of the end a moment later
    assert bad.ask(get(b"locked")).data == b"x"


def test_renaming_to_itself_is_nothing(bad: Raw) -> None:
    assert bad.code(head(Function.RENAME) + key(b"canary") + key(b"canary")) == ""


def test_count_0_is_the_maximum_and_not_without_end(bad: Raw) -> None:
    reply = bad.ask(query(RANGE, b"\0\0", key(b"canary"), key(b"canary\0")))
    assert reply.error == b""


def test_a_range_of_nothing_is_empty_and_any_bytes_are_keys(bad: Raw) -> None:
    assert bad.code(set_(b"\0\xff\0", STRING, b"odd")) == ""
    assert bad.ask(get(b"\0\xff\0")).data == b"odd"
    assert bad.code(query(RANGE, b"\0\0", key(b"a"), key(b"a"))) == ""


def test_errors_say_nothing_of_files_and_echo_no_payload(bad: Raw, daemon: Daemon) -> None:
    for message, _ in [*KEPT.values()]:
        error = bad.ask(message).error
        assert str(daemon.path).encode() not in error
        assert b"dead" not in error
        assert len(error) < 300


def test_no_payload_reaches_the_log(daemon: Daemon, bad: Raw) -> None:
    bad.send(b"secret-payload-that-is-no-message")
    assert bad.next() is not None
    assert "secret-payload" not in daemon.log()
    assert "Traceback" not in daemon.log()
