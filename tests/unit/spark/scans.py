"""Scans made by hand, for tests that need no database."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

from fjord import ops
from fjord.columns import Strings
from fjord.commands import Scanned
from fjord.ops import Op, Opcode

TABLE = 7
WALL_US = 1_700_000_000_000_000


def kv_set(*rows: tuple[bytes, int, bytes], expires_at_us: int = 0) -> Op:
    """Returns the op that sets keys to types and values."""
    count = len(rows)
    return Op(
        Opcode.KV_SET,
        TABLE,
        count,
        (
            array("Q", [5]) * count,
            array("Q", [expires_at_us]) * count,
            array("Q", [0]) * count,
            bytes(type_ for _, type_, _ in rows),
            Strings.of([key for key, _, _ in rows]),
            Strings.of([value for _, _, value in rows]),
        ),
    )


def kv_delete(*keys: bytes) -> Op:
    numbers = array("Q", [5]) * len(keys)
    return Op(Opcode.KV_DELETE, TABLE, len(keys), (numbers, numbers, Strings.of(keys)))


def create_table() -> Op:
    return Op(Opcode.CREATE_TABLE, TABLE, 1, (b"\1", Strings.of([b"name"]), Strings.of([b"{}"])))


def piece(found: Sequence[Op], first_seq: int = 1) -> Scanned:
    """Returns the piece of a scan in which each op is a commit of its own, without gaps."""
    edges = list(accumulate([op.rows for op in found], initial=first_seq))
    return Scanned(
        first_seqs=array("Q", edges[:-1]),
        walls_us=array("Q", range(WALL_US, WALL_US + len(found))),
        last_seqs=array("Q", [edge - 1 for edge in edges[1:]]),
        ops=Strings.of([ops.encode(op)[0] for op in found]),
        next_seq=edges[-1],
        end_seq=edges[-1],
    )
