"""docs/spool.md: its example is what the code writes."""

from __future__ import annotations

import re
from pathlib import Path

from fjord.client.spool import files
from fjord.client.spool.records import HEAD, RecordKind

PAGE = Path(__file__).parents[4] / "docs" / "spool.md"


def example() -> tuple[str, str, bytes]:
    """Returns the header, the line and the bytes of the record that the page shows."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    ((header, line),) = [block.splitlines() for block in blocks if block.startswith("#fjord-spool")]
    (shown,) = [block for block in blocks if block.startswith("01   ")]
    digits = [
        re.match(r"(?:[0-9a-f]{2} )*[0-9a-f]{2}(?= {2,}|$)", row) for row in shown.splitlines()
    ]
    record = bytes.fromhex(" ".join(found[0] for found in digits if found))
    return header, line, record


def test_the_header_of_the_example_is_one() -> None:
    header, _, _ = example()
    found = files.decode_header(header.encode().ljust(files.HEADER_BYTES - 1) + b"\n")
    assert found == files.Header(
        bytes(range(16)), 1_700_000_000_000_000, bytes.fromhex("9b1c2f6a77e04d11")
    )


def test_the_line_of_the_example_is_its_record() -> None:
    _, line, record = example()
    assert files.line_of(record) == line.encode() + b"\n"
    kind, *_, stamp_us, due, expires_us = HEAD.unpack_from(record)
    assert (kind, due - stamp_us, expires_us) == (RecordKind.PUSH, 5_000_000, 0)
    assert record[HEAD.size :] == b"pages" + b"http://example.com/a" + b"v7"
