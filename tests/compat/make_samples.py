"""Makes the frozen samples of the journal's format: python -m tests.compat.make_samples

A sample that was released is never made again; a new opcode or version gets a sample of its own.
`journal-v1/` is a journal of two segments in which every opcode stands once with one row and once
with three.  `journal-v1.json` is what it says.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from fjord import ops
from fjord.columns import Strings
from fjord.disk import LocalDisk
from fjord.journal.frame import SegmentHeader
from fjord.journal.reader import Journal
from fjord.journal.writer import Claim, Commit, Writer
from fjord.ops import Op, Opcode

FOLDER = Path(__file__).parent
SAMPLE = FOLDER / "journal-v1"
EXPECTED = FOLDER / "journal-v1.json"
WALL_US = 1_700_000_000_000_000
ROW_COUNTS = (1, 3)


def main() -> None:
    if SAMPLE.exists():
        shutil.rmtree(SAMPLE)
    write(SAMPLE)
    EXPECTED.write_text(json.dumps(said(SAMPLE), indent=1) + "\n")
    size = sum(path.stat().st_size for path in SAMPLE.iterdir())
    print(f"{SAMPLE.name}: {size} bytes")


def write(directory: Path) -> None:
    """Writes the sample journal: half of the opcodes in each of two segments."""
    directory.mkdir()
    header = SegmentHeader(
        segment=1, first_seq=1, shard=bytes(range(16)), created_us=WALL_US, lease_us=5
    )
    writer = Writer(LocalDisk(), str(directory), header, segment_bytes=2**16)
    writer.create()
    opcodes = list(Opcode)
    for number, opcode in enumerate(opcodes):
        if number == len(opcodes) // 2:
            writer.rotate(WALL_US + 1000, 500, body_bytes=0, claim=Claim.VITAL)
        for rows in ROW_COUNTS:
            encoded, _ = ops.encode(sample_op(opcode, rows))
            writer.append(Commit(WALL_US + number, 10 + number, [encoded], rows))
            writer.confirm()
        writer.sync()
    end = writer.position
    writer.close()
    # What is allocated behind the last frame is no part of the sample.
    os.truncate(max(directory.iterdir()), end)


def sample_op(opcode: Opcode, rows: int) -> Op:
    """Returns an op whose every number and string tells where it stands."""
    columns = tuple(
        _column(opcode, position, name, kind, rows)
        for position, (name, kind) in enumerate(opcode.columns)
    )
    return Op(opcode, opcode + 1, rows, columns)


def _column(
    opcode: Opcode, position: int, name: str, kind: ops.ColumnKind, rows: int
) -> ops.Column:
    if kind == ops.STRINGS:
        # The second one of three is empty; the third is no text.
        texts = [f"{opcode.name} {name}".encode(), b"", b"\xff\x00" + bytes([position])]
        return Strings.of(texts[:rows])
    if kind == ops.U8:
        return bytes(range(position + 1, position + 1 + rows))
    count = 1 if kind == ops.ONCE else rows
    return [2**40 * opcode + 1000 * position + row for row in range(count)]


def said(directory: Path) -> dict[str, Any]:
    """Returns what a journal says, for JSON: bytes in hex."""
    with closing(Journal(LocalDisk(), str(directory))) as journal:
        return {
            "segments": [
                {
                    "segment": one.segment,
                    "first_seq": one.first_seq,
                    "shard": one.shard.hex(),
                    "created_us": one.created_us,
                    "lease_us": one.lease_us,
                }
                for one in journal.segments
            ],
            "frames": list(_frames(journal)),
        }


def _frames(journal: Journal) -> Iterator[dict[str, Any]]:
    for located in journal.frames(1, durable_seq=0):
        frame = located.frame
        yield {
            "segment": located.segment,
            "offset": located.offset,
            "first_seq": frame.first_seq,
            "rows": frame.rows,
            "wall_us": frame.wall_us,
            "lease_us": frame.lease_us,
            "durable_seq": frame.durable_seq,
            "ops": [_op(op, place.payload) for op, place in located.ops()],
        }


def _op(op: Op, payload: int) -> dict[str, Any]:
    named = zip(op.opcode.columns, op.columns, strict=True)
    return {
        "opcode": int(op.opcode),
        "name": op.opcode.name,
        "table": op.table,
        "rows": op.rows,
        "payload": payload,
        "columns": {name: _shown(column) for (name, _), column in named},
    }


def _shown(column: ops.Column) -> list[Any]:
    return [one.hex() if isinstance(one, bytes) else one for one in column]


if __name__ == "__main__":
    main()
