"""Record batches: every column of every op, cut exactly at the ends of a range."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import ops
from fjord.blocks import rows as history
from fjord.columns import Strings
from fjord.commands import Scanned
from fjord.errors import FjordError
from fjord.ops import Opcode
from fjord.values import Type
from tests.unit.blocks import scans
from tests.unit.blocks.scans import row, rows

WALL = datetime.fromtimestamp(scans.WALL_US / 1_000_000, tz=UTC)
MICROSECOND = timedelta(microseconds=1)


SKIPPED = set(Opcode) - history.NAMES.keys() - {history.RESOLVED}


def test_sets_and_deletes_are_whole_rows_in_order() -> None:
    expires_at = WALL + timedelta(days=1)
    piece = scans.piece(
        [
            scans.create_table(),
            scans.kv_set((b"a", Type.BUFFER, b"one"), (b"b", Type.VOID, b"")),
            scans.kv_delete(b"a", b"c"),
            scans.kv_set(
                (b"c", Type.STRING, b"three"), expires_at_us=scans.WALL_US + 86_400_000_000
            ),
        ]
    )
    second, third, fourth = (WALL + number * MICROSECOND for number in (1, 2, 3))
    assert rows(piece) == [
        row(2, ts=second, txn=3, op="SET", key=b"a", type=1, value=b"one"),
        row(3, ts=second, txn=3, op="SET", key=b"b", type=0, value=b""),
        row(4, ts=third, txn=5, op="DELETE", key=b"a"),
        row(5, ts=third, txn=5, op="DELETE", key=b"c"),
        row(6, ts=fourth, txn=6, op="SET", key=b"c", type=2, value=b"three", expires_at=expires_at),
    ]


def test_inserts_are_shown_as_what_they_are_to_users() -> None:
    """That no entry was there before is of no concern to them."""
    insert = scans.op(Opcode.KV_INSERT, 1, {"type": b"\2", "key": [b"k"], "value": [b"text"]})
    assert rows(scans.piece([insert])) == [
        row(1, ts=WALL, txn=1, op="SET", key=b"k", type=2, value=b"text")
    ]


def test_expiries_and_purges_are_told_from_deletions() -> None:
    expire = scans.op(Opcode.KV_EXPIRE, 1, {"expires_at_us": [scans.WALL_US], "key": [b"a"]})
    purge = scans.op(Opcode.KV_PURGE, 1, {"key": [b"b"]})
    assert rows(scans.piece([expire, purge])) == [
        row(1, ts=WALL, txn=1, op="EXPIRE", key=b"a", expires_at=WALL),
        row(2, ts=WALL + MICROSECOND, txn=2, op="PURGE", key=b"b"),
    ]


def test_rows_that_packing_says_again_are_those_that_they_were() -> None:
    move = scans.op(
        Opcode.KV_MOVE,
        3,
        {
            "row": [100, 101, 102],
            "type": bytes([Type.BUFFER, ops.TOMBSTONE, ops.ALIAS]),
            "key": [b"value", b"gone", b"alias"],
            "value": [b"data", b"", b"target"],
        },
    )
    common = {"ts": WALL, "txn": 12, "op": "MOVE"}
    assert rows(scans.piece([move], first_seq=10)) == [
        {**row(10, key=b"value", type=1, value=b"data", **common), "row": 100},
        {**row(11, key=b"gone", **common), "row": 101},
    ]


@pytest.mark.parametrize("opcode", sorted(SKIPPED))
def test_ops_that_are_about_no_value_are_skipped(opcode: Opcode) -> None:
    strings = {name: [b"x"] for name, kind in opcode.columns if kind == ops.STRINGS}
    skipped = scans.op(opcode, 1, strings)
    assert rows(scans.piece([skipped])) == []
    shown = rows(scans.piece([skipped, scans.kv_delete(b"k"), skipped]))
    assert [each["seq"] for each in shown] == [2]


def test_a_move_of_aliases_alone_makes_no_batch() -> None:
    move = scans.op(Opcode.KV_MOVE, 1, {"type": bytes([ops.ALIAS]), "key": [b"k"], "value": [b"t"]})
    assert list(history.record_batches([scans.piece([move])], 1, 10)) == []


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.data())
def test_ranges_that_adjoin_have_every_row_once(counts: list[int], data: st.DataObject) -> None:
    makers = data.draw(
        st.lists(st.booleans(), min_size=len(counts), max_size=len(counts)), label="deletes"
    )
    piece = scans.piece(
        [
            scans.kv_delete(*[b"k"] * count)
            if deletes
            else scans.kv_set(*[(b"k", 1, b"v")] * count)
            for count, deletes in zip(counts, makers, strict=True)
        ]
    )
    middle = data.draw(st.integers(1, piece.end_seq), label="middle")
    halves = rows(*part(piece, 1, middle), start_seq=1, end_seq=middle)
    halves += rows(*part(piece, middle, piece.end_seq), start_seq=middle, end_seq=piece.end_seq)
    assert halves == rows(piece)
    assert [each["seq"] for each in halves] == list(range(1, piece.end_seq))


def part(piece: Scanned, start_seq: int, end_seq: int) -> list[Scanned]:
    """Returns what a scan of this range answers: the ops that have a row in it, whole."""
    kept = [
        number
        for number, (first, last) in enumerate(zip(piece.first_seqs, piece.last_seqs, strict=True))
        if first < end_seq and last >= start_seq
    ]
    return [
        replace(
            piece,
            first_seqs=[piece.first_seqs[number] for number in kept],
            walls_us=[piece.walls_us[number] for number in kept],
            last_seqs=[piece.last_seqs[number] for number in kept],
            ops=Strings.of([piece.ops[number] for number in kept]),
        )
    ]


def test_an_unknown_op_is_refused_with_what_to_do() -> None:
    piece = scans.piece([scans.kv_delete(b"a")])
    data = b"\x7f" + bytes(piece.ops.data)[1:]
    with pytest.raises(FjordError, match=r"\[127\] are unknown .* use the version that wrote"):
        rows(replace(piece, ops=Strings(piece.ops.offsets, data)))
