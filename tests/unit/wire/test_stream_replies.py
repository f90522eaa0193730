"""Bodies of replies to functions 65 to 79, byte by byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.columns import Strings
from fjord.commands import (
    BlockList,
    InBlock,
    Messages,
    Position,
    Replies,
    ScannedArrow,
    Subscribers,
)
from fjord.wire import (
    Function,
    RawReply,
    ReplyDecoder,
    batch,
    encode_reply,
    read_reply,
    reply_bodies,
)
from fjord.wire.layouts import REPLY_BODIES
from tests.unit.wire.samples import LONG
from tests.unit.wire.stream_samples import (
    ARROW,
    LARGEST,
    OPENED,
    blocks,
    messages,
    subscribers,
)
from tests.unit.wire.streams import NOW_US, plain


def strings(*rows: bytes) -> bytes:
    return bytes(Strings.of(rows).encode())


def test_messages_are_ops_with_their_seqs_and_moments() -> None:
    body = reply_bodies.encode_body(messages([b"op" * 8, b"o"], ended=True, rows=500))
    assert body == (
        struct.pack(">QQIII4x", 7, 9, 500, 1, 2)
        + struct.pack("<QQ", 1, 2)
        + struct.pack("<QQ", NOW_US, NOW_US + 1)
        + strings(b"op" * 8, b"o")
    )


def test_messages_are_read_and_handed_on_as_they_came() -> None:
    op = b"m" * 1_000_000
    body = reply_bodies.encode_body(messages([op], rows=10_000))
    found = reply_bodies.decode_body(Function.READ, body)
    assert isinstance(found, Messages)
    assert isinstance(found.ops.data, memoryview)
    assert found.ops.data.obj is body
    assert found.ops[0] == op
    message = encode_reply(Function.READ, 7, 0, found, now_us=NOW_US)
    assert message[21:] == body
    assert struct.unpack_from(">I", message, 17) == (len(body),)


def test_large_replies_one_behind_the_other_do_not_disturb_each_other() -> None:
    sent = [messages([bytes([number]) * 300_000]) for number in range(5)]
    data = b"".join(encode_reply(Function.READ, 7, 0, one, now_us=NOW_US) for one in sent)
    decoder, found = ReplyDecoder(), []
    for at in range(0, len(data), 100_001):
        decoder.feed(data[at : at + 100_001])
        while (raw := decoder.next()) is not None:
            assert isinstance(raw, RawReply)
            found.append(read_reply(Function.READ, raw))
    assert plain(found) == plain(sent)


def test_a_large_answer_of_several_replies_is_read() -> None:
    reply = Replies(replies=[messages([b"m" * 300_000]), LONG, messages([])])
    decoder = ReplyDecoder()
    decoder.feed(encode_reply(Function.AS_OF, 7, 0, reply, now_us=NOW_US))
    raw = decoder.next()
    assert isinstance(raw, RawReply)
    assert plain(read_reply(Function.AS_OF, raw)) == plain(reply)


@given(
    st.lists(st.binary(max_size=90), max_size=9),
    st.integers(0, LARGEST),
    st.integers(0, LARGEST),
    st.booleans(),
    st.integers(0, limits.READ_COUNT_MAX),
)
def test_decode_of_encode_is_the_same_messages(
    ops: list[bytes], after: int, until: int, ended: bool, rows: int
) -> None:
    reply = messages(ops, after=after, until=until, ended=ended, rows=rows)
    found = reply_bodies.decode_body(Function.READ, reply_bodies.encode_body(reply))
    assert plain(found) == plain(reply)


def test_columns_of_different_lengths_are_no_messages() -> None:
    for options in ({"first_seqs": [1]}, {"walls_us": [1, 2, 3]}):
        reply = messages([b"a", b"b"])
        for name, value in options.items():
            setattr(reply, name, value)
        with pytest.raises(ValueError, match="differ in number"):
            reply_bodies.encode_body(reply)


def test_a_position_is_a_mark_and_its_epoch() -> None:
    reply = Position(seq=5, epoch=2, asleep=True, created=False)
    body = struct.pack(">QQII", 5, 2, 1, 0)
    assert reply_bodies.encode_body(reply) == body
    assert reply_bodies.decode_body(Function.SEEK, body) == reply


@pytest.mark.parametrize(
    ("function", "body"),
    [
        (Function.SEEK, struct.pack(">QQII", 5, 2, 2, 0)),
        (Function.SEEK, struct.pack(">QQII", 5, 2, 0, 2**32 - 1)),
        (Function.READ, struct.pack(">QQIII4x", 7, 9, 0, 2, 0) + bytes(8)),
    ],
)
def test_what_is_neither_so_nor_not_is_refused(function: Function, body: bytes) -> None:
    with pytest.raises(ValueError, match="0 or 1"):
        reply_bodies.decode_body(function, body)


def test_subscribers_begin_with_where_the_next_page_does() -> None:
    body = reply_bodies.encode_body(subscribers([b"a", b"bc"], "next one"))
    assert body == (
        struct.pack(">II", 2, 8) + b"next one"
        + struct.pack("<6Q", 1000, 1001, 2000, 2001, 3000, 3001)
        + b"\0\1" + bytes(6)
        + strings(b"a", b"bc")
    )  # fmt: skip


@given(
    st.lists(st.binary(max_size=20), max_size=20),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=40),
)
def test_decode_of_encode_is_the_same_list(names: list[bytes], text: str) -> None:
    for function, reply in (
        (Function.SUBSCRIBERS, subscribers(names, text)),
        (Function.BLOCKS, blocks(names, text, 7)),
    ):
        found = reply_bodies.decode_body(function, reply_bodies.encode_body(reply))
        assert plain(found) == plain(reply)


def test_a_snapshot_is_a_seq_and_two_moments() -> None:
    assert reply_bodies.encode_body(OPENED) == struct.pack(">QQQ", 5, NOW_US, LARGEST)


def test_blocks_are_columns_behind_their_location() -> None:
    body = reply_bodies.encode_body(blocks([b"name"], "file:///c", 9))
    numbers = struct.pack("<7Q", *range(1000, 8000, 1000))
    head = struct.pack(">QII", 9, 1, 9) + b"file:///c" + bytes(7)
    assert body == head + numbers + strings(b"name")
    found = reply_bodies.decode_body(Function.BLOCKS, body)
    assert isinstance(found, BlockList)
    for position, name in enumerate(BlockList.NUMBERS, start=1):
        assert list(getattr(found, name)) == [1000 * position]


@pytest.mark.parametrize(
    ("function", "head"),
    [
        (Function.READ, struct.pack(">QQII", 0, 0, 0, 0)),
        (Function.READ, bytes(16)),
        (Function.SUBSCRIBERS, b""),
        (Function.BLOCKS, bytes(8)),
    ],
)
def test_rows_beyond_all_bounds_are_refused_by_their_number(
    function: Function, head: bytes
) -> None:
    for rows in (limits.BATCH_ROWS_MAX + 1, 2**32 - 1):
        with pytest.raises(ValueError, match=str(limits.BATCH_ROWS_MAX)):
            reply_bodies.decode_body(function, head + struct.pack(">II", rows, 0) + bytes(64))


@pytest.mark.parametrize(
    ("function", "body", "text"),
    [
        (Function.SUBSCRIBERS, struct.pack(">II", 0, 2**32 - 1), "the next name is cut short"),
        (Function.BLOCKS, struct.pack(">QII", 0, 0, 2**32 - 1), "the location is cut short"),
    ],
)
def test_a_text_outside_the_body_is_refused(function: Function, body: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        reply_bodies.decode_body(function, body + bytes(64))


def test_bytes_that_are_no_text_do_no_harm() -> None:
    body = struct.pack(">II", 0, 1) + b"\xff" + bytes(7) + bytes(8)
    found = reply_bodies.decode_body(Function.SUBSCRIBERS, body)
    assert isinstance(found, Subscribers)
    assert found.next_name == "\ufffd"


# -- a piece of history as an Arrow stream --------------------------------------------------------


def test_a_piece_of_history_says_its_form() -> None:
    body = reply_bodies.encode_body(ScannedArrow(stream=b"stream", next_seq=5, end_seq=9))
    assert body == struct.pack(">QQII", 5, 9, 6, 1) + b"stream" + bytes(2)
    assert not reply_bodies.is_arrow(struct.pack(">QQII", 5, 9, 1, 0), 0)
    assert reply_bodies.is_arrow(b"before" + body, 6)


@pytest.mark.parametrize("reply", ARROW)
def test_an_arrow_stream_is_told_from_ops(reply: ScannedArrow) -> None:
    found = reply_bodies.decode_body(Function.SCAN, reply_bodies.encode_body(reply))
    assert found == reply


@pytest.mark.parametrize("form", [2, 2**32 - 1])
def test_a_form_that_is_none_is_refused(form: int) -> None:
    with pytest.raises(ValueError, match=f"form {form}"):
        reply_bodies.decode_body(Function.SCAN, struct.pack(">QQII", 1, 1, 0, form) + bytes(8))


def test_a_stream_outside_the_body_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than its columns"):
        reply_bodies.decode_body(Function.SCAN, struct.pack(">QQII", 1, 1, 2**32 - 1, 1))


# -- what never travels ---------------------------------------------------------------------------


def test_where_a_block_is_stays_inside_of_a_node() -> None:
    reply = InBlock(table=1, first=1, last=9, name="n", after=0, until=9, crc=1)
    assert InBlock not in REPLY_BODIES
    assert InBlock not in batch.KINDS
    assert InBlock not in reply_bodies.DECODERS
    with pytest.raises(KeyError):
        encode_reply(Function.READ, 7, 0, reply, now_us=NOW_US)
