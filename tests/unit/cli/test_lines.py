"""Lines of a file or of standard input."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.cli import lines
from fjord.cli.lines import Bad, Row
from fjord.errors import Code, RefusedError, UsageError


def test_a_file_has_a_size_and_a_missing_one_is_wrong_use(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"{}\n")
    with lines.opened(str(path)) as (file, size):
        assert (file.read(), size) == (b"{}\n", 3)
    with pytest.raises(UsageError, match="cannot be read"), lines.opened(str(tmp_path)):
        pass


@pytest.mark.parametrize("text", [b'{"a": 1, "b": 2, "a": 1}', b'{"b": {"a": 1, "a": 2}}'])
def test_a_member_that_is_there_twice_is_refused(text: bytes) -> None:
    with pytest.raises(UsageError, match="'a' occurs twice in an object"):
        lines.from_json(text, "it")


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))))
def test_all_lines_come_in_order(wanted: list[bytes]) -> None:
    data = b"".join(line + b"\n" for line in wanted)
    come = [line for some in lines.as_they_come(io.BytesIO(data)) for line in some]
    assert come == wanted


def test_lines_come_without_waiting_for_others() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as file:
        come = lines.as_they_come(file)
        os.write(writing, b"a\nb\nc")
        assert next(come) == [b"a", b"b"]
        os.write(writing, b"d\n")
        assert next(come) == [b"cd"]
        os.close(writing)
        assert list(come) == []


def test_of_a_line_that_is_too_long_there_is_as_much_as_shows_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 20)
    monkeypatch.setattr(lines, "READ_BYTES", 8)
    come = [line for some in lines.as_they_come(io.BytesIO(b"x" * 90 + b"\ny\n")) for line in some]
    assert [len(line) > 20 for line in come] == [True, False]
    assert lines.parse(1, come[0], bytes) == Bad(1, "it has more than 20 bytes")
    assert lines.parse(2, come[1], bytes) == Row(2, b"y")


def test_rows_that_are_refused_are_found_and_all_others_kept_in_order() -> None:
    kept: list[int] = []

    def act(rows: list[Row[int]]) -> None:
        if any(row.what % 7 == 3 for row in rows):
            raise RefusedError(Code.BAD_VALUE, "three")
        kept.extend(row.what for row in rows)

    rows = [Row(number + 1, number) for number in range(20)]
    assert [bad.number for bad in lines.in_halves(rows, act)] == [4, 11, 18]
    assert kept == [number for number in range(20) if number % 7 != 3]


def test_what_is_not_for_the_sake_of_a_row_ends_it() -> None:
    def act(rows: list[Row[int]]) -> None:
        raise RefusedError(Code.WRONG_KIND, "no")

    with pytest.raises(RefusedError, match="WRONG_KIND"):
        list(lines.in_halves([Row(1, 1), Row(2, 2)], act))
    assert list(lines.in_halves([], act)) == []
