"""Every command of the memcache protocol and every reply: whole, bytewise, with more behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import protocols
from fjord.kestrel.protocols import KestrelRequest, Outcome, Reply, Verb

PUT = KestrelRequest(Verb.PUT, "q", items=(b"hello",))
SAMPLES: list[tuple[bytes, KestrelRequest]] = [
    (b"set q 0 0 5\r\nhello\r\n", PUT),
    (b"SET q 0 0 5\nhello\n", PUT),
    (b"set q 0 0 5 noreply\r\nhello\r\n", PUT._replace(is_quiet=True)),
    (b"set q 7 9 0\r\n\r\n", KestrelRequest(Verb.PUT, "q", (b"",), 9000)),
    (b"set q 0 -1 1\r\n\n\r\n", KestrelRequest(Verb.PUT, "q", (b"\n",), -1000)),
    (
        b"set q 0 1000000 1\r\nx\r\n",
        KestrelRequest(Verb.PUT, "q", (b"x",), expires_at_ms=1_000_000_000),
    ),
    (b"set q 0 999999 2\r\n\r\n\r\n", KestrelRequest(Verb.PUT, "q", (b"\r\n",), 999_999_000)),
    (b"get q\r\n", KestrelRequest(Verb.GET, "q", key="q")),
    (b"GETS q\r\n", KestrelRequest(Verb.GET, "q", key="q", wants_cas=True)),
    (
        b"get q other/open \r\n",
        KestrelRequest(
            Verb.GET,
            "other",
            opens=True,
            key="other/open",
            before=(KestrelRequest(Verb.GET, "q", key="q"),),
        ),
    ),
    (
        b"get q/t=250/open/close\r\n",
        KestrelRequest(
            Verb.GET, "q", wait_ms=250, opens=True, closes=True, key="q/t=250/open/close"
        ),
    ),
    (b"get q/abort\r\n", KestrelRequest(Verb.GET, "q", aborts=True, key="q/abort")),
    (b"get q/peek\r\n", KestrelRequest(Verb.GET, "q", peeks=True, key="q/peek")),
    (b"get q/what\r\n", KestrelRequest(Verb.GET, "q", key="q/what")),
    (b"monitor q 3\r\n", KestrelRequest(Verb.MONITOR, "q", wait_ms=3000, opens=True)),
    (
        b"monitor q 3 9\r\n",
        KestrelRequest(Verb.MONITOR, "q", wait_ms=3000, item_count=9, opens=True),
    ),
    (b"confirm q 2\r\n", KestrelRequest(Verb.CONFIRM, "q", item_count=2)),
    (b"flush q\r\n", KestrelRequest(Verb.FLUSH, "q")),
    (b"flush_all\r\n", KestrelRequest(Verb.FLUSH_ALL)),
    (b"flush_all noreply\r\n", KestrelRequest(Verb.FLUSH_ALL, is_quiet=True)),
    (b"delete q\r\n", KestrelRequest(Verb.DELETE, "q")),
    (b"delete q noreply\r\n", KestrelRequest(Verb.DELETE, "q", is_quiet=True)),
    (b"flush_expired q\r\n", KestrelRequest(Verb.FLUSH_EXPIRED, "q")),
    (b"flush_all_expired\r\n", KestrelRequest(Verb.FLUSH_ALL_EXPIRED)),
    (b"stats\r\n", KestrelRequest(Verb.STATS)),
    (b"dump_stats\r\n", KestrelRequest(Verb.DUMP_STATS)),
    (b"dump_stats a b\r\n", KestrelRequest(Verb.DUMP_STATS, words=("a", "b"))),
    (b"version\r\n", KestrelRequest(Verb.VERSION)),
    (b"status\r\n", KestrelRequest(Verb.STATUS)),
    (b"status UP\r\n", KestrelRequest(Verb.STATUS, words=("up",))),
    (b"reload\r\n", KestrelRequest(Verb.RELOAD)),
    (b"quit\r\n", KestrelRequest(Verb.QUIT)),
    (b"shutdown\r\n", KestrelRequest(Verb.SHUTDOWN)),
]

MALFORMED = [
    b"\r\n",
    b"add q 0 0 1\r\n",
    b"set q 0 0\r\n",
    b"set q 0 0 x\r\n",
    b"set q 0 0 -1\r\n",
    b"set q x 0 1\r\n",
    b"set q 0 x 1\r\n",
    b"set a.b 0 0 1\r\n",
    b"set q 0 0 1\r\nxx\r\n",
    b"set q 0 0 1\r\nx\rx",
    b"set q 0 0 101\r\n",
    b"get\r\n",
    b"get \r\n",
    b"get /open\r\n",
    b"get a~b\r\n",
    b"get q a~b\r\n",
    b"get q/peek/open\r\n",
    b"get q/peek/close\r\n",
    b"get q/abort/open\r\n",
    b"get q/abort/close\r\n",
    b"get q/peek/abort\r\n",
    b"get q/t=\r\n",
    b"get q/t=99999999999999999999\r\n",
    b"get \xff\r\n",
    b"monitor q\r\n",
    b"monitor q x\r\n",
    b"monitor q 1 0\r\n",
    b"confirm q\r\n",
    b"confirm q -1\r\n",
    b"flush\r\n",
    b"delete a/b\r\n",
]


def read(*pieces: bytes, item_bytes_max: int = 100, is_exact: bool = False) -> list[KestrelRequest]:
    reader = protocols.MemcacheReader(item_bytes_max, is_exact=is_exact)
    found = []
    for piece in pieces:
        reader.receive(piece)
        while (request := reader.next_request()) is not None:
            found.append(request)
    return found


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize(("data", "expected"), SAMPLES)
def test_request_is_read(data: bytes, expected: KestrelRequest) -> None:
    assert read(data) == [expected]
    assert read(*bytewise(data)) == [expected]
    assert read(data + b"version\r\nget ") == [expected, KestrelRequest(Verb.VERSION)]


@pytest.mark.parametrize("data", [b"get q other\r\n", b"gets q\r\n", b"get q \r\n"])
def test_exact_get_has_one_key_and_no_cas(data: bytes) -> None:
    assert read(data, is_exact=True) == [KestrelRequest(Verb.GET, "q", key="q")]


def test_every_verb_has_a_sample() -> None:
    shown = {request.verb for _, request in SAMPLES}
    assert set(Verb) - shown == {Verb.BROKEN}


@pytest.mark.parametrize("data", MALFORMED)
def test_malformed_request_is_the_last_one(data: bytes) -> None:
    for pieces in ([data], bytewise(data)):
        *before, last = read(*pieces, b"version\r\n")
        assert (before, last.verb, last.ends) == ([], Verb.BROKEN, True)


@pytest.mark.parametrize("data", [data for data, _ in SAMPLES])
def test_cut_off_request_is_waited_for(data: bytes) -> None:
    assert [read(data[:size]) for size in range(len(data))] == [[]] * len(data)


def test_line_is_bounded() -> None:
    longest = b"dump_stats " + b"x" * (protocols.LINE_BYTES_MAX - 11)
    assert [one.verb for one in read(longest + b"\n")] == [Verb.DUMP_STATS]
    for pieces in ([longest, b"xx"], [longest + b"x\n"]):
        assert [one.verb for one in read(*pieces)] == [Verb.BROKEN]


def test_item_of_the_largest_size_is_read() -> None:
    assert read(b"set q 0 0 100\r\n" + b"x" * 100 + b"\r\n")[0].items == (b"x" * 100,)


def test_reader_that_is_broken_keeps_nothing() -> None:
    reader = protocols.MemcacheReader()
    reader.receive(b"what\r\nset q 0 0 5\r\n")
    assert reader.next_request() is not None
    reader.receive(b"hello\r\n")
    assert (reader.kept_bytes, reader.next_request()) == (0, None)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"what q 0 0 1\r\n", "no such command"),
        (b"set a.b 0 0 1\r\n", "no name of a queue"),
        (b"get a.b\r\n", "no name of a queue"),
        (b"delete a.b\r\n", "no name of a queue"),
        (b"get  \r\n", "no name of a queue"),
        (b"set q 0 x 1\r\n", "flags and expiry of a set are numbers"),
        (b"set q 0 0 x\r\n", "the size of a set is a number"),
        (b"set q 0 0 1\r\nxyz\r\n", "the data is longer than its size"),
        (b"get q/peek/open\r\n", "options that exclude each other"),
        (b"get q/peek/abort\r\n", "options that exclude each other"),
        (b"get q/t=soon\r\n", "t= is a number of milliseconds"),
    ],
)
def test_what_is_broken_has_a_reason(sent: bytes, reason: str) -> None:
    assert [one.words for one in read(sent)] == [(reason,)]


def test_requests_may_follow_each_other_at_once() -> None:
    data = b"".join(data for data, _ in SAMPLES)
    assert read(data) == [request for _, request in SAMPLES]


GET = KestrelRequest(Verb.GET, "q", key="q/open")
REPLIES = [
    (PUT, Reply(Outcome.COUNT, 1), b"STORED\r\n", False),
    (PUT, Reply(Outcome.COUNT, 0), b"NOT_STORED\r\n", False),
    (PUT._replace(is_quiet=True), Reply(Outcome.COUNT, 1), b"", False),
    (GET, Reply(Outcome.ITEM, data=b"a\r\nb"), b"VALUE q/open 0 4\r\na\r\nb\r\nEND\r\n", False),
    (GET, Reply(Outcome.ITEM, data=b""), b"VALUE q/open 0 0\r\n\r\nEND\r\n", False),
    (GET, Reply(Outcome.ITEM), b"END\r\n", False),
    (
        GET._replace(wants_cas=True),
        Reply(Outcome.ITEM, data=b"x"),
        b"VALUE q/open 0 1 0\r\nx\r\nEND\r\n",
        False,
    ),
    (GET, Reply(Outcome.HAS_OPEN), b"ERROR\r\n", True),
    (GET, Reply(Outcome.TOO_MANY_OPEN, 1), b"ERROR\r\n", True),
    (GET, Reply(Outcome.BLOCKED), b"SERVER_ERROR\r\n", True),
    (GET, Reply(Outcome.FAILED), b"SERVER_ERROR\r\n", True),
    (
        KestrelRequest(Verb.BROKEN, words=("no such command",), ends=True),
        Reply(Outcome.BROKEN),
        b"CLIENT_ERROR no such command\r\n",
        True,
    ),
    (
        KestrelRequest(Verb.STATUS, words=("d\rown",)),
        Reply(Outcome.BROKEN, word="Unknown status: d\rown"),
        b"CLIENT_ERROR no such status\r\n",
        True,
    ),
    (
        KestrelRequest(Verb.MONITOR, "q"),
        Reply(Outcome.MORE, data=b"x"),
        b"VALUE q 0 1\r\nx\r\n",
        False,
    ),
    (KestrelRequest(Verb.CONFIRM, "q"), Reply(Outcome.DONE), b"END\r\n", False),
    (KestrelRequest(Verb.CONFIRM, "q"), Reply(Outcome.NOT_OPEN), b"ERROR\r\n", False),
    (KestrelRequest(Verb.FLUSH, "q"), Reply(Outcome.DONE), b"END\r\n", False),
    (KestrelRequest(Verb.FLUSH_ALL), Reply(Outcome.DONE), b"OK\r\n", False),
    (KestrelRequest(Verb.DELETE, "q"), Reply(Outcome.DONE), b"DELETED\r\n", False),
    (KestrelRequest(Verb.FLUSH_EXPIRED, "q"), Reply(Outcome.COUNT, 3), b"3\r\n", False),
    (KestrelRequest(Verb.RELOAD), Reply(Outcome.DONE), b"Reloaded config.\r\n", False),
    (KestrelRequest(Verb.VERSION), Reply(Outcome.WORD, word="1.2"), b"VERSION 1.2\r\n", False),
    (KestrelRequest(Verb.STATUS), Reply(Outcome.WORD, word="UP"), b"UP\r\n", False),
    (KestrelRequest(Verb.STATUS), Reply(Outcome.DONE), b"END\r\n", False),
    (KestrelRequest(Verb.QUIT), Reply(Outcome.DONE), b"", True),
    (KestrelRequest(Verb.SHUTDOWN), Reply(Outcome.DONE), b"", True),
    (
        KestrelRequest(Verb.STATS),
        Reply(Outcome.FIELDS, fields=(("uptime", "1"), ("time", "2"))),
        b"STAT uptime 1\r\nSTAT time 2\r\nEND\r\n",
        False,
    ),
    (
        KestrelRequest(Verb.DUMP_STATS),
        Reply(Outcome.QUEUES, queues=(("q", (("items", "1"), ("bytes", "2"))),)),
        b"queue 'q' {\r\n  items=1\r\n  bytes=2\r\n}\r\nEND\r\n",
        False,
    ),
    (KestrelRequest(Verb.DUMP_STATS), Reply(Outcome.QUEUES), b"END\r\n", False),
    (
        KestrelRequest(Verb.DUMP_STATS),
        Reply(Outcome.QUEUES, queues=(("caf\udce9", ()),)),  # a file that is not named in UTF-8
        b"queue 'caf\xe9' {\r\n}\r\nEND\r\n",
        False,
    ),
]


@pytest.mark.parametrize(("request_", "reply", "expected", "ends"), REPLIES)
def test_reply_is_written(
    request_: KestrelRequest, reply: Reply, expected: bytes, ends: bool
) -> None:
    assert protocols.encode_memcache(request_, reply) == (expected, ends)


def test_every_outcome_has_a_reply() -> None:
    assert {reply.outcome for _, reply, _, _ in REPLIES} == set(Outcome)


@pytest.mark.parametrize(
    ("request_", "reply", "expected"),
    [
        (GET, Reply(Outcome.ITEM, data=b"x"), b"VALUE q 0 1\r\nx\r\nEND\r\n"),
        (GET, Reply(Outcome.MORE, data=b"x"), b"VALUE q 0 1\r\nx\r\n"),
        (KestrelRequest(Verb.FLUSH_ALL), Reply(Outcome.DONE), b"Flushed all queues.\r\n"),
        (PUT._replace(is_quiet=True), Reply(Outcome.COUNT, 1), b"STORED\r\n"),
    ],
)
def test_exact_replies_are_those_of_kestrel(
    request_: KestrelRequest, reply: Reply, expected: bytes
) -> None:
    assert protocols.encode_memcache(request_, reply, is_exact=True) == (expected, False)


def test_kestrel_gives_no_reason() -> None:
    request = KestrelRequest(Verb.BROKEN, words=("no such command",), ends=True)
    broken = protocols.encode_memcache(request, Reply(Outcome.BROKEN), is_exact=True)
    assert broken == (b"CLIENT_ERROR\r\n", True)


def test_a_line_that_came_before_means_what_it_means_to_each_reader() -> None:
    line = b"set q 0 0 50\r\n"
    stored = KestrelRequest(Verb.PUT, "q", (b"x" * 50,))
    for _ in range(2):
        assert read(line + b"x" * 50 + b"\r\n", item_bytes_max=50) == [stored]
        assert [one.verb for one in read(line, item_bytes_max=49)] == [Verb.BROKEN]
    for _ in range(2):
        assert read(b"get q other\r\n", is_exact=True) == [KestrelRequest(Verb.GET, "q", key="q")]
        assert [one.queue for one in read(b"get q other\r\n")] == ["other"]


def test_a_line_that_is_too_long_to_be_remembered_is_read() -> None:
    words = tuple(f"queue{number}" for number in range(100))
    line = b"dump_stats " + " ".join(words).encode() + b"\r\n"
    assert read(line + line) == [KestrelRequest(Verb.DUMP_STATS, words=words)] * 2


FRAGMENTS = st.sampled_from(
    [b"set q 0 0 3\r\n", b"abc", b"\r\n", b"get q/open", b"\n", b" ", b"noreply"]
)


@given(st.lists(FRAGMENTS | st.binary(max_size=20), max_size=20))
def test_how_bytes_are_cut_does_not_matter(pieces: list[bytes]) -> None:
    assert read(*pieces) == read(b"".join(pieces))
