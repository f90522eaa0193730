"""SCAN as Arrow: converted where it is read."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from fjord.commands import Refusal, Scan, ScannedArrow, Span, Spanned
from fjord.server import committer
from fjord.testing import SimClock
from tests.unit.engine.world import TABLE, open_at, write

ARROW = Scan(table=TABLE, start_seq=1, end_seq=0, arrow=True, columns=["key", "value"])


def scan(path: Path, command: Scan | Span) -> object:
    clock = SimClock()
    engine = open_at(path, clock)
    write(engine, clock, {b"key": b"value"})
    reply = committer.scan(engine, command)
    engine.close()
    return reply


def test_a_span_is_answered_beside_scans(tmp_path: Path) -> None:
    reply = scan(tmp_path, Span(table=TABLE, after=0))
    assert isinstance(reply, Spanned)
    assert reply.rows == 1


def test_rows_are_given_as_arrow(tmp_path: Path) -> None:
    reply = scan(tmp_path, ARROW)
    assert isinstance(reply, ScannedArrow)
    table = pa.ipc.open_stream(reply.stream).read_all()
    assert table.column_names == ["key", "value"]
    assert table.column("key").to_pylist() == [b"key"]
    assert reply.next_seq > reply.end_seq - 1


def test_a_server_without_the_library_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fjord.blocks

    monkeypatch.delattr(fjord.blocks, "rows", raising=False)
    monkeypatch.delitem(sys.modules, "fjord.blocks.rows", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    reply = scan(tmp_path, ARROW)
    assert isinstance(reply, Refusal)
    assert "pyarrow is missing" in reply.text
