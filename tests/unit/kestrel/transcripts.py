"""What is sent and what is said: every command and every error of both protocols.

An exchange is what a client sends and what it is told.  A third part is what Kestrel says, where
that differs: it is the answer of a server that is exact.

A server that they are tried on allows two open items, and has the configuration of
`serving_world.SYNCED`.  No transcript needs anything of the ones before it but that their queues,
which QUEUES names, are gone, and that the status is up.
"""

from __future__ import annotations

from collections.abc import Iterator

from fjord.kestrel import session

Exchange = tuple[bytes, bytes] | tuple[bytes, bytes, bytes]
Transcript = list[Exchange]

VERSION = session.VERSION
QUEUES = ("q", "q+child", "a", "b", "small", "tiny")


def expected(exchange: Exchange, *, is_exact: bool) -> bytes:
    return exchange[2] if is_exact and len(exchange) == 3 else exchange[1]


def lined(text: str, end: str = "\r\n") -> bytes:
    """Returns lines that are written with bars between them."""
    return (text.replace("|", end) + end).encode()


def said(script: str, end: str = "\r\n") -> Transcript:
    """Returns a transcript that is written as `sent > told; sent > told`, with bars for lines."""
    exchanges = [one.split(" > ") for one in script.split("; ")]
    return [(lined(sent, end), lined(told, end)) for sent, told in exchanges]


def text(script: str) -> Transcript:
    return said(script, "\n")


def value(key: bytes, data: bytes, end: bytes = b"END\r\n") -> bytes:
    return b"VALUE %b 0 %d\r\n%b\r\n%b" % (key, len(data), data, end)


def stored(queue: bytes, data: bytes) -> Exchange:
    return b"set %b 0 0 %d\r\n%b\r\n" % (queue, len(data), data), b"STORED\r\n"


def got(key: bytes, data: bytes, command: bytes = b"get") -> Exchange:
    """A get that finds something; Kestrel names the queue without its options."""
    sent = b"%b %b\r\n" % (command, key)
    return sent, value(key, data), value(key.partition(b"/")[0], data)


def played(script: str) -> Transcript:
    """Returns sets and gets: `q<a` stores a, `q/open>a` opens it, and `q>` finds nothing."""
    return list(_played(script))


def _played(script: str) -> Iterator[Exchange]:
    for word in script.encode().split():
        key, _, data = word.replace(b"<", b">").partition(b">")
        if b"<" in word:
            yield stored(key, data)
        elif data:
            yield got(key, data)
        else:
            yield b"get %b\r\n" % key, b"END\r\n"


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
DUMPED = "|".join(f"  {name}={number}" for name, number in NUMBERS.items())

MEMCACHE: dict[str, Transcript] = {
    "set and get": [
        *played("q<hello q>hello q> q<"),
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
        *said("SET q 0 0 1|x > STORED"),
        got(b"q", b"x", b"Get"),
        *said(f"DELETE q > DELETED; vErSiOn > VERSION {VERSION}"),
    ],
    "flags are not kept": [*said("set q 9 0 1|x > STORED"), got(b"q", b"x")],
    "an item may expire": [
        *said("set q 0 -1 1|x > STORED; set q 0 1000000 1|x > STORED; flush_expired q > 2"),
        *said("set q 0 -1 1|x > STORED; flush_all_expired > 1; flush_all_expired > 0"),
        *said("set q 0 -1 1|x|set q 0 999999 1|y > STORED|STORED"),
        got(b"q", b"y"),
        *said("set q 0 4294967295 1|z > STORED"),
        got(b"q", b"z"),
    ],
    "a queue that is full, and an item that is too large for it": [
        *[stored(b"small", b"x")] * 10,
        *said("set small 0 0 1|x > NOT_STORED; set tiny 0 0 4|long > NOT_STORED"),
        stored(b"tiny", b"not"),
    ],
    "no reply where none is wanted": [
        (
            lined("set q 0 0 1 noreply|x|get q"),
            value(b"q", b"x"),
            b"STORED\r\n" + value(b"q", b"x"),
        ),
        (
            lined("delete q noreply|flush q noreply|flush_all noreply|get q"),
            b"END\r\n",
            lined("DELETED|END|Flushed all queues.|END"),
        ),
    ],
    "open, abort, open, close": played(
        "q<a q<b q/open>a q/abort> q/open>a q/close/open>b q/close> q>"
    ),
    "two open at a time": played("q<a q<b q/open>a q/t=1000/open>b q/close> q/abort> q>b"),
    "close and abort without open": played("q/close> q/abort> q<a q/close> q/close/open>a"),
    "peek": played("q/peek> q<a q/peek>a q/t=5/peek>a q/open>a q/peek>"),
    "a wait that is over": played("q/t=1> q/t=1/open> q/t=1/peek> q/open/close/t=1>"),
    "an option that nobody knows": played("q<a q/what>a"),
    "several keys": [
        *played("a<1 a<2 b<3"),
        (
            lined("get a q b/open "),
            value(b"a", b"1", b"") + value(b"b/open", b"3"),
            value(b"a", b"1"),
        ),
        (lined("get q a/peek q"), value(b"a/peek", b"2", b"") + b"END\r\n", b"END\r\n"),
        (lined("gets a b/close"), b"VALUE a 0 1 0\r\n2\r\nEND\r\n", value(b"a", b"2")),
    ],
    "monitor and confirm": [
        *played("q<a q<b q<c"),
        *said("monitor q 60 1 > VALUE q 0 1|a|END; monitor q 60 > VALUE q 0 1|b|END"),
        *said("confirm q 3 > ERROR; confirm q 2 > END; confirm q 1 > ERROR; confirm q 0 > END"),
        *said("monitor q 0 > END; monitor a 1 1 > END"),
        got(b"q", b"c"),
    ],
    "flush and delete": [
        *played("a<x b<x"),
        *said("flush a > END; get a > END"),
        (b"flush_all\r\n", b"OK\r\n", b"Flushed all queues.\r\n"),
        *said("get b > END; delete a > DELETED; delete missing > DELETED; flush missing > END"),
        *said("flush_expired missing > 0; confirm missing 1 > ERROR; dump_stats a missing > END"),
    ],
    "what the server says of itself": [
        *said("status > UP; status readonly > END; status > READONLY; get q > END"),
        *said("status quiescent > END; status > QUIESCENT; get q/close > END; get q/abort > END"),
        *said("confirm q 0 > END; status UP > END; reload > Reloaded config."),
        *said(f"version > VERSION {VERSION}"),
    ],
    "dump_stats": [
        *said("dump_stats > END"),
        *played("q<hello q>hello"),
        *said(f"dump_stats > queue 'q' {{|{DUMPED}|}}|END"),
        *said(f"dump_stats q other > queue 'q' {{|{DUMPED}|}}|END"),
    ],
    "dump_stats of a queue with a child": [
        *played("q+child> q<hello q>hello q+child>hello"),
        *said(f"dump_stats q > queue 'q' {{|{DUMPED}|  children=q+child|}}|END"),
        *said(f"dump_stats q+child > queue 'q+child' {{|{DUMPED}|}}|END"),
    ],
}

# Why a request is refused; Kestrel does not say.
REFUSED: dict[str, list[str]] = {
    "options that exclude each other": [
        f"get q/{one}/{other}"
        for one, others in (("peek", ("open", "close", "abort")), ("abort", ("open", "close")))
        for other in others
    ],
    "t= is a number of milliseconds": [
        f"get q/t={one}" for one in ("soon", "", "99999999999999999999")
    ],
    "no name of a queue": [
        *("get /open", "get", "get ", "get  ", "get q.1", "get a~b", "set  q 0 0 1|x"),
        *("set a.b 0 0 1", "flush", "delete", "delete a/b", "flush_expired"),
    ],
    # The last is one of Kestrel's guide that no Kestrel has.
    "no such command": ["", "what q 0 0 1", "what q 0 0 1|x", "dump_config"],
    "set needs a queue, flags, an expiry and a size": ["set q 0 0"],
    "flags and expiry of a set are numbers": ["set q x 0 1", "set q 0 x 1"],
    "the size of set is a number": ["set q 0 0 -1", "set q 0 0 x"],
    "the item is too large": ["set q 0 0 67108865"],
    "the data is longer than its size": ["set q 0 0 1|xyz", "set q 0 0 1|x\rx"],
    "line too long": ["get " + "q" * 8192],
    "monitor needs a queue and seconds, and may have the most items": [
        *("monitor q", "monitor q x", "monitor q 1 0"),
    ],
    "confirm needs a queue and a number of items": ["confirm q", "confirm q -1"],
}
BLOCKED: dict[str, list[str]] = {
    "readonly": [
        *("set q 0 0 1|x", "delete q", "flush q", "flush_all"),
        *("flush_expired q", "flush_all_expired"),
    ],
    "quiescent": ["set q 0 0 1|x", "get q", "get q/close/open", "get q/peek", "monitor q 1"],
}


def refused(sent: bytes, reason: str) -> Transcript:
    return [(sent, lined(f"CLIENT_ERROR {reason}"), b"CLIENT_ERROR\r\n")]


# What is asked, what is said, and then the connection ends.
MEMCACHE_ENDS: dict[str, Transcript] = {
    **{one[:30]: refused(lined(one), why) for why, sent in REFUSED.items() for one in sent},
    "get what is no UTF-8": refused(b"get \xff\r\n", "not UTF-8"),
    "status what": refused(b"status what\r\n", "no such status"),
    "a plain get while one is open": [*played("q<x q/open>x"), *said("get q > ERROR")],
    "too many open": [*played("q<x q/open>x q/open> q<x q/open>x"), *said("get q/open > ERROR")],
    **{
        f"{one} when it is {status}": said(f"status {status} > END; {one} > SERVER_ERROR")
        for status, sent in BLOCKED.items()
        for one in sent
    },
    "quit": [(b"quit\r\n", b"")],
}

# What is wrong in the text protocol, where the connection goes on.
ERRORS: dict[str, list[str]] = {
    "Unknown command: what": ["what", "What q", "what q:|a|"],
    "Unknown command: ": [""],
    "Queue name required.": ["put", "put:|a|", "get", "peek", "flush", "delete"],
    "The line of a put ends with a colon.": ["put q", "put q x"],
    "Bad queue name.": [
        *("put a.b:|a|", "get q.1", "monitor a/b 1", "monitor a/b x", "confirm a~b 1"),
    ],
    "Error parsing expiration time.": ["put q x:|a|"],
    "Error parsing timeout.": ["get q x", "peek q x", "monitor q x"],
    "Queue name & timeout required.": ["monitor q"],
    "Queue name & count required.": ["confirm q"],
    "Error parsing count.": ["confirm q x"],
    "Too many items at once; limit=1024": ["put q:" + "|x" * 1025 + "|"],
}
NO = "-The status of the server does not allow it."

TEXT: dict[str, Transcript] = {
    "put and get": [
        *text("put q:|a|b| > +2; get q > :a; get q > :b; get q > *; get q 1 > *; put q:| > +0"),
        *((b"PUT q:\r\na\r\n\r\n", b"+1\n"), (b"Get q\r\n", b":a\n")),
    ],
    "put of all that may be put at once": text("put q:" + "|x" * 1024 + "| > +1024"),
    "put that is full": text("put small:" + "|x" * 12 + "| > +10"),
    "put of an item that is too large": text("put tiny:|long|not| > +1"),
    "put that expires": text("put q 1000000:|a| > +1; get q > :a; put q 0:|a| > +1; get q > :a"),
    "get confirms what was open": text(
        "put q:|a|b| > +2; get q > :a; confirm q 1 > +1; "
        "confirm q 1 > -Not that many transactions open.; get q > :b; get q > *; "
        "confirm q 1 > -Not that many transactions open.; confirm q 0 > +0"
    ),
    "peek": text("peek q > *; peek q 1 > *; put q:|a| > +1; peek q > :a; get q > :a; peek q > *"),
    "monitor and confirm": text(
        "put q:|a|b|c| > +3; monitor q 60000 > :a|:b|*; "
        "confirm q 3 > -Not that many transactions open.; confirm q 2 > +2; "
        "monitor q 1 > :c|*; monitor q 0 > *"
    ),
    "flush and delete": text(
        "put q:|a| > +1; flush q > +0; get q > *; delete q > +0; delete missing > +0"
    ),
    "what the server says of itself": text(
        f"status > :UP; status readonly > +0; status > :READONLY; put q:|a| > {NO}; "
        f"flush q > {NO}; delete q > {NO}; get q > *; status quiescent > +0; "
        f"status > :QUIESCENT; put q:|a| > {NO}; get q > {NO}; peek q > {NO}; "
        f"monitor q 1 > {NO}; status what > -Unknown status: what; status up > +0; "
        f"version > :{VERSION}"
    ),
    "errors": [
        (lined(one, "\n"), lined("-" + reason, "\n"))
        for reason, sent in ERRORS.items()
        for one in sent
    ],
}

TEXT_ENDS: dict[str, Transcript] = {
    "quit": text("quit > +0"),
    "a line that is too long": text("get " + "q" * 8192 + " > -Line too long."),
    "a line that is no UTF-8": [(b"get \xff\n", b"-Not UTF-8.\n")],
}
