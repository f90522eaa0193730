"""Every command of the text protocol, and every reply: whole, byte by byte, with more behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import protocols
from fjord.kestrel.protocols import KestrelRequest, Outcome, Reply, Verb

SAMPLES = [
    (b"put q:\na\nb\n\n", KestrelRequest(Verb.PUT, "q", (b"a", b"b"))),
    (b"PUT q 500:\r\na\r\n\r\n", KestrelRequest(Verb.PUT, "q", (b"a",), 500)),
    (b"put q:\nget q\n\n", KestrelRequest(Verb.PUT, "q", (b"get q",))),
    (b"put q:\n\n", KestrelRequest(Verb.PUT, "q")),
    (b"get q\n", KestrelRequest(Verb.GET, "q", opens=True, closes_all=True)),
    (b"get q 50\n", KestrelRequest(Verb.GET, "q", wait_ms=50, opens=True, closes_all=True)),
    (b"peek q\n", KestrelRequest(Verb.GET, "q", peeks=True, closes_all=True)),
    (b"peek q 50\n", KestrelRequest(Verb.GET, "q", wait_ms=50, peeks=True, closes_all=True)),
    (b"monitor q 50\n", KestrelRequest(Verb.MONITOR, "q", wait_ms=50, opens=True, closes_all=True)),
    (b"confirm q 3\n", KestrelRequest(Verb.CONFIRM, "q", item_count=3)),
    (b"flush q\n", KestrelRequest(Verb.FLUSH, "q")),
    (b"delete q\n", KestrelRequest(Verb.DELETE, "q")),
    (b"status\n", KestrelRequest(Verb.STATUS)),
    (b"status Quiescent\n", KestrelRequest(Verb.STATUS, words=("quiescent",))),
    (b"version\n", KestrelRequest(Verb.VERSION)),
    (b"quit\n", KestrelRequest(Verb.QUIT)),
    (b"shutdown\n", KestrelRequest(Verb.SHUTDOWN)),
]

# What is told, and the connection goes on.
ERRORS = [
    (b"put:\na\n\n", "Queue name required."),
    (b"put q\n", "The line of a put ends with a colon."),
    (b"put q x\n", "The line of a put ends with a colon."),
    (b"put\n", "Queue name required."),
    (b"put q x:\na\n\n", "Error parsing expiration time."),
    (b"put a.b:\na\n\n", "Bad queue name."),
    (b"put q:\n" + b"x\n" * 1025 + b"\n", "Too many items at once; limit=1024"),
    (b"put q:\n" + b"x" * 60 + b"\n" + b"x" * 60 + b"\n\n", "Too many items at once; limit=1024"),
    (b"get\n", "Queue name required."),
    (b"get q x\n", "Error parsing timeout."),
    (b"peek\n", "Queue name required."),
    (b"peek q x\n", "Error parsing timeout."),
    (b"monitor q\n", "Queue name & timeout required."),
    (b"monitor q x\n", "Error parsing timeout."),
    (b"monitor a/b 1\n", "Bad queue name."),
    (b"monitor a/b x\n", "Bad queue name."),
    (b"confirm q\n", "Queue name & count required."),
    (b"confirm q x\n", "Error parsing count."),
    (b"confirm a~b 1\n", "Bad queue name."),
    (b"flush\n", "Queue name required."),
    (b"delete\n", "Queue name required."),
    (b"What q\n", "Unknown command: what"),
    (b"what q:\na\n\n", "Unknown command: what"),
    (b"\n", "Unknown command: "),
]


def read(*pieces: bytes, item_bytes_max: int = 100) -> list[KestrelRequest]:
    # 1025 items of one byte are too many, and not too large.
    reader = protocols.TextReader(2000 if sum(map(len, pieces)) > 2000 else item_bytes_max)
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
    assert read(data + b"version\nget ") == [expected, KestrelRequest(Verb.VERSION)]
    assert [read(data[:size]) for size in range(len(data))] == [[]] * len(data)


@pytest.mark.parametrize(("data", "reason"), ERRORS, ids=[reason for _, reason in ERRORS])
def test_error_is_told_and_the_next_request_is_read(data: bytes, reason: str) -> None:
    expected = [KestrelRequest(Verb.BROKEN, words=(reason,)), KestrelRequest(Verb.VERSION)]
    assert read(data, b"version\n") == expected
    assert read(*bytewise(data), b"version\n") == expected
    broken = expected[0]
    told = (f"-{reason}\n".encode(), False)
    assert protocols.encode_text(broken, Reply(Outcome.BROKEN)) == told


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x" * (protocols.LINE_BYTES_MAX + 1), "Line too long."),
        (b"get " + b"x" * protocols.LINE_BYTES_MAX + b"\n", "Line too long."),
        (b"put q:\n" + b"x" * 102, "Line too long."),
        (b"get \xff\n", "Not UTF-8."),
    ],
)
def test_what_has_no_end_ends_the_connection(data: bytes, reason: str) -> None:
    reader = protocols.TextReader(100)
    reader.receive(data)
    broken = reader.next_request()
    assert broken == KestrelRequest(Verb.BROKEN, words=(reason,), ends=True)
    assert protocols.encode_text(broken, Reply(Outcome.BROKEN)) == (f"-{reason}\n".encode(), True)
    reader.receive(b"version\n")
    assert (reader.kept_bytes, reader.next_request()) == (0, None)


def test_items_of_a_put_are_counted_as_kept() -> None:
    reader = protocols.TextReader()
    reader.receive(b"put q:\nabc\nde")
    assert reader.next_request() is None
    assert reader.kept_bytes == 5


GET = KestrelRequest(Verb.GET, "q")
REPLIES = [
    (KestrelRequest(Verb.PUT, "q"), Reply(Outcome.COUNT, 2), b"+2\n", False),
    (GET, Reply(Outcome.ITEM, data=b"x"), b":x\n", False),
    (GET, Reply(Outcome.ITEM), b"*\n", False),
    (GET, Reply(Outcome.MORE, data=b"x"), b":x\n", False),
    (GET, Reply(Outcome.HAS_OPEN), b"-A transaction is open.\n", False),
    (GET, Reply(Outcome.TOO_MANY_OPEN, 7), b"-Too many open transactions; limit=7\n", False),
    (GET, Reply(Outcome.BLOCKED), b"-The status of the server does not allow it.\n", False),
    (GET, Reply(Outcome.FAILED), b"-The server could not do it.\n", True),
    (KestrelRequest(Verb.CONFIRM, "q", item_count=3), Reply(Outcome.DONE), b"+3\n", False),
    (
        KestrelRequest(Verb.CONFIRM),
        Reply(Outcome.NOT_OPEN),
        b"-Not that many transactions open.\n",
        False,
    ),
    (KestrelRequest(Verb.FLUSH, "q"), Reply(Outcome.DONE), b"+0\n", False),
    (KestrelRequest(Verb.VERSION), Reply(Outcome.WORD, word="1.2"), b":1.2\n", False),
    (KestrelRequest(Verb.STATUS), Reply(Outcome.WORD, word="UP"), b":UP\n", False),
    (
        KestrelRequest(Verb.STATUS),
        Reply(Outcome.BROKEN, word="Unknown status: x"),
        b"-Unknown status: x\n",
        False,
    ),
    (KestrelRequest(Verb.QUIT), Reply(Outcome.DONE), b"+0\n", True),
    (KestrelRequest(Verb.SHUTDOWN), Reply(Outcome.DONE), b"+0\n", True),
]


@pytest.mark.parametrize(("request_", "reply", "expected", "ends"), REPLIES)
def test_reply_is_written(
    request_: KestrelRequest, reply: Reply, expected: bytes, ends: bool
) -> None:
    assert protocols.encode_text(request_, reply) == (expected, ends)


def test_every_outcome_that_can_be_has_a_reply() -> None:
    never = {Outcome.FIELDS, Outcome.QUEUES}  # of stats, which this protocol does not have
    assert {reply.outcome for _, reply, _, _ in REPLIES} == set(Outcome) - never


FRAGMENTS = st.sampled_from([b"put q:", b"abc", b"\r\n", b"get q", b"\n", b" ", b":"])


@given(st.lists(FRAGMENTS | st.binary(max_size=20), max_size=20))
def test_how_bytes_are_cut_does_not_matter(pieces: list[bytes]) -> None:
    assert read(*pieces) == read(b"".join(pieces))
