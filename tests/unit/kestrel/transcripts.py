"""What is sent and what is said: every command and every error of both protocols.

An exchange is what a client sends and what it is told.  A third part is what Kestrel says, where
that differs: it is the answer of a server that is exact.

A server that they are tried on allows two open items, and has the configuration of
`serving_world.SYNCED`.  No transcript needs anything of the ones before it but that their queues,
which QUEUES names, are gone, and that the status is up.
"""

from __future__ import annotations

from fjord.kestrel import session

Exchange = tuple[bytes, bytes] | tuple[bytes, bytes, bytes]
Transcript = list[Exchange]

VERSION = session.VERSION.encode()
QUEUES = ("q", "q+child", "a", "b", "small", "tiny")


def expected(exchange: Exchange, *, is_exact: bool) -> bytes:
    return exchange[2] if is_exact and len(exchange) == 3 else exchange[1]


def value(key: bytes, data: bytes, end: bytes = b"END\r\n") -> bytes:
    return b"VALUE %b 0 %d\r\n%b\r\n%b" % (key, len(data), data, end)


def stored(queue: bytes, data: bytes) -> Exchange:
    return b"set %b 0 0 %d\r\n%b\r\n" % (queue, len(data), data), b"STORED\r\n"


def got(key: bytes, data: bytes, command: bytes = b"get") -> Exchange:
    """A get that finds something; Kestrel names the queue without its options."""
    sent = b"%b %b\r\n" % (command, key)
    return sent, value(key, data), value(key.partition(b"/")[0], data)


def nothing(key: bytes) -> Exchange:
    return b"get %b\r\n" % key, b"END\r\n"


# What a queue with one item of five bytes says of itself.
NUMBERS = {
    "items": 0,
    "bytes": 0,
    "total_items": 1,
    "logsize": 27,
    "expired_items": 0,
    "mem_items": 0,
    "mem_bytes": 0,
    "age": 0,
    "discarded": 0,
    "waiters": 0,
    "open_transactions": 0,
    "transactions": 0,
    "canceled_transactions": 0,
    "total_flushes": 0,
    "journal_rewrites": 0,
    "journal_rotations": 0,
}
DUMPED = b"".join(b"  %b=%d\r\n" % (name.encode(), number) for name, number in NUMBERS.items())

MEMCACHE: dict[str, Transcript] = {
    "set and get": [
        stored(b"q", b"hello"),
        got(b"q", b"hello"),
        nothing(b"q"),
        stored(b"q", b""),
        got(b"q", b""),
        stored(b"q", b"a\r\nEND\r\n"),
        got(b"q", b"a\r\nEND\r\n"),
        (b"set q 0 0 1\na\nget q\n", b"STORED\r\n" + value(b"q", b"a")),
    ],
    "gets": [
        stored(b"q", b"a"),
        (b"gets q\r\n", b"VALUE q 0 1 0\r\na\r\nEND\r\n", value(b"q", b"a")),
        (b"gets q\r\n", b"END\r\n"),
    ],
    "commands in any case": [
        (b"SET q 0 0 1\r\nx\r\n", b"STORED\r\n"),
        got(b"q", b"x", b"Get"),
        (b"DELETE q\r\n", b"DELETED\r\n"),
        (b"vErSiOn\r\n", b"VERSION " + VERSION + b"\r\n"),
    ],
    "flags are not kept": [
        (b"set q 9 0 1\r\nx\r\n", b"STORED\r\n"),
        got(b"q", b"x"),
    ],
    "an item may expire": [
        (b"set q 0 -1 1\r\nx\r\n", b"STORED\r\n"),
        (b"set q 0 1000000 1\r\nx\r\n", b"STORED\r\n"),
        (b"flush_expired q\r\n", b"2\r\n"),
        (b"set q 0 -1 1\r\nx\r\n", b"STORED\r\n"),
        (b"flush_all_expired\r\n", b"1\r\n"),
        (b"flush_all_expired\r\n", b"0\r\n"),
        (b"set q 0 -1 1\r\nx\r\nset q 0 999999 1\r\ny\r\n", b"STORED\r\nSTORED\r\n"),
        got(b"q", b"y"),
        (b"set q 0 4294967295 1\r\nz\r\n", b"STORED\r\n"),
        got(b"q", b"z"),
    ],
    "a queue that is full, and an item that is too large for it": [
        *[stored(b"small", b"x")] * 10,
        (b"set small 0 0 1\r\nx\r\n", b"NOT_STORED\r\n"),
        (b"set tiny 0 0 4\r\nlong\r\n", b"NOT_STORED\r\n"),
        stored(b"tiny", b"not"),
    ],
    "no reply where none is wanted": [
        (
            b"set q 0 0 1 noreply\r\nx\r\nget q\r\n",
            value(b"q", b"x"),
            b"STORED\r\n" + value(b"q", b"x"),
        ),
        (
            b"delete q noreply\r\nflush q noreply\r\nflush_all noreply\r\nget q\r\n",
            b"END\r\n",
            b"DELETED\r\nEND\r\nFlushed all queues.\r\nEND\r\n",
        ),
    ],
    "open, abort, open, close": [
        stored(b"q", b"a"),
        stored(b"q", b"b"),
        got(b"q/open", b"a"),
        nothing(b"q/abort"),
        got(b"q/open", b"a"),
        got(b"q/close/open", b"b"),
        nothing(b"q/close"),
        nothing(b"q"),
    ],
    "two open at a time": [
        stored(b"q", b"a"),
        stored(b"q", b"b"),
        got(b"q/open", b"a"),
        got(b"q/t=1000/open", b"b"),
        nothing(b"q/close"),
        nothing(b"q/abort"),
        got(b"q", b"b"),
    ],
    "close and abort without open": [
        nothing(b"q/close"),
        nothing(b"q/abort"),
        stored(b"q", b"a"),
        nothing(b"q/close"),
        got(b"q/close/open", b"a"),
    ],
    "peek": [
        nothing(b"q/peek"),
        stored(b"q", b"a"),
        got(b"q/peek", b"a"),
        got(b"q/t=5/peek", b"a"),
        got(b"q/open", b"a"),
        nothing(b"q/peek"),
    ],
    "a wait that is over": [
        nothing(b"q/t=1"),
        nothing(b"q/t=1/open"),
        nothing(b"q/t=1/peek"),
        nothing(b"q/open/close/t=1"),
    ],
    "an option that nobody knows": [stored(b"q", b"a"), got(b"q/what", b"a")],
    "several keys": [
        stored(b"a", b"1"),
        stored(b"a", b"2"),
        stored(b"b", b"3"),
        (
            b"get a q b/open \r\n",
            value(b"a", b"1", b"") + value(b"b/open", b"3"),
            value(b"a", b"1"),
        ),
        (b"get q a/peek q\r\n", value(b"a/peek", b"2", b"") + b"END\r\n", b"END\r\n"),
        (b"gets a b/close\r\n", b"VALUE a 0 1 0\r\n2\r\nEND\r\n", value(b"a", b"2")),
    ],
    "monitor and confirm": [
        *[stored(b"q", data) for data in (b"a", b"b", b"c")],
        (b"monitor q 60 1\r\n", value(b"q", b"a")),
        (b"monitor q 60\r\n", value(b"q", b"b")),
        (b"confirm q 3\r\n", b"ERROR\r\n"),
        (b"confirm q 2\r\n", b"END\r\n"),
        (b"confirm q 1\r\n", b"ERROR\r\n"),
        (b"confirm q 0\r\n", b"END\r\n"),
        (b"monitor q 0\r\n", b"END\r\n"),
        (b"monitor a 1 1\r\n", b"END\r\n"),
        got(b"q", b"c"),
    ],
    "flush and delete": [
        stored(b"a", b"x"),
        stored(b"b", b"x"),
        (b"flush a\r\n", b"END\r\n"),
        nothing(b"a"),
        (b"flush_all\r\n", b"OK\r\n", b"Flushed all queues.\r\n"),
        nothing(b"b"),
        (b"delete a\r\n", b"DELETED\r\n"),
        (b"delete missing\r\n", b"DELETED\r\n"),
        (b"flush missing\r\n", b"END\r\n"),
        (b"flush_expired missing\r\n", b"0\r\n"),
        (b"confirm missing 1\r\n", b"ERROR\r\n"),
        (b"dump_stats a missing\r\n", b"END\r\n"),
    ],
    "what the server says of itself": [
        (b"status\r\n", b"UP\r\n"),
        (b"status readonly\r\n", b"END\r\n"),
        (b"status\r\n", b"READONLY\r\n"),
        nothing(b"q"),
        (b"status quiescent\r\n", b"END\r\n"),
        (b"status\r\n", b"QUIESCENT\r\n"),
        nothing(b"q/close"),
        nothing(b"q/abort"),
        (b"confirm q 0\r\n", b"END\r\n"),
        (b"status UP\r\n", b"END\r\n"),
        (b"reload\r\n", b"Reloaded config.\r\n"),
        (b"version\r\n", b"VERSION " + VERSION + b"\r\n"),
    ],
    "dump_stats": [
        (b"dump_stats\r\n", b"END\r\n"),
        stored(b"q", b"hello"),
        got(b"q", b"hello"),
        (b"dump_stats\r\n", b"queue 'q' {\r\n" + DUMPED + b"}\r\nEND\r\n"),
        (b"dump_stats q other\r\n", b"queue 'q' {\r\n" + DUMPED + b"}\r\nEND\r\n"),
    ],
    "dump_stats of a queue with a child": [
        nothing(b"q+child"),
        stored(b"q", b"hello"),
        got(b"q", b"hello"),
        got(b"q+child", b"hello"),
        (b"dump_stats q\r\n", b"queue 'q' {\r\n" + DUMPED + b"  children=q+child\r\n}\r\nEND\r\n"),
        (b"dump_stats q+child\r\n", b"queue 'q+child' {\r\n" + DUMPED + b"}\r\nEND\r\n"),
    ],
}


def refused(sent: bytes, reason: bytes) -> Transcript:
    """Clients of memcached are told why; Kestrel does not say."""
    return [(sent, b"CLIENT_ERROR %b\r\n" % reason, b"CLIENT_ERROR\r\n")]


def blocked(status: bytes, sent: bytes) -> Transcript:
    return [(b"status %b\r\n" % status, b"END\r\n"), (sent, b"SERVER_ERROR\r\n")]


NO_QUEUE = b"no name of a queue"
EXCLUDED = b"options that exclude each other"
UNKNOWN = b"no such command"
NO_NUMBERS = b"flags and expiry of a set are numbers"
MONITOR = b"monitor needs a queue and seconds, and may have the most items"

# What is asked, what is said, and then the connection ends.
MEMCACHE_ENDS: dict[str, Transcript] = {
    "peek and open": refused(b"get q/peek/open\r\n", EXCLUDED),
    "peek and close": refused(b"get q/peek/close\r\n", EXCLUDED),
    "abort and open": refused(b"get q/abort/open\r\n", EXCLUDED),
    "abort and close": refused(b"get q/abort/close\r\n", EXCLUDED),
    "peek and abort": refused(b"get q/peek/abort\r\n", EXCLUDED),
    "a wait that is no number": refused(b"get q/t=soon\r\n", b"t= is a number of milliseconds"),
    "no name": refused(b"get /open\r\n", NO_QUEUE),
    "no key": refused(b"get\r\n", NO_QUEUE),
    "a key that is empty": refused(b"get \r\n", NO_QUEUE),
    "a name with a dot": refused(b"get q.1\r\n", NO_QUEUE),
    "a name that is no UTF-8": refused(b"get \xff\r\n", b"not UTF-8"),
    "an empty line": refused(b"\r\n", UNKNOWN),
    "an unknown command": refused(b"what q 0 0 1\r\nx\r\n", UNKNOWN),
    "a command of Kestrel's guide that no Kestrel has": refused(b"dump_config\r\n", UNKNOWN),
    "a set without a size": refused(
        b"set q 0 0\r\n", b"set needs a queue, flags, an expiry and a size"
    ),
    "a set with two spaces": refused(b"set  q 0 0 1\r\nx\r\n", NO_QUEUE),
    "flags that are no number": refused(b"set q x 0 1\r\n", NO_NUMBERS),
    "an expiry that is no number": refused(b"set q 0 x 1\r\n", NO_NUMBERS),
    "a size below 0": refused(b"set q 0 0 -1\r\n", b"the size of a set is a number"),
    "an item that is too large": refused(b"set q 0 0 67108865\r\n", b"the item is too large"),
    "data that is longer than its size": refused(
        b"set q 0 0 1\r\nxyz\r\n", b"the data is longer than its size"
    ),
    "a line that is too long": refused(b"get " + b"q" * 8192 + b"\r\n", b"line too long"),
    "a monitor without a time": refused(b"monitor q\r\n", MONITOR),
    "a monitor of no items": refused(b"monitor q 1 0\r\n", MONITOR),
    "a confirm without a count": refused(
        b"confirm q\r\n", b"confirm needs a queue and a number of items"
    ),
    "a flush of nothing": refused(b"flush\r\n", NO_QUEUE),
    "a delete of nothing": refused(b"delete\r\n", NO_QUEUE),
    "a flush_expired of nothing": refused(b"flush_expired\r\n", NO_QUEUE),
    "an unknown status": refused(b"status what\r\n", b"no such status"),
    "a plain get while one is open": [
        stored(b"q", b"x"),
        got(b"q/open", b"x"),
        (b"get q\r\n", b"ERROR\r\n"),
    ],
    "too many open": [
        stored(b"q", b"x"),
        got(b"q/open", b"x"),
        nothing(b"q/open"),
        stored(b"q", b"x"),
        got(b"q/open", b"x"),
        (b"get q/open\r\n", b"ERROR\r\n"),
    ],
    "a set when it is read-only": blocked(b"readonly", b"set q 0 0 1\r\nx\r\n"),
    "a delete when it is read-only": blocked(b"readonly", b"delete q\r\n"),
    "a flush when it is read-only": blocked(b"readonly", b"flush q\r\n"),
    "a flush_all when it is read-only": blocked(b"readonly", b"flush_all\r\n"),
    "a flush_expired when it is read-only": blocked(b"readonly", b"flush_expired q\r\n"),
    "a flush_all_expired when it is read-only": blocked(b"readonly", b"flush_all_expired\r\n"),
    "a set when it is quiescent": blocked(b"quiescent", b"set q 0 0 1\r\nx\r\n"),
    "a get when it is quiescent": blocked(b"quiescent", b"get q\r\n"),
    "an open when it is quiescent": blocked(b"quiescent", b"get q/close/open\r\n"),
    "a peek when it is quiescent": blocked(b"quiescent", b"get q/peek\r\n"),
    "a monitor when it is quiescent": blocked(b"quiescent", b"monitor q 1\r\n"),
    "quit": [(b"quit\r\n", b"")],
}

NOT_NOW = b"-The status of the server does not allow it.\n"
NO_NAME = b"-Queue name required.\n"

TEXT: dict[str, Transcript] = {
    "put and get": [
        (b"put q:\na\nb\n\n", b"+2\n"),
        (b"get q\n", b":a\n"),
        (b"get q\n", b":b\n"),
        (b"get q\n", b"*\n"),
        (b"get q 1\n", b"*\n"),
        (b"PUT q:\r\na\r\n\r\n", b"+1\n"),
        (b"Get q\r\n", b":a\n"),
    ],
    "put of nothing": [(b"put q:\n\n", b"+0\n"), (b"get q\n", b"*\n")],
    "put of all that may be put at once": [
        (b"put q:\n" + b"x\n" * 1024 + b"\n", b"+1024\n"),
        (b"put q:\n" + b"x\n" * 1025 + b"\n", b"-Too many items at once; limit=1024\n"),
    ],
    "put that is full": [(b"put small:\n" + b"x\n" * 12 + b"\n", b"+10\n")],
    "put of an item that is too large": [(b"put tiny:\nlong\nnot\n\n", b"+1\n")],
    "put that expires": [
        (b"put q 1000000:\na\n\n", b"+1\n"),
        (b"get q\n", b":a\n"),
        (b"put q 0:\na\n\n", b"+1\n"),
        (b"get q\n", b":a\n"),
    ],
    "get confirms what was open": [
        (b"put q:\na\nb\n\n", b"+2\n"),
        (b"get q\n", b":a\n"),
        (b"confirm q 1\n", b"+1\n"),
        (b"confirm q 1\n", b"-Not that many transactions open.\n"),
        (b"get q\n", b":b\n"),
        (b"get q\n", b"*\n"),
        (b"confirm q 1\n", b"-Not that many transactions open.\n"),
        (b"confirm q 0\n", b"+0\n"),
    ],
    "peek": [
        (b"peek q\n", b"*\n"),
        (b"peek q 1\n", b"*\n"),
        (b"put q:\na\n\n", b"+1\n"),
        (b"peek q\n", b":a\n"),
        (b"get q\n", b":a\n"),
        (b"peek q\n", b"*\n"),
    ],
    "monitor and confirm": [
        (b"put q:\na\nb\nc\n\n", b"+3\n"),
        (b"monitor q 60000\n", b":a\n:b\n*\n"),
        (b"confirm q 3\n", b"-Not that many transactions open.\n"),
        (b"confirm q 2\n", b"+2\n"),
        (b"monitor q 1\n", b":c\n*\n"),
        (b"monitor q 0\n", b"*\n"),
    ],
    "flush and delete": [
        (b"put q:\na\n\n", b"+1\n"),
        (b"flush q\n", b"+0\n"),
        (b"get q\n", b"*\n"),
        (b"delete q\n", b"+0\n"),
        (b"delete missing\n", b"+0\n"),
    ],
    "what the server says of itself": [
        (b"status\n", b":UP\n"),
        (b"status readonly\n", b"+0\n"),
        (b"status\n", b":READONLY\n"),
        (b"put q:\na\n\n", NOT_NOW),
        (b"flush q\n", NOT_NOW),
        (b"delete q\n", NOT_NOW),
        (b"get q\n", b"*\n"),
        (b"status quiescent\n", b"+0\n"),
        (b"status\n", b":QUIESCENT\n"),
        (b"put q:\na\n\n", NOT_NOW),
        (b"get q\n", NOT_NOW),
        (b"peek q\n", NOT_NOW),
        (b"monitor q 1\n", NOT_NOW),
        (b"status what\n", b"-Unknown status: what\n"),
        (b"status up\n", b"+0\n"),
        (b"version\n", b":" + VERSION + b"\n"),
    ],
    "errors": [
        (b"what\n", b"-Unknown command: what\n"),
        (b"what q:\na\n\n", b"-Unknown command: what\n"),
        (b"\n", b"-Unknown command: \n"),
        (b"put:\na\n\n", NO_NAME),
        (b"put q\n", b"-The line of a put ends with a colon.\n"),
        (b"get\n", NO_NAME),
        (b"peek\n", NO_NAME),
        (b"flush\n", NO_NAME),
        (b"delete\n", NO_NAME),
        (b"put q.1:\na\n\n", b"-Bad queue name.\n"),
        (b"get q.1\n", b"-Bad queue name.\n"),
        (b"put q x:\na\n\n", b"-Error parsing expiration time.\n"),
        (b"get q x\n", b"-Error parsing timeout.\n"),
        (b"peek q x\n", b"-Error parsing timeout.\n"),
        (b"monitor q x\n", b"-Error parsing timeout.\n"),
        (b"monitor q\n", b"-Queue name & timeout required.\n"),
        (b"confirm q\n", b"-Queue name & count required.\n"),
        (b"confirm q x\n", b"-Error parsing count.\n"),
    ],
}

TEXT_ENDS: dict[str, Transcript] = {
    "quit": [(b"quit\n", b"+0\n")],
    "a line that is too long": [(b"get " + b"q" * 8192 + b"\n", b"-Line too long.\n")],
    "a line that is no UTF-8": [(b"get \xff\n", b"-Not UTF-8.\n")],
}
