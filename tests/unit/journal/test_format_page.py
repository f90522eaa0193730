"""The worked example of docs/journal-format.md is what the code reads and writes."""

from __future__ import annotations

import re
from pathlib import Path

from fjord import ops
from fjord.columns import Strings
from fjord.journal import frame as frames
from fjord.ops import Opcode

PAGE = Path(__file__).parents[3] / "docs" / "journal-format.md"


def example() -> bytes:
    found = re.search(r"```hex\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    lines = [line.split("  ", 1)[1] for line in found[1].splitlines() if line]
    return bytes.fromhex("".join(lines))


def test_the_example_decodes_to_what_the_page_says() -> None:
    data = example()
    header = frames.decode_segment_header(data, "page")
    assert (header.segment, header.first_seq) == (2, 3)
    frame = frames.decode_frame(data, frames.SEGMENT_HEADER_BYTES, header.salt)
    assert frame is not None
    assert (frame.first_seq, frame.rows, frame.durable_seq, frame.length) == (3, 1, 2, 128)
    body = data[128:]
    assert frames.checksum(body) == frame.body_crc
    ((op, place),) = frames.decode_ops(frame, body, 2, 64)
    assert op.opcode is ops.Opcode.KV_INSERT
    assert op.column("key") == Strings.of([b"k"])
    assert op.column("value") == Strings.of([b"v"])
    assert (place.seq, place.segment, place.payload) == (3, 2, 184)
    assert data[184:185] == b"v"


def test_the_example_is_what_the_code_writes() -> None:
    data = example()
    header = frames.decode_segment_header(data, "page")
    frame = frames.decode_frame(data, 64, header.salt)
    assert frame is not None
    ((op, _),) = frames.decode_ops(frame, data[128:], 2, 64)
    assert header.encode() + frame.encode(header.salt) + ops.encode(op)[0] == data


KINDS = {ops.U8: "u8", ops.U64: "u64", ops.STRINGS: "strings", ops.ONCE: "once"}


def test_the_page_has_the_columns_of_every_opcode() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|.*\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    shown = [(int(number), name, columns) for number, name, columns in rows]
    assert shown == [
        (
            opcode,
            opcode.name,
            ", ".join(f"{name} {KINDS[kind]}" for name, kind in opcode.columns) or "none",
        )
        for opcode in Opcode
    ]
