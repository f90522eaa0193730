"""Bulk writes: batches, bad rows, and lines of files."""

from __future__ import annotations

import io
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.client import bulk
from fjord.client.bulk import BulkWriter
from fjord.errors import Code, RefusedError


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))))
def test_all_lines_come_in_order(wanted: list[bytes]) -> None:
    data = b"".join(line + b"\n" for line in wanted)
    come = [line for some in bulk.lines_of(io.BytesIO(data)) for line in some]
    assert come == wanted


def test_lines_come_without_waiting_for_others() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as file:
        come = bulk.lines_of(file)
        os.write(writing, b"a\nb\nc")
        assert next(come) == [b"a", b"b"]
        os.write(writing, b"d\n")
        assert next(come) == [b"cd"]
        os.close(writing)
        assert list(come) == []


def test_a_line_that_is_too_long_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "LINE_BYTES_MAX", 20)
    monkeypatch.setattr(bulk, "READ_BYTES", 8)
    kept: list[bytes] = []
    bad: dict[int, str] = {}
    writer = BulkWriter(kept.extend, bad.__setitem__, rows_max=9)
    file = io.BytesIO(b"a\n" + b"x" * 90 + b"\nb\n" + b"y" * 25)
    bulk.write_lines(file, bytes, writer, lambda done: None)
    assert bad == dict.fromkeys([2, 4], "it has more than 20 bytes")
    assert kept == [b"a", b"b"]


def written(
    write: Callable[[list[int]], object], rows: list[int]
) -> tuple[list[int], BulkWriter[int]]:
    bad: list[int] = []
    writer = BulkWriter(write, lambda number, _: bad.append(number), rows_max=len(rows) or 1)
    for number, row in enumerate(rows, start=1):
        assert writer.add(number, row, 1) == (number == len(rows))
    writer.flush()
    return bad, writer


def test_rows_that_are_refused_are_found_and_all_others_kept_in_order() -> None:
    kept: list[int] = []

    def write(rows: list[int]) -> None:
        if any(row % 7 == 3 for row in rows):
            raise RefusedError(Code.BAD_VALUE, "three")
        kept.extend(rows)

    bad, writer = written(write, list(range(20)))
    assert (bad, writer.bad, writer.written) == ([4, 11, 18], 3, 17)
    assert kept == [number for number in range(20) if number % 7 != 3]


def test_what_is_not_for_the_sake_of_a_row_ends_it() -> None:
    def write(rows: list[int]) -> None:
        raise RefusedError(Code.WRONG_KIND, "no")

    with pytest.raises(RefusedError, match="WRONG_KIND"):
        written(write, [1, 2])
    assert written(write, [])[0] == []
