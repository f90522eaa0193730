"""docs/kestrel.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from fjord.kestrel import codec, reader
from fjord.kestrel.codec import Dialect, Opcode
from fjord.kestrel.reader import CURRENT, Sum
from tests.unit.kestrel.vectors import VECTORS

PAGE = (Path(__file__).parents[3] / "docs" / "kestrel.md").read_text()


def test_the_example_has_every_op_as_it_is_written() -> None:
    found = re.search(r"```hex\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    shown = dict(line.split(maxsplit=1) for line in found[1].splitlines())
    assert shown.keys() == {opcode.name for opcode in Opcode}
    for name, text in shown.items():
        op, dialect, known = VECTORS[name]
        assert bytes.fromhex(text) == bytes.fromhex(known) == codec.encode(op, dialect)


def test_the_page_has_the_number_of_every_op() -> None:
    rows = re.findall(r"^\| (\d) \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {(int(number), name) for number, name in rows} == {
        (opcode.number, opcode.name) for opcode in Opcode
    }


def test_the_page_names_every_dialect() -> None:
    assert [dialect for dialect in Dialect if f"| `{dialect}` |" not in PAGE] == []


def test_the_page_has_sums_as_they_are_written() -> None:
    found = re.search(r"```sums\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    older = bytes.fromhex(VECTORS["ADDX"][2])
    current = older + bytes.fromhex(VECTORS["REMOVE"][2])
    known = {
        904: Sum(len(older), reader.add_to_crc(0, older)),
        CURRENT: Sum(len(current), reader.add_to_crc(0, current), "2049:1311", 10**9),
    }
    assert found[1].encode() == reader.encode_sums(known)
