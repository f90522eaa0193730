"""Streams as rows: their ops in a history, pieces as Arrow IPC, messages of a reader."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import ops
from fjord.blocks import rows
from fjord.columns import Strings
from fjord.commands import Messages
from fjord.errors import Code, FjordError, RefusedError
from fjord.ops import Op, Opcode
from tests.unit.blocks import scans, sealed
from tests.unit.blocks.scans import row

WALL = datetime.fromtimestamp(scans.WALL_US / 1_000_000, tz=UTC)
MICROSECOND = timedelta(microseconds=1)


@pytest.mark.req("JQ-17")
def test_streams_have_rows_for_what_users_did() -> None:
    put: dict[str, Any] = {"type": b"\2", "key": [b"k"], "value": [b"text"]}
    piece = scans.piece(
        [
            sealed.append([b"one", b"two"], keys=[b"", b"a"]),
            scans.op(Opcode.STREAM_PUT, 1, put),
            scans.op(Opcode.STREAM_ERASE, 1, {"key": [b"k"]}),
            scans.op(Opcode.STREAM_PUT_AT, 1, {**put, "timestamp_us": [1]}),
        ]
    )
    assert scans.rows(piece) == [
        row(1, ts=WALL, txn=2, op="APPEND", key=b"", type=1, value=b"one"),
        row(2, ts=WALL, txn=2, op="APPEND", key=b"a", type=1, value=b"two"),
        row(3, ts=WALL + MICROSECOND, txn=3, op="SET", key=b"k", type=2, value=b"text"),
        row(4, ts=WALL + 2 * MICROSECOND, txn=4, op="DELETE", key=b"k"),
        row(5, ts=WALL + 3 * MICROSECOND, txn=5, op="SET", key=b"k", type=2, value=b"text"),
    ]


def test_messages_that_packing_says_again_are_those_that_they_were() -> None:
    move = scans.op(
        Opcode.STREAM_MOVE,
        2,
        {
            "row": [100, 101],
            "type": bytes([1, ops.TOMBSTONE]),
            "key": [b"k", b"gone"],
            "value": [b"v", b""],
        },
    )
    common = {"ts": WALL, "txn": 11, "op": "MOVE"}
    assert scans.rows(scans.piece([move], first_seq=10)) == [
        {**row(10, key=b"k", type=1, value=b"v", **common), "row": 100},
        {**row(11, key=b"gone", **common), "row": 101},
    ]


# -- pieces as IPC --------------------------------------------------------------------------------


def read_ipc(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def test_a_piece_is_a_stream_of_rows() -> None:
    piece = scans.piece([sealed.append([b"a", b"b", b"c"]), scans.kv_delete(b"k")])
    found = read_ipc(rows.to_ipc(piece, 2, 4))
    assert found.schema == rows.SCHEMA
    assert found.to_pylist() == scans.rows(piece, start_seq=2, end_seq=4)
    assert found["seq"].to_pylist() == [2, 3]


def test_only_keys_with_the_prefix_come() -> None:
    keys = [b"user:1", b"user", b"", b"user:2", b"\xffuser:"]
    add = {"key": [b"user:9", b"x"], "domain": [b"", b""], "value": [b"", b""]}
    done = scans.op(Opcode.JOB_DONE, 1, {})
    piece = scans.piece(
        [sealed.append([b"v"] * 5, keys=keys), scans.op(Opcode.JOB_ADD, 2, add), done]
    )
    for columns in ((), ("seq", "key"), ("seq",)):
        found = read_ipc(rows.to_ipc(piece, 1, 100, columns=columns, key_prefix=b"user:"))
        assert found["seq"].to_pylist() == [1, 4, 6]
    found = read_ipc(rows.to_ipc(piece, 1, 100, key_prefix=b"\xff"))
    assert found["key"].to_pylist() == [b"\xffuser:"]
    assert read_ipc(rows.to_ipc(piece, 1, 100, key_prefix=b"none")).num_rows == 0


def test_a_column_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RefusedError, match="no column 'kee'; there are seq, ts") as found:
        rows.to_ipc(scans.piece([]), 1, 2, columns=["kee"])
    assert found.value.code == Code.BAD_NAME


# -- messages -------------------------------------------------------------------------------------


def messages_of(*found: Op, first_seq: int = 1) -> Messages:
    piece = scans.piece(found, first_seq)
    return Messages(
        first_seqs=piece.first_seqs,
        walls_us=piece.walls_us,
        ops=piece.ops,
        after=0,
        until=0,
        ended=True,
        rows=sum(op.rows for op in found),
    )


def move(*found: tuple[int, int, bytes, bytes]) -> Op:
    """Returns messages of seq, type, key and value."""
    columns: dict[str, Any] = {
        "row": [seq for seq, _, _, _ in found],
        "at_us": [scans.WALL_US + seq for seq, _, _, _ in found],
        "type": bytes(type_ for _, type_, _, _ in found),
        "key": [key for _, _, key, _ in found],
        "value": [value for _, _, _, value in found],
    }
    return scans.op(Opcode.STREAM_MOVE, len(found), columns)


def test_messages_are_a_table() -> None:
    appends = [sealed.append([b"a", b"b"], keys=[b"k", b""]), sealed.append([b"c"])]
    found = rows.messages_to_arrow(messages_of(*appends, first_seq=5))
    found.validate(full=True)
    assert found.schema == rows.MESSAGE_SCHEMA
    assert found.to_pylist() == [
        {"seq": 5, "ts": WALL, "key": b"k", "type": 1, "value": b"a"},
        {"seq": 6, "ts": WALL, "key": b"", "type": 1, "value": b"b"},
        {"seq": 7, "ts": WALL + MICROSECOND, "key": b"", "type": 1, "value": b"c"},
    ]


def test_messages_out_of_blocks_have_their_own_seqs_and_moments() -> None:
    found = rows.messages_to_arrow(
        messages_of(move((5, 1, b"k", b"v"), (9, ops.TOMBSTONE, b"k", b"")))
    )
    assert found.to_pylist() == [
        {"seq": 5, "ts": WALL + 5 * MICROSECOND, "key": b"k", "type": 1, "value": b"v"},
        {"seq": 9, "ts": WALL + 9 * MICROSECOND, "key": b"k", "type": None, "value": None},
    ]


@given(st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=9), max_size=9))
def test_any_messages_come_as_they_are(found: list[list[bytes]]) -> None:
    table = rows.messages_to_arrow(messages_of(*map(sealed.append, found)))
    assert table["value"].to_pylist() == [value for values in found for value in values]
    assert table["seq"].to_pylist() == list(range(1, table.num_rows + 1))


def test_other_ops_are_no_messages() -> None:
    with pytest.raises(FjordError, match="not ops"):
        rows.messages_to_arrow(messages_of(scans.kv_delete(b"k")))


def test_bytes_that_are_no_ops_are_refused() -> None:
    messages = messages_of(sealed.append([b"value"]))
    data = bytearray(messages.ops.data)
    data[8] = 200  # rows
    messages.ops = Strings(messages.ops.offsets, bytes(data))
    with pytest.raises(FjordError, match="not ops"):
        rows.messages_to_arrow(messages)
