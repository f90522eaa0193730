"""Kept answers: the same replies come back, in few bytes, and only such as can be kept."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Acted, Done, Entries, Page, Refusal, Replies, Reply, TableList
from fjord.errors import Code
from fjord.tables import answers
from tests.unit.tables.world import entry_of

MASTER = bytes(range(16))
U64_MAX = 2**64 - 1


def entries(rows: list[tuple[int, bytes, int]]) -> Entries:
    numbers = [number for _, _, number in rows]
    return Entries(
        types=bytes(type_ for type_, _, _ in rows),
        values=Strings.of([value for _, value, _ in rows]),
        timestamps_us=array("Q", numbers),
        expires_at_us=[number // 2 for number in numbers],
        states=bytes(number % 4 for number in numbers),
        created_us=[number // 3 for number in numbers],
        accessed_us=[number // 4 for number in numbers],
        ttls_us=[number // 5 for number in numbers],
    )


done_st = st.integers(2**40, 2**40 + 2**31).map(lambda seq: Done(master=MASTER, seq=seq))
refusal_st = st.builds(
    lambda code, text: Refusal(code=code, text=text), st.sampled_from(Code), st.text(max_size=20)
)
entries_st = st.lists(
    st.tuples(st.integers(0, 255), st.binary(max_size=9), st.integers(0, U64_MAX)),
    min_size=1,
    max_size=4,
).map(entries)


def same(found: Reply, expected: Reply) -> bool:
    if isinstance(found, Entries) and isinstance(expected, Entries):
        assert len(found.types) == len(expected.types)
        rows = range(len(expected.types))
        return [entry_of(found, row) for row in rows] == [entry_of(expected, row) for row in rows]
    return found == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(done_st, refusal_st, entries_st), max_size=6))
def test_replies_come_back_as_they_were(replies: list[Reply]) -> None:
    data = answers.encode(replies)
    assert data is not None
    found = answers.decode(data)
    assert isinstance(found, Replies)
    assert len(found.replies) == len(replies)
    assert all(map(same, found.replies, replies))


def test_a_full_batch_that_is_done_can_be_kept() -> None:
    replies = [Done(master=MASTER, seq=10 * number) for number in range(limits.BATCH_COMMANDS_MAX)]
    data = answers.encode(replies)
    assert data is not None
    assert len(data) <= limits.ANSWER_KEPT_BYTES_MAX


@pytest.mark.parametrize(
    "reply",
    [
        Page(keys=Strings.of([]), entries=entries([]), next_key=b""),
        TableList(names=Strings.of([]), ids=[], kinds=b"", settings=Strings.of([])),
        Replies(replies=[]),
    ],
)
def test_other_replies_cannot_be_kept(reply: Reply) -> None:
    assert answers.encode([reply]) is None
    assert answers.encode([Done(master=MASTER, seq=1), reply]) is None


def test_an_answer_of_a_later_version_is_not_guessed_at() -> None:
    data = answers.encode([Done(master=MASTER, seq=1)])
    assert data is not None
    with pytest.raises(ValueError, match="version 2"):
        answers.decode(b"\2" + data[1:])


def test_the_layout_of_an_answer_is_fixed() -> None:
    replies: list[Reply] = [
        Done(master=MASTER, seq=7),
        Refusal(code=Code.EXISTS, text="why"),
        Done(master=MASTER, seq=9),
    ]
    assert (
        answers.encode(replies)
        == (
            b"\1\3\0\0\0"  # version, count
            b"\0\2\0" + MASTER + b"\7\0\0\0\0\0\0\0"  # kinds  # the first seq
            b"\0\0\0\0"
            b"\x0a\0\0\0\6EXISTSwhy"
            b"\2\0\0\0"
        )
    )


@pytest.mark.parametrize(
    "missing", [[], [0], [7], [8], [0, 9, 99_999], list(range(100_000))], ids=len
)
def test_who_was_missing_and_who_was_dropped_is_kept(missing: list[int]) -> None:
    for dropped in ([], [1], [3, 8, 99_998], missing):
        acted = Acted(master=b"m" * 16, seq=2**40, missing=missing, dropped=dropped)
        data = answers.encode([acted, acted])
        assert data is not None
        assert len(data) < limits.ANSWER_KEPT_BYTES_MAX
        assert answers.decode(data) == Replies(replies=[acted, acted])
