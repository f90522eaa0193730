"""Lines of a spool file: whatever has happened to one, all others are found."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterator
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.client.spool import files
from fjord.client.spool.files import Fate, Lines, Piece, line_of, parse

OFFSET = 96
RECORDS = [b"first", b"", b"\x00\xff" * 40, b"the last one"]
FILE = b"".join(map(line_of, RECORDS))
ENDS = [len(b"".join(map(line_of, RECORDS[: n + 1]))) for n in range(len(RECORDS))]


def spans(found: Lines) -> list[tuple[int, int]]:
    return list(zip(found.starts, found.ends, strict=True))


def fates(found: Lines) -> list[Fate]:
    return [piece.fate for piece in found.pieces]


def is_whole(line: bytes) -> bool:
    """Says whether a line could be sent, were it not set aside."""
    found = parse(files.WAITING + line[1:], 0, is_closed=True)
    return len(found.records) == 1 and not found.pieces


# -- a file that ends anywhere --------------------------------------------------------------------


@pytest.mark.req("FJ-21")
@pytest.mark.parametrize("size", range(len(FILE) + 1))
def test_half_a_line_is_waited_for(size: int) -> None:
    found = parse(FILE[:size], OFFSET)
    whole = [end for end in ENDS if end <= size]
    assert found.records == RECORDS[: len(whole)]
    assert not found.pieces
    assert found.stop == OFFSET + max(whole, default=0)
    # The rest is found from there.
    rest = parse(FILE[found.stop - OFFSET :], found.stop)
    assert found.records + rest.records == RECORDS
    assert not rest.pieces


@pytest.mark.parametrize("size", range(1, len(line_of(RECORDS[2]))))
def test_a_torn_line_does_not_hide_the_next_one(size: int) -> None:
    torn, following = line_of(RECORDS[2])[:size], line_of(b"following")
    for blank in (b"", b" ", b"\0" * 3, b"\n"):
        found = parse(torn + blank + following, OFFSET)
        if size == len(line_of(RECORDS[2])) - 1 and blank == b"\n":
            assert found.records == [RECORDS[2], b"following"]  # only its end was missing
            continue
        assert found.records == [b"following"]
        # With a newline behind it, it looks like a line of a wrong length.
        fate = Fate.DAMAGED if blank == b"\n" and size >= files.HEAD_BYTES else Fate.TORN
        assert fates(found) == [fate]
        assert found.pieces[0].start == OFFSET
        assert found.stop == OFFSET + len(torn + blank + following)


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_is_taken_for_a_record(bit: int) -> None:
    before, line, after = line_of(b"before"), line_of(b"the damaged one"), line_of(b"after")
    for at in range(len(line)):
        broken = bytearray(line)
        broken[at] ^= 1 << bit
        data = before + broken + after
        found = parse(data, OFFSET)
        assert b"the damaged one" not in found.records, at
        # Without its newline a line ends where the next one begins, so that one is whole, too.
        assert found.records == [b"before", b"after"], at
        assert found.pieces[0].fate is not Fate.ASIDE, at
        assert found.stop == OFFSET + len(data)
        check_inside(found, OFFSET + len(before), OFFSET + len(before) + len(line))


def check_inside(found: Lines, start: int, end: int) -> None:
    """Checks that pieces are in order, apart, and between two offsets."""
    places = [place for piece in found.pieces for place in (piece.start, piece.end)]
    assert places == sorted(places)
    assert len(set(places[::2])) == len(found.pieces)
    assert all(start <= place <= end for place in places)


def test_a_wrong_length_is_damage() -> None:
    text = b2a_base64(b"hello")
    for length in (0, 7, 9, 2**32 - 1):
        line = b"@%08x%08x%b" % (length, crc32(text), text)
        found = parse(line + line_of(b"next"), 0)
        assert found.records == [b"next"]
        assert found.pieces == [Piece(0, len(line), Fate.DAMAGED)]


def test_what_is_no_base64_is_damage() -> None:
    text = b"abcde\n"  # one letter too many for any record
    line = b"@%08x%08x%b" % (5, crc32(text), text)
    found = parse(line, 0)
    assert found.pieces == [Piece(0, len(line), Fate.DAMAGED)]
    assert not found.records


def test_a_refused_line_behind_a_torn_one_is_a_piece_of_its_own() -> None:
    # Else nobody could tell later that it is whole.
    aside = files.ASIDE + line_of(b"refused")[1:]
    torn = files.ASIDE + line_of(b"torn")[1:-3]
    found = parse(torn + aside + aside, 0)
    assert fates(found) == 3 * [Fate.ASIDE]
    start, end = found.pieces[1].start, found.pieces[1].end
    assert is_whole((torn + aside)[start : end + 1])


# -- all sorts of files ---------------------------------------------------------------------------

RECORD = st.binary(max_size=60)
GARBAGE = st.binary(min_size=1, max_size=40).map(
    # What begins a line must be told from a line; that is another kind of piece.
    lambda data: data.replace(b"@", b"#").replace(b"!", b"#")
)


@st.composite
def parts(draw: st.DrawFn) -> tuple[str, bytes, bytes]:
    kind = draw(st.sampled_from(["good", "torn", "garbage", "erased", "aside"]))
    record = draw(RECORD)
    line = line_of(record)
    if kind == "torn":
        return kind, line[: draw(st.integers(1, len(line) - 1))], record
    if kind == "garbage":
        return kind, draw(GARBAGE), record
    if kind == "erased":
        return kind, draw(st.text(" \n\0", min_size=1, max_size=30)).encode(), record
    return kind, line if kind == "good" else files.ASIDE + line[1:], record


def expected(sequence: list[tuple[str, bytes, bytes]]) -> tuple[bytes, list[bytes]]:
    """Returns a file, and the records that must be found in it."""
    data, records = b"", []
    for kind, part, record in sequence:
        if kind == "good":
            records.append(record)
        elif data and part.startswith(b"\n") and kind in ("erased", "garbage"):
            # A newline behind all of a line but its newline makes it whole.
            last = data[data.rfind(b"@") :] + b"\n" if b"@" in data else b""
            if last and is_whole(last):
                part = b" " + part
        data += part
    return data, records


@given(st.lists(parts(), max_size=12))
def test_every_good_line_is_found_and_nothing_else(
    sequence: list[tuple[str, bytes, bytes]],
) -> None:
    data, records = expected(sequence)
    found = parse(data, OFFSET, is_closed=True)
    assert found.records == records
    assert found.stop == OFFSET + len(data)
    check_covered(data, found)


def check_covered(data: bytes, found: Lines) -> None:
    """Checks that each byte is of a line, of a piece, or blank."""
    places = sorted(spans(found) + [(piece.start, piece.end) for piece in found.pieces])
    at = OFFSET
    for start, end in places:
        assert at <= start < end
        assert not data[at - OFFSET : start - OFFSET].strip(b" \n\0")
        at = end
    assert not data[at - OFFSET :].strip(b" \n\0")


@given(st.lists(parts(), max_size=8), st.lists(st.integers(0, 600), max_size=8))
def test_it_does_not_matter_how_a_file_is_read(
    sequence: list[tuple[str, bytes, bytes]], cuts: list[int]
) -> None:
    data, records = expected(sequence)
    whole = parse(data, 0, is_closed=True)
    found = list(stretches(data, cuts))
    assert [record for part in found for record in part.records] == records == whole.records
    assert [span for part in found for span in spans(part)] == spans(whole)
    assert [piece for part in found for piece in part.pieces] == whole.pieces


def stretches(data: bytes, cuts: list[int]) -> Iterator[Lines]:
    """Yields what is found while a file grows, and at last when nobody writes to it any more."""
    stop = 0
    for cut in sorted(cuts):
        found = parse(data[stop:cut], stop)
        yield found
        assert stop <= found.stop <= max(stop, cut)
        stop = found.stop
    yield parse(data[stop:], stop, is_closed=True)


@given(st.binary(max_size=300))
def test_no_bytes_at_all_are_a_problem(data: bytes) -> None:
    found = parse(data, OFFSET, is_closed=True)
    check_covered(data, found)
    assert [line_of(record) for record in found.records] == [
        data[start - OFFSET : end - OFFSET] for start, end in spans(found)
    ]
