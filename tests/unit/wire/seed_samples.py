"""Messages of functions 0 to 16, byte by byte, and what they mean: these bytes never change."""

from __future__ import annotations

import struct

from fjord import commands
from fjord.errors import Code
from fjord.wire import Function
from tests.unit.wire.job_samples import ACTED, LATER, MISSING_ONE, NOTHING, ONE_JOB, seed_taken
from tests.unit.wire.samples import EIGHT, MISSING, ONE, SHORT, TOKEN, modify, rename
from tests.unit.wire.streams import (
    CURSORS,
    NOW_US,
    delete_many,
    entries,
    get_many,
    page,
    reply_bytes,
    request_bytes,
    set_one,
)

# -- requests -------------------------------------------------------------------------------------

VECTOR = bytes.fromhex("464a000100021234022200060a24181e4000016b020276")
LONG_KEY = b"k" * 256
LATER_US = NOW_US + 5_000_000

DATES = struct.pack(">QQ", LATER_US, 60_000_000)
TIMEOUT = DATES[:8]
DEFAULT = "default"
NEXT_PAGE = commands.Range(table="other", start=b"next", stop=b"z", count=5, with_data=False)
CURSOR = CURSORS.encode(NEXT_PAGE, b"next")

# What a client sends, the command that it means, and whether `seed_client` sends the same bytes.
SAMPLES: dict[str, tuple[bytes, commands.Command, bool]] = {
    "nop": (request_bytes(0), commands.Nop(), True),
    "set-8-bit-value": (request_bytes(2, b"\1k\2\2v", flags=0x0222), set_one(b"k", 2, b"v"), True),
    "set-16-bit-value": (
        request_bytes(2, b"\1k\1\1\1" + b"v" * 256, flags=0x0224),
        set_one(b"k", 1, b"v" * 256),
        True,
    ),
    "set-16-bit-key": (
        request_bytes(2, b"\1\0" + LONG_KEY + b"\1\0", flags=0x0223),
        set_one(LONG_KEY, 0, b""),
        True,
    ),
    "set-with-a-timeout-and-a-ttl": (
        request_bytes(2, DATES + b"\1k\1\0", flags=0x422A),
        set_one(b"k", 0, b"", expires_at_us=LATER_US, ttl_us=60_000_000),
        True,
    ),
    "set-without-overwrite": (
        request_bytes(2, b"\1k\1\0", flags=0x0202),
        set_one(b"k", 0, b"", overwrite=False),
        True,
    ),
    "set-without-persist": (
        request_bytes(2, b"\1k\1\0", flags=0x0022),
        set_one(b"k", 0, b"", persist=False),
        True,
    ),
    "set-empty-key": (request_bytes(2, b"\0\1\0", flags=0x0222), set_one(b"", 0, b""), True),
    "get": (request_bytes(3, b"\1k", flags=0x0400), get_many(DEFAULT, [b"k"]), True),
    "probe": (request_bytes(3, b"\1k"), get_many(DEFAULT, [b"k"], with_data=False), True),
    "get-what-nobody-works-on": (
        request_bytes(3, b"\1k", flags=0x0440),
        get_many(DEFAULT, [b"k"], skip_worked=True),
        True,
    ),
    "get-for-work": (
        request_bytes(3, TIMEOUT + b"\1k", flags=0x0448),
        commands.Touch(table=DEFAULT, keys=ONE, worked_until_us=LATER_US),
        True,
    ),
    "get-for-work-and-let-live": (
        request_bytes(3, TIMEOUT + b"\1k", flags=0x0058),
        commands.Touch(
            table=DEFAULT,
            keys=ONE,
            extend=True,
            expires_at_us=LATER_US,
            worked_until_us=LATER_US,
            with_data=False,
        ),
        True,
    ),
    "get-range": (
        request_bytes(3, b"\0\x64\1a\1m", flags=0x0480),
        commands.Range(table=DEFAULT, start=b"a", stop=b"m", count=100),
        True,
    ),
    "get-all": (request_bytes(3, b"\0\0\0\0", flags=0x0480), commands.Range(table=DEFAULT), True),
    "get-range-that-says-that-it-has-a-count": (
        request_bytes(3, b"\xff\xff\1a\0", flags=0x20C0),
        commands.Range(table=DEFAULT, start=b"a", count=65535, with_data=False, skip_worked=True),
        False,
    ),
    "get-regex": (
        request_bytes(3, b"\2^k", flags=0x0500),
        commands.Range(table=DEFAULT, regex=b"^k"),
        False,
    ),
    "get-regex-with-a-count": (
        request_bytes(3, b"\0\5\2^k", flags=0x2500),
        commands.Range(table=DEFAULT, regex=b"^k", count=5),
        True,
    ),
    "get-cursor": (request_bytes(3, bytes([len(CURSOR)]) + CURSOR, flags=0x0580), NEXT_PAGE, False),
    "get-cursor-with-a-count": (
        request_bytes(3, b"\0\7\0" + bytes([len(CURSOR)]) + CURSOR, flags=0x2181),
        commands.Range(table="other", start=b"next", stop=b"z", count=7, with_data=False),
        False,
    ),
    "delete": (request_bytes(4, b"\1k"), delete_many(DEFAULT, [b"k"]), True),
    "purge": (
        request_bytes(4, b"\1k", flags=0x0020),
        delete_many(DEFAULT, [b"k"], purge=True),
        True,
    ),
    "add": (
        request_bytes(5, b"\1k\x09\3" + EIGHT, flags=0x0002),
        modify(commands.Change.ADD, table=DEFAULT),
        True,
    ),
    "add-one-byte": (
        request_bytes(5, b"\1k\0\2\3\xff", flags=0x0004),
        modify(commands.Change.ADD, b"\xff" * 8, table=DEFAULT),
        False,
    ),
    "not": (request_bytes(6, b"\1k"), modify(commands.Change.NOT, b"", table=DEFAULT), True),
    "truncate": (
        request_bytes(7, b"\1k\x09\3" + EIGHT, flags=0x0002),
        modify(commands.Change.TRUNCATE, table=DEFAULT),
        True,
    ),
    "lock": (request_bytes(8, b"\1k"), commands.Lock(table=DEFAULT, keys=ONE), True),
    "unlock": (request_bytes(9, b"\1k"), commands.Unlock(table=DEFAULT, keys=ONE), True),
    "rename": (request_bytes(10, b"\1k\2to"), rename(b"k", b"to", table=DEFAULT), True),
    "rename-onto": (
        request_bytes(10, b"\0\1k\1\0" + LONG_KEY, flags=0x0021),
        rename(b"k", LONG_KEY, table=DEFAULT, overwrite=True),
        True,
    ),
    "listen": (request_bytes(15, b"\1k"), commands.Listen(table=DEFAULT, keys=ONE), True),
}

# -- requests about one job -----------------------------------------------------------------------

XID = struct.pack(">Q", 7)
LEASE_US = 5_000_000
UNTIL = struct.pack(">Q", NOW_US + LEASE_US)

SAMPLES |= {
    "next": (request_bytes(11, b"\0"), commands.Next(table=DEFAULT), True),
    "next-of-a-domain": (
        request_bytes(11, b"\5x.com"),
        commands.Next(table=DEFAULT, domain=b"x.com"),
        True,
    ),
    "next-and-done": (
        request_bytes(11, UNTIL + b"\5x.com", flags=0x0028),
        commands.Next(table=DEFAULT, domain=b"x.com", lease_us=LEASE_US, done=True),
        True,
    ),
    "done": (request_bytes(12, b"\x08" + XID), commands.Finish(table=DEFAULT, xids=(7,)), True),
    "done-by-the-whole-key": (
        request_bytes(12, b"\x0b" + XID + b"key"),
        commands.Finish(table=DEFAULT, xids=(7,)),
        False,
    ),
    "touch": (request_bytes(13, b"\x08" + XID), commands.Extend(table=DEFAULT, xids=(7,)), True),
    "touch-by-the-whole-key": (
        request_bytes(13, UNTIL + b"\0\x0b" + XID + b"key", flags=0x0009),
        commands.Extend(table=DEFAULT, xids=(7,), lease_us=LEASE_US),
        False,
    ),
    "ping": (request_bytes(14), commands.Nop(), False),
}

# -- answers to a GET of many keys ----------------------------------------------------------------

TWO = entries((2, b"v", 5, 0), (1, b"", 6, 0))
PAGES: dict[str, tuple[bytes, commands.Reply, bytes]] = {
    "the-end": (
        reply_bytes(b"\0\2\0" + b"\1a\2\2v" + b"\1b\1\1", flags=0x2002),
        page([b"a", b"b"], TWO),
        b"",
    ),
    "more": (
        reply_bytes(b"\0\2\0" + b"\1a\2\2v" + b"\1b\1\1" + b"\6cursor", flags=0x2182),
        page([b"a", b"b"], TWO, b"c"),
        b"cursor",
    ),
}  # fmt: skip

# -- changes --------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[bytes, commands.Changed]] = {
    "set": (
        request_bytes(16, b"\1k\2\2v", flags=0x0002),
        commands.Changed("t", b"k", 2, b"v", NOW_US, 0),
    ),
    "gone": (
        request_bytes(16, b"\1k"),
        commands.Changed("t", b"k", commands.Entries.MISSING, b"", NOW_US, 0),
    ),
    "expires": (
        request_bytes(16, struct.pack(">Q", 9) + b"\1k\1\0", flags=0x000A),
        commands.Changed("t", b"k", 0, b"", NOW_US, 9),
    ),
    "wide": (
        request_bytes(16, b"\1\0" + b"k" * 256 + b"\1\0\1" + b"v" * 255, flags=0x0005),
        commands.Changed("t", b"k" * 256, 1, b"v" * 255, NOW_US, 0),
    ),
    "jobs-arrived": (
        request_bytes(16, b"\0\x08\2arrived", flags=0x0002),
        commands.Changed("t", b"", 2, commands.ARRIVED, NOW_US, 0),
    ),
    "jobs-due": (
        request_bytes(16, b"\0\4\2due", flags=0x0002),
        commands.Changed("t", b"", 2, commands.DUE, NOW_US, 0),
    ),
}

# -- answers of the engine, and what a client gets ------------------------------------------------

NO_TOKEN = commands.Done(master=b"", seq=0)
HIDDEN = commands.Refusal(
    code=Code.NOT_FOUND, text="the key does not exist, or its value is worked on"
)
PAGE = page([b"a", b"b"], entries((2, b"v", 0, 0), (1, b"", 0, 0)))

STALE = commands.Refusal(
    code=Code.STALE_XID,
    text="the lease is over, or the job is done; another worker may have it",
)
SEED_JOB = seed_taken(ONE_JOB.keys[0], 0, b"text", first_xid=7, until_us=NOW_US)
AUTO_DONE = seed_taken(b"k", 1, b"")
LONG_JOB = seed_taken(b"k" * 1024, 2, b"v" * 70_000, first_xid=2**64 - 1, until_us=1)

# Function, flags of the request, what the engine answers, what the client gets.
SEEDS: list[tuple[Function, int, commands.Reply, commands.Reply]] = [
    (Function.NOP, 0, TOKEN, NO_TOKEN),
    (Function.QUIT, 0, TOKEN, NO_TOKEN),
    (Function.SET, 0x0222, TOKEN, NO_TOKEN),
    (Function.SET, 0x0222, SHORT, SHORT),
    (Function.GET, commands.Flag.DATA, entries((2, b"v", 5, 0)), entries((2, b"v", 5, 0))),
    (
        Function.GET,
        commands.Flag.DATA,
        entries((1, b"v" * 300, 5, 0)),
        entries((1, b"v" * 300, 5, 0)),
    ),
    (Function.GET, 0, entries((3, bytes(8), 5, 9)), entries((3, b"", 5, 9))),
    (Function.GET, 0, entries((0, b"", 5, 9), state=3), entries((0, b"", 5, 9), state=3)),
    (Function.GET, 0, entries((0, b"", 5, 9), state=2), entries((0, b"", 5, 9), state=2)),
    (Function.GET, commands.Flag.DATA, MISSING, SHORT),
    (Function.GET, commands.Flag.WORKED_ON, MISSING, HIDDEN),
    (Function.GET, 0, MISSING, SHORT),
    (Function.GET, commands.Flag.QUERY_RANGE, PAGE, PAGE),
    (Function.DELETE, 0, TOKEN, NO_TOKEN),
    (Function.ADD, 2, entries((3, bytes(8), 5, 9)), entries((3, bytes(8), 5, 9))),
    (Function.NOT, 0, entries((5, b"\1", 5, 9)), entries((5, b"\1", 5, 9))),
    (Function.TRUNCATE, 2, entries((1, b"v", 5, 9)), entries((1, b"v", 5, 9))),
    (Function.LOCK, 0, TOKEN, NO_TOKEN),
    (Function.UNLOCK, 0, SHORT, SHORT),
    (Function.RENAME, 0, TOKEN, NO_TOKEN),
    (Function.NEXT, 0, NOTHING, NOTHING),
    (Function.NEXT, 0, LATER, LATER),
    (Function.NEXT, 0, ONE_JOB, SEED_JOB),
    (Function.NEXT, commands.Flag.TIMEOUT | commands.Flag.OVERWRITE, AUTO_DONE, AUTO_DONE),
    (Function.NEXT, 0, LONG_JOB, LONG_JOB),
    (Function.NEXT, 0, SHORT, SHORT),
    (Function.DONE, 0, ACTED, NO_TOKEN),
    (Function.DONE, 0, MISSING_ONE, STALE),
    (Function.TOUCH, commands.Flag.TIMEOUT, ACTED, NO_TOKEN),
    (Function.TOUCH, 0, MISSING_ONE, STALE),
    (Function.PING, 0, TOKEN, NO_TOKEN),
    (Function.LISTEN, 0, TOKEN, NO_TOKEN),
]
