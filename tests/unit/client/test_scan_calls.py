"""Scans: which pieces are asked for, and what is left out."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from fjord.client import history
from fjord.client.history import ScanWalk, scan_of
from fjord.columns import Strings
from fjord.commands import Reply, Scan, Scanned
from tests.unit.client.scripted import NOW_US
from tests.unit.client.stream_samples import appended, encoded

FIRST = Scan(table="t", start_seq=5, end_seq=0)


def piece(*values: bytes, first: int = 5, next_seq: int = 9, end_seq: int = 9) -> Scanned:
    count = 1 if values else 0
    return Scanned(
        first_seqs=array("Q", [first] * count),
        walls_us=array("Q", [NOW_US] * count),
        last_seqs=array("Q", [first + len(values) - 1] * count),
        ops=encoded(appended(*values)) if values else Strings.of([]),
        next_seq=next_seq,
        end_seq=end_seq,
    )


def walked(walk: ScanWalk[Any], *replies: Reply) -> tuple[list[Any], list[Any]]:
    """Returns what was sent, and the pieces."""
    sent, found = [], []
    for reply in replies:
        call = walk.next_call()
        assert call is not None
        sent.append(call.command)
        found.append(call.result(reply))
    assert walk.next_call() is None
    return sent, found


def stream_of(found: Scanned, **options: Any) -> bytes:
    from fjord.blocks import rows

    return rows.to_ipc(found, 0, found.end_seq, **options)


def test_the_end_is_fixed_by_the_first_piece() -> None:
    pieces = [piece(b"a", next_seq=7, end_seq=20), piece(b"b", next_seq=20, end_seq=20)]
    sent, found = walked(history.stored(FIRST), *pieces)
    assert sent == [FIRST, Scan(table="t", start_seq=7, end_seq=20)]
    assert found == pieces


@pytest.mark.parametrize("kind", ["APPENDED", 250])
def test_there_must_be_such_ops(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"there are no ops .* STREAM_APPEND"):
        scan_of("t", 5, 9, ops=[kind], key_prefix="")
