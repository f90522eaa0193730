"""Bodies of replies to functions 48 to 63, byte by byte."""

from __future__ import annotations

import struct

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Acted, JobPage, Taken
from fjord.wire import Function, reply_bodies
from tests.unit.wire.job_samples import (
    ACTED,
    ACTED_ON_SOME,
    LARGEST,
    LATER,
    NOTHING,
    ONE_JOB,
    REVIVED_SOME,
    job_page,
    taken,
)
from tests.unit.wire.streams import MASTER, NOW_US, plain

NO_STRINGS = bytes(8)


def strings(*rows: bytes) -> bytes:
    return bytes(Strings.of(rows).encode())


def test_jobs_that_were_taken_are_columns() -> None:
    body = reply_bodies.encode_body(taken([b"a", b"bc"]))
    dates = (1000, 1001, 2000, 2001, 3000, 3001, 4000, 4001, 5000, 5001)
    assert body == (
        struct.pack(">QQQI4x", 7, NOW_US, 0, 2)
        + struct.pack("<10Q", *dates)
        + b"\xff\xfe" + bytes(6) + b"\1\2" + bytes(6) + b"\0\1" + bytes(6)
        + strings(b"a", b"bc") + strings(b"", b"d") + strings(b"", b"vv")
    )  # fmt: skip


def test_one_job_is_laid_out_as_many_are() -> None:
    body = reply_bodies.encode_body(ONE_JOB)
    numbers = struct.pack("<5Q", 1000, 2000, 3000, 4000, 5000) + b"\xff" + bytes(7) + b"\1"
    assert body == (
        struct.pack(">QQQI4x", 7, NOW_US, 0, 1)
        + numbers + bytes(15)
        + strings(b"http://x.com/a") + strings(b"x") + strings(b"text")
    )  # fmt: skip


@pytest.mark.req("FJ-28")
def test_no_job_is_nothing_or_a_date() -> None:
    for reply, next_at_us in ((NOTHING, 0), (LATER, NOW_US + 5)):
        body = reply_bodies.encode_body(reply)
        assert body == struct.pack(">QQQI4x", 0, 0, next_at_us, 0) + NO_STRINGS * 3
        found = reply_bodies.decode_body(Function.NEXT_MANY, body)
        assert isinstance(found, Taken)
        assert (len(found.types), found.next_at_us) == (0, next_at_us)


def test_many_jobs_are_read_without_an_object_for_each() -> None:
    reply = taken([b"http://example.com/%d" % row for row in range(limits.NEXT_COUNT_MAX)])
    found = reply_bodies.decode_body(Function.NEXT_MANY, reply_bodies.encode_body(reply))
    assert isinstance(found, Taken)
    for name in Taken.NUMBERS:
        assert isinstance(getattr(found, name), memoryview)
    for column in (found.keys, found.domains, found.values):
        assert isinstance(column.data, memoryview)
    assert plain(found) == plain(reply)


def test_jobs_that_are_looked_at_begin_with_where_the_next_page_does() -> None:
    body = reply_bodies.encode_body(job_page([b"k"], b"next start"))
    dates = (1000, 2000, 3000, 4000, 5000, 6000, 7000)
    assert body == (
        struct.pack(">II", 1, 10) + b"next start" + bytes(6)
        + struct.pack("<7Q", *dates)
        + b"\xff" + bytes(7) + b"\1" + bytes(7) + bytes(8)
        + strings(b"k") + strings(b"") + strings(b"") + strings(b"")
    )  # fmt: skip


def test_the_columns_of_numbers_are_those_that_the_records_name() -> None:
    """A row that is read back in another order would have other numbers in its fields."""
    for type_, reply, function in (
        (Taken, taken([b"a", b"b"]), Function.NEXT_MANY),
        (JobPage, job_page([b"a", b"b"]), Function.PEEK),
    ):
        found = reply_bodies.decode_body(function, reply_bodies.encode_body(reply))
        for position, name in enumerate(type_.NUMBERS, start=1):
            assert list(getattr(found, name)) == [1000 * position, 1000 * position + 1]


def test_who_was_missing_and_who_was_dropped_stands_behind_the_token() -> None:
    body = reply_bodies.encode_body(ACTED_ON_SOME)
    assert body == MASTER + struct.pack(">QII", LARGEST, 3, 0) + struct.pack("<3Q", 0, 2, 99_999)
    assert reply_bodies.encode_body(ACTED) == MASTER + struct.pack(">QII", 5, 0, 0)
    both = MASTER + struct.pack(">QII", 6, 1, 3) + struct.pack("<4Q", 1, 0, 4, 99_999)
    assert reply_bodies.encode_body(REVIVED_SOME) == both


@pytest.mark.parametrize(
    ("function", "head"),
    [
        (Function.NEXT_MANY, bytes(24)),
        (Function.PEEK, b""),
        (Function.FINISH, bytes(24)),
    ],
)
def test_rows_beyond_all_bounds_are_refused_by_their_number(
    function: Function, head: bytes
) -> None:
    for rows in (limits.BATCH_ROWS_MAX + 1, 2**32 - 1):
        with pytest.raises(ValueError, match=str(limits.BATCH_ROWS_MAX)):
            reply_bodies.decode_body(function, head + struct.pack(">II", rows, 0) + bytes(64))
    with pytest.raises(ValueError, match=str(limits.BATCH_ROWS_MAX)):
        reply_bodies.decode_body(Function.REVIVE, bytes(24) + struct.pack(">II", 0, 2**32 - 1))


def test_a_next_start_outside_the_body_is_refused() -> None:
    with pytest.raises(ValueError, match="where the next page begins is cut short"):
        reply_bodies.decode_body(Function.PEEK, struct.pack(">II", 0, 2**32 - 1) + bytes(64))


def test_the_most_that_may_be_missing_is_read() -> None:
    reply = Acted(master=MASTER, seq=1, missing=range(limits.BATCH_ROWS_MAX))
    found = reply_bodies.decode_body(Function.FINISH, reply_bodies.encode_body(reply))
    assert isinstance(found, Acted)
    assert list(found.missing) == list(range(limits.BATCH_ROWS_MAX))
