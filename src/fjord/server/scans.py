"""SCAN and SPAN: what is answered from the journal alone, on the thread for scans.

A SCAN returns ops as they are stored, or rows of history as Arrow.
"""

from __future__ import annotations

from typing import Protocol

from fjord.commands import Refusal, Reply, Scan, Scanned, ScannedArrow, Span
from fjord.errors import Code, RefusedError


class Source(Protocol):
    """Whoever has history: the engine."""

    def scan(self, command: Scan | Span) -> Reply: ...


def scan(source: Source, command: Scan | Span) -> Reply:
    """Answers both; what is asked for as Arrow is turned into it here, not on the loop."""
    reply = source.scan(command)
    if isinstance(command, Span) or not command.arrow or not isinstance(reply, Scanned):
        return reply
    try:
        from fjord.blocks import rows  # noqa: PLC0415 - a large library, which few servers need
    except ModuleNotFoundError as error:
        return Refusal(code=Code.FAILED, text=f"this server has no Arrow: {error.name} is missing")
    try:
        stream = rows.to_ipc(
            reply,
            command.start_seq,
            reply.end_seq,
            columns=command.columns,
            key_prefix=command.key_prefix,
        )
    except RefusedError as error:
        return Refusal(code=error.code, text=error.text)
    return ScannedArrow(stream=stream, next_seq=reply.next_seq, end_seq=reply.end_seq)
