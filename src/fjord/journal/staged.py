"""Messages that were staged: they rest elsewhere than where they got their seqs.

Who walks over the journal meets a STREAM_COMMIT where the messages belong, and what it stands for,
an op STREAM_APPEND of as many rows, in a STAGE that came before.
"""

from __future__ import annotations

from typing import Any, Final

from fjord import ops
from fjord.columns import Buffer
from fjord.errors import CorruptionError
from fjord.journal.reader import Journal
from fjord.ops import Opcode

COMMIT: Final = int(Opcode.STREAM_COMMIT)
# Where in such an op the size of what it stands for is.
_SIZE_AT: Final = ops.HEADER.size + 8 * [name for name, _ in Opcode.STREAM_COMMIT.columns].index(
    "size"
)


def size_of(body: Buffer, position: int) -> int:
    """Returns how many bytes the op has that a STREAM_COMMIT at a position stands for."""
    return int.from_bytes(body[position + _SIZE_AT : position + _SIZE_AT + 8], "little")


def messages_of(journal: Journal, commit: Buffer) -> bytes:
    """Returns the STREAM_APPEND that a STREAM_COMMIT stands for.

    Raises:
        CorruptionError: if it is not there.
        FileNotFoundError: if the segment that had it was packed meanwhile.
    """
    op, _, _ = ops.decode(memoryview(commit), 0)
    columns: Any = op.columns
    (stage,), (segment,), (offset,), (size,), (crc,), _ = columns
    found = journal.stored(segment, offset, size, crc, stage)
    opcode, _, _, table, rows, _ = ops.HEADER.unpack_from(found)
    if (opcode, table, rows) != (Opcode.STREAM_APPEND, op.table, op.rows):
        reason = f"it does not hold the {op.rows} messages that were staged at seq {stage}"
        raise CorruptionError(journal.path(segment), offset, reason)
    return found
