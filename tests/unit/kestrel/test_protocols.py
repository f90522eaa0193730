"""Every command of both protocols, whole, byte by byte and with more behind, and rare replies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import protocols
from fjord.kestrel.protocols import KestrelRequest as Asked
from fjord.kestrel.protocols import MemcacheReader, Outcome, Reply, TextReader, Verb
from tests.unit.kestrel.transcripts import ERRORS, REFUSED, lined

Sample = tuple[bytes, Asked]
PUT, GET, VERSION = Asked(Verb.PUT, "q", (b"hello",)), Asked(Verb.GET, "q", key="q"), Verb.VERSION
MEMCACHE: list[Sample] = [
    (b"set q 0 0 5\r\nhello\r\n", PUT),
    (b"SET q 0 0 5\nhello\n", PUT),
    (b"set q 0 0 5 noreply\r\nhello\r\n", PUT._replace(is_quiet=True)),
    (b"set q 7 9 0\r\n\r\n", Asked(Verb.PUT, "q", (b"",), 9000)),
    (b"set q 0 -1 1\r\n\n\r\n", Asked(Verb.PUT, "q", (b"\n",), -1000)),
    (b"set q 0 1000000 1\r\nx\r\n", Asked(Verb.PUT, "q", (b"x",), expires_at_ms=1_000_000_000)),
    (b"set q 0 999999 2\r\n\r\n\r\n", Asked(Verb.PUT, "q", (b"\r\n",), 999_999_000)),
    (b"get q\r\n", GET),
    (b"GETS q\r\n", GET._replace(wants_cas=True)),
    (b"get q b/open \r\n", Asked(Verb.GET, "b", opens=True, key="b/open", before=(GET,))),
    (
        b"get q/t=250/open/close\r\n",
        GET._replace(wait_ms=250, opens=True, closes=True, key="q/t=250/open/close"),
    ),
    (b"get q/abort\r\n", GET._replace(aborts=True, key="q/abort")),
    (b"get q/peek\r\n", GET._replace(peeks=True, key="q/peek")),
    (b"get q/what\r\n", GET._replace(key="q/what")),
    (b"monitor q 3\r\n", Asked(Verb.MONITOR, "q", wait_ms=3000, opens=True)),
    (b"monitor q 3 9\r\n", Asked(Verb.MONITOR, "q", wait_ms=3000, item_count=9, opens=True)),
    (b"confirm q 2\r\n", Asked(Verb.CONFIRM, "q", item_count=2)),
    (b"flush_all noreply\r\n", Asked(Verb.FLUSH_ALL, is_quiet=True)),
    (b"delete q noreply\r\n", Asked(Verb.DELETE, "q", is_quiet=True)),
    *(
        (f"{verb.name.lower()} q\r\n".encode(), Asked(verb, "q"))
        for verb in (Verb.FLUSH, Verb.DELETE, Verb.FLUSH_EXPIRED)
    ),
    *(
        (f"{verb.name.lower()}\r\n".encode(), Asked(verb))
        for verb in (Verb.FLUSH_ALL, Verb.FLUSH_ALL_EXPIRED, Verb.STATS, Verb.DUMP_STATS, VERSION)
    ),
    (b"dump_stats a b\r\n", Asked(Verb.DUMP_STATS, words=("a", "b"))),
    (b"status UP\r\n", Asked(Verb.STATUS, words=("up",))),
]
TEXT: list[Sample] = [
    (b"put q:\na\nb\n\n", Asked(Verb.PUT, "q", (b"a", b"b"))),
    (b"PUT q 500:\r\na\r\n\r\n", Asked(Verb.PUT, "q", (b"a",), 500)),
    (b"put q:\nget q\n\n", Asked(Verb.PUT, "q", (b"get q",))),
    (b"get q 50\n", Asked(Verb.GET, "q", wait_ms=50, opens=True, closes_all=True)),
    (b"peek q 50\n", Asked(Verb.GET, "q", wait_ms=50, peeks=True, closes_all=True)),
    (b"monitor q 50\n", Asked(Verb.MONITOR, "q", wait_ms=50, opens=True, closes_all=True)),
    (b"confirm q 3\n", Asked(Verb.CONFIRM, "q", item_count=3)),
    (b"status Quiescent\n", Asked(Verb.STATUS, words=("quiescent",))),
]
BOTH = [(data, one, False) for data, one in MEMCACHE] + [(data, one, True) for data, one in TEXT]


def read(
    *pieces: bytes, is_text: bool = False, item_bytes_max: int = 3000, is_exact: bool = False
) -> list[Asked]:
    reader = (
        TextReader(item_bytes_max) if is_text else MemcacheReader(item_bytes_max, is_exact=is_exact)
    )
    found = []
    for piece in pieces:
        reader.receive(piece)
        while (request := reader.next_request()) is not None:
            found.append(request)
    return found


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize(("data", "expected", "is_text"), BOTH)
def test_request_is_read(data: bytes, expected: Asked, is_text: bool) -> None:
    assert read(*bytewise(data), is_text=is_text) == read(data, is_text=is_text) == [expected]
    assert read(data + b"version\nget ", is_text=is_text) == [expected, Asked(VERSION)]
    # One that is cut off is waited for.
    assert [read(data[:size], is_text=is_text) for size in range(len(data))] == [[]] * len(data)


@pytest.mark.parametrize("data", [b"get q other\r\n", b"gets q\r\n", b"get q \r\n"])
def test_exact_get_has_one_key_and_no_cas(data: bytes) -> None:
    assert read(data, is_exact=True) == [GET]


@pytest.mark.parametrize(
    ("sent", "reason"), [(one, reason) for reason, sent in REFUSED.items() for one in sent]
)
def test_malformed_request_is_the_last_one_and_has_a_reason(sent: str, reason: str) -> None:
    for pieces in ([lined(sent)], bytewise(lined(sent))):
        assert read(*pieces, b"version\r\n") == [Asked(Verb.BROKEN, words=(reason,), ends=True)]


@pytest.mark.parametrize(
    ("sent", "reason"), [(one, reason) for reason, sent in ERRORS.items() for one in sent]
)
def test_error_in_text_is_told_and_the_next_request_is_read(sent: str, reason: str) -> None:
    data = lined(sent, "\n")
    expected = [Asked(Verb.BROKEN, words=(reason,)), Asked(VERSION)]
    for pieces in ([data], bytewise(data)):
        assert read(*pieces, b"version\n", is_text=True) == expected


TOO_LONG = b"x" * (protocols.LINE_BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("data", "reason", "is_text"),
    [
        (TOO_LONG, "line too long", False),
        (b"set q 0 0 101\r\n", "the item is too large", False),
        (TOO_LONG, "Line too long.", True),
        (b"put q:\n" + b"x" * 102, "Line too long.", True),
    ],
)
def test_what_has_no_end_ends_the_connection(data: bytes, reason: str, is_text: bool) -> None:
    reader = TextReader(100) if is_text else MemcacheReader(100)
    reader.receive(data)
    assert reader.next_request() == Asked(Verb.BROKEN, words=(reason,), ends=True)
    reader.receive(b"version\n")
    assert (reader.kept_bytes, reader.next_request()) == (0, None)


def test_what_is_as_large_as_it_may_be_is_read() -> None:
    longest = b"dump_stats " + b"x" * (protocols.LINE_BYTES_MAX - 11)
    assert [one.verb for one in read(longest + b"\n")] == [Verb.DUMP_STATS]
    (one,) = read(b"set q 0 0 100\r\n" + b"x" * 100 + b"\r\n", item_bytes_max=100)
    assert one.items == (b"x" * 100,)
    both = b"put q:\n" + b"x" * 60 + b"\n" + b"x" * 60 + b"\n\n"
    (one,) = read(both, is_text=True, item_bytes_max=100)
    assert one.words == ("Too many items at once; limit=1024",)


def test_items_of_a_put_are_counted_as_kept() -> None:
    reader = TextReader()
    reader.receive(b"put q:\nabc\nde")
    assert (reader.next_request(), reader.kept_bytes) == (None, 5)


def test_a_line_that_came_before_means_what_it_means_to_each_reader() -> None:
    line = b"set q 0 0 50\r\n"
    stored = Asked(Verb.PUT, "q", (b"x" * 50,))
    words = tuple(f"queue{number}" for number in range(100))  # too long to be remembered
    for _ in range(2):
        assert read(line + b"x" * 50 + b"\r\n", item_bytes_max=50) == [stored]
        assert [one.verb for one in read(line, item_bytes_max=49)] == [Verb.BROKEN]
        assert read(b"get q other\r\n", is_exact=True) == [GET]
        assert [one.queue for one in read(b"get q other\r\n")] == ["other"]
        dump = b"dump_stats " + " ".join(words).encode() + b"\r\n"
        assert read(dump) == [Asked(Verb.DUMP_STATS, words=words)]


FRAGMENTS = st.sampled_from(
    [b"set q 0 0 3\r\n", b"abc", b"\r\n", b"get q/open", b"\n", b" ", b"noreply", b"put q:", b":"]
)


@given(st.lists(FRAGMENTS | st.binary(max_size=20), max_size=20), st.booleans())
def test_how_bytes_are_cut_does_not_matter(pieces: list[bytes], is_text: bool) -> None:
    assert read(*pieces, is_text=is_text) == read(b"".join(pieces), is_text=is_text)


NUMBER_MAX = protocols.NUMBER_MAX
NO_NUMBERS = [str(NUMBER_MAX + 1), "9" * 5000, "-1", "", "-", "--1", "+1", "1_0", " 1", "\u0661"]


def test_number_is_decimal_digits_within_bounds() -> None:
    assert [protocols.number(one) for one in ("0", "007", str(NUMBER_MAX))] == [0, 7, NUMBER_MAX]
    assert [protocols.number(one) for one in NO_NUMBERS] == [None] * len(NO_NUMBERS)
    assert [protocols.number(one, low=-10) for one in ("-5", "-11")] == [-5, None]


# -- replies that no transcript has ----------------------------------------------------------------

STATUS, MORE = Asked(Verb.STATUS), Reply(Outcome.MORE, data=b"x")
# A file that is not named in UTF-8.
DUMPED = Reply(Outcome.QUEUES, queues=(("caf\udce9", (("items", "1"),)),))


@pytest.mark.parametrize(
    ("asked", "reply", "expected", "ends"),
    [
        (GET, Reply(Outcome.FAILED), b"SERVER_ERROR\r\n", True),
        (GET, MORE, b"VALUE q 0 1\r\nx\r\n", False),
        (STATUS, Reply(Outcome.BROKEN, word="x\ry"), b"CLIENT_ERROR no such status\r\n", True),
        (Asked(Verb.DUMP_STATS), DUMPED, b"queue 'caf\xe9' {\r\n  items=1\r\n}\r\nEND\r\n", False),
    ],
)
def test_reply_is_written(asked: Asked, reply: Reply, expected: bytes, ends: bool) -> None:
    assert protocols.encode_memcache(asked, reply) == (expected, ends)


@pytest.mark.parametrize(
    ("reply", "expected", "ends"),
    [
        (Reply(Outcome.HAS_OPEN), b"-A transaction is open.\n", False),
        (Reply(Outcome.TOO_MANY_OPEN, 7), b"-Too many open transactions; limit=7\n", False),
        (Reply(Outcome.FAILED), b"-The server could not do it.\n", True),
    ],
)
def test_reply_in_text_is_written(reply: Reply, expected: bytes, ends: bool) -> None:
    assert protocols.encode_text(GET, reply) == (expected, ends)
