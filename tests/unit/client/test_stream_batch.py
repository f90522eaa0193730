"""What a read returns: columns as they came, objects on demand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fjord import ops, values
from fjord.client.messages import MessageBatch, ReadBy
from fjord.columns import Strings
from fjord.commands import Messages
from fjord.errors import Code, RemoteProtocolError
from fjord.ops import Op, Opcode
from tests.unit.client.scripted import NOW_US
from tests.unit.client.stream_samples import NOW, appended, encoded, messages, moved

SECOND = timedelta(seconds=1)


def batch_of(*found: Op, firsts: tuple[int, ...] = (), walls: tuple[int, ...] = ()) -> MessageBatch:
    count = len(found)
    rows = sum(op.rows for op in found)
    answer = Messages(
        first_seqs=firsts or [1] * count,
        walls_us=walls or [NOW_US] * count,
        ops=encoded(*found),
        after=99,
        until=100,
        ended=False,
        rows=rows,
    )
    return MessageBatch("t", answer)


def typed(*found: values.Value) -> Op:
    data = [values.encode(one) for one in found]
    columns = (
        bytes([type_ for type_, _ in data]),
        Strings.of([b"k"] * len(data)),
        Strings.of([one for _, one in data]),
    )
    return Op(Opcode.STREAM_APPEND, 7, len(data), columns)


def test_a_batch_says_what_it_is() -> None:
    batch = MessageBatch("t", messages(b"a", b"b", after=9, until=20, ended=False))
    assert (len(batch), batch.last_seq, batch.end_of_snapshot) == (2, 9, False)
    assert repr(batch) == "<MessageBatch of 2 up to seq 9>"
    assert repr(MessageBatch("t", messages(b"a"))) == (
        "<MessageBatch of 1 up to seq 6, end of snapshot>"
    )
    assert MessageBatch("t", messages(b"a"), ReadBy("s", 2)).read_by == ("s", 2)


@pytest.mark.parametrize(
    "found",
    [
        *([b"a", b"b"], ["a", "ü"], [None, None], [1, -5], [True, 0.5, None, b"x", "y"], ["one"]),
        [bytes([number]) * 3 for number in range(200)],
        [b"%d" % number for number in range(200)],
        [f"{number:03}" for number in range(131)],
    ],
)
def test_values_come_back_as_they_were(found: list[values.Value]) -> None:
    batch = batch_of(typed(*found))
    assert batch.values == found
    assert [type(one) for one in batch.values] == [type(one) for one in found]
    assert [one.value for one in batch] == found
    assert [batch.messages[place].value for place in range(len(found))] == found


def test_keys_that_are_no_text_are_escaped() -> None:
    batch = batch_of(appended(b"a", b"b", key=b"\xff"))
    assert batch.keys == ["\udcff", "\udcff"]
    assert batch.messages[0].key == "\udcff"


def test_a_look_at_the_first_message_tells_that_there_are_no_rows() -> None:
    batch = batch_of(typed(b"a", 5), typed(b"b"))
    broken = MessageBatch("t", replace(batch.found, rows=7))
    assert not batch.lacks_columns
    assert not broken.lacks_columns  # nothing was decoded for it
    with pytest.raises(RemoteProtocolError):
        _ = broken.columns


def test_messages_that_came_one_by_one_are_one_run() -> None:
    found = [typed(one) for one in (b"a", "b", None, 5)]
    many, large = appended(b"x", b"y"), appended(bytes(5000))
    batch = batch_of(
        *found,
        many,
        typed(b"c"),
        large,
        moved((30, ops.TOMBSTONE, b"k", b"")),
        typed(b"d"),
        firsts=(1, 2, 5, 6, 7, 9, 10, 0, 31),
        walls=(NOW_US, NOW_US + 1_000_000, *[NOW_US] * 7),
    )
    assert [list(part.seqs) for part in batch.columns] == [
        [1, 2, 5, 6],
        [7, 8],
        [9],
        [10],
        [30],
        [31],
    ]
    values_found = [b"a", "b", None, 5, b"x", b"y", b"c", bytes(5000), None, b"d"]
    assert batch.values == values_found
    assert batch.times == [NOW, NOW + SECOND, *[NOW] * 8]
    assert [one.key for one in batch] == ["k"] * 10
    assert list(batch) == [batch.messages[place] for place in range(10)]


def test_messages_are_a_sequence() -> None:
    batch = batch_of(
        appended(b"a", b"b"), moved((7, ops.TOMBSTONE, b"k", b"")), appended(b"c"), firsts=(1, 0, 9)
    )
    found = batch.messages
    listed = list(found)
    assert len(found) == 4
    assert [found[place] for place in range(4)] == listed
    assert [found[place] for place in range(-4, 0)] == listed
    assert found[1:3] == listed[1:3]
    assert found[::-1] == listed[::-1]
    assert found == listed
    assert found != 5
    assert found != listed[:1]
    assert repr(found) == "<MessageSequence of 4>"
    for place in (4, -5):
        with pytest.raises(IndexError):
            found[place]


def test_a_batch_is_an_arrow_table() -> None:
    table = batch_of(appended(b"a", b"b"), firsts=(3,)).to_arrow()
    assert table.column_names == ["seq", "ts", "key", "type", "value"]
    assert table["seq"].to_pylist() == [3, 4]
    assert table["value"].to_pylist() == [b"a", b"b"]


# -- what is no batch -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "found",
    [
        replace(messages(b"a"), ops=Strings.of([b"no op"])),
        replace(messages(b"a"), ops=Strings.of([ops.encode(appended(b"a"))[0] + bytes(8)])),
        replace(messages(b"a"), first_seqs=[1, 2]),
        replace(messages(b"a"), ops=Strings.of([ops.encode(appended(b"a"))[0][:-8]])),
        replace(messages(b"a"), ops=Strings.of([b"\x30" + bytes(47)])),
        replace(messages(b"a"), rows=2),
        replace(
            messages(b"a"), ops=encoded(Op(Opcode.UNSUBSCRIBE, 7, 1, (Strings.of([b"name"]),)))
        ),
    ],
)
def test_what_are_no_messages_is_the_peers_mistake(found: Messages) -> None:
    with pytest.raises(RemoteProtocolError) as error:
        MessageBatch("t", found).columns  # noqa: B018
    assert error.value.code is Code.BAD_BATCH
