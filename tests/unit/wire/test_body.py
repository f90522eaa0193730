"""The head of a body, and what all bodies share."""

from __future__ import annotations

import struct

import pytest

from fjord import columns, limits
from fjord.columns import Strings
from fjord.wire.body import COUNT, U64, Body, encode_head


def head(name: bytes, rows: int, argument: int = 0, *, name_bytes: int | None = None) -> bytes:
    """The head of a body, made without the codec."""
    length = len(name) if name_bytes is None else name_bytes
    fields = struct.pack(">HHIQ", length, 0, rows, argument) + name
    return fields + columns.padding(len(fields))


def test_a_head_is_laid_out_as_the_docstring_says() -> None:
    expected = b"\0\3" + b"\0\0" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\x09" + b"tab" + bytes(5)
    assert encode_head("tab", 2, 9) == expected == head(b"tab", 2, 9)


def test_fields_and_columns_follow_the_head() -> None:
    keys, more = Strings.of([b"a", b"bc"]), Strings.of([b"x"])
    data = b"".join(
        (head(b"t", 2, 7), U64.pack(5), b"\1\2" + bytes(6), keys.encode(), COUNT.pack(1))
    )
    body = Body(data + bytes(more.encode()), 0, 9)
    assert (body.table, body.rows, body.argument, body.timestamp_us) == ("t", 2, 7, 9)
    assert body.field(U64) == (5,)
    assert list(body.numbers("B")) == [1, 2]
    assert body.strings() == keys
    assert body.further_strings() == more
    body.end()
    with pytest.raises(ValueError, match="argument must be 0"):
        body.end_plain()


@pytest.mark.parametrize("rows", [limits.BATCH_ROWS_MAX + 1, 2**31, 2**32 - 1])
def test_too_many_rows_are_refused_by_their_number(rows: int) -> None:
    with pytest.raises(ValueError, match=str(limits.BATCH_ROWS_MAX)):
        Body(head(b"t", rows), 0, 0)
    with pytest.raises(ValueError, match=str(limits.BATCH_ROWS_MAX)):
        Body(head(b"t", 0) + COUNT.pack(rows), 0, 0).further_strings()


@pytest.mark.parametrize("name_bytes", [100, 128, 65535])
def test_a_name_that_ends_outside_the_body_is_refused(name_bytes: int) -> None:
    with pytest.raises(ValueError, match="cut short"):
        Body(head(b"t", 1, name_bytes=name_bytes), 0, 0)


def test_reserved_bytes_are_0() -> None:
    data = bytearray(head(b"t", 1))
    data[3] = 1
    with pytest.raises(ValueError, match="bytes 2 and 3"):
        Body(bytes(data), 0, 0)


def test_a_name_of_other_bytes_than_ascii_is_no_good_name_but_a_body() -> None:
    assert not Body(head("na\u00efve".encode(), 1), 0, 0).table.isascii()


def test_what_does_not_belong_is_refused() -> None:
    with pytest.raises(ValueError, match="rows must be 1"):
        Body(head(b"t", 2), 0, 0).has_rows(1)
    with pytest.raises(ValueError, match="no name"):
        Body(head(b"t", 2), 0, 0).has_no_table()
    for end in (Body.end, Body.end_plain):
        with pytest.raises(ValueError, match="longer than its columns"):
            end(Body(head(b"t", 2) + b"x", 0, 0))
