"""Scans: the durable ops of a table, in order, as they are stored or as Arrow tables.

A scan is pure, as `pages` is: it says which call to run next.  Each piece says where the next one
begins, and where all of it ends, which is fixed by the first piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from fjord.client import arrow
from fjord.client.calls import Call, expect, not_a
from fjord.client.entries import Key, encode_key
from fjord.commands import Reply, Scan, Scanned, ScannedArrow
from fjord.ops import Opcode

Piece = TypeVar("Piece")
#: Kinds of ops, or their names, such as "STREAM_APPEND".
Kinds = Iterable[Opcode | str]


class ScanWalk(Generic[Piece]):
    """Asks for one piece after the other."""

    def __init__(
        self, command: Scan, read: Callable[[Scan, Scanned | ScannedArrow], Piece]
    ) -> None:
        self._next: Scan | None = command
        self._read = read

    def next_call(self) -> Call[Piece] | None:
        """Returns the call for the next piece, None if there is no more."""
        command = self._next
        if command is None:
            return None

        def read(reply: Reply) -> Piece:
            found: Scanned | ScannedArrow
            found = expect(reply, ScannedArrow) if command.arrow else expect(reply, Scanned)
            is_over = found.next_seq >= found.end_seq
            self._next = None
            if not is_over:
                self._next = replace(command, start_seq=found.next_seq, end_seq=found.end_seq)
            return self._read(command, found)

        return Call(command, read)


def scan_of(
    table: str, start_seq: int, end_seq: int, *, ops: Kinds | None, key_prefix: Key
) -> Scan:
    """Returns the command for the first piece."""
    return Scan(
        table=table,
        start_seq=start_seq,
        end_seq=end_seq,
        opcodes=_opcodes(ops),
        key_prefix=encode_key(key_prefix),
    )


def stored(command: Scan) -> ScanWalk[Scanned]:
    """Scans ops as they are stored."""

    def read(command: Scan, found: Scanned | ScannedArrow) -> Scanned:
        assert isinstance(found, Scanned)
        return found

    return ScanWalk(command, read)


def as_arrow(command: Scan, columns: Sequence[str], *, is_remote: bool) -> ScanWalk[Any]:
    """Scans rows as pyarrow tables: a server makes them; those of a directory are made here.

    Raises:
        TypeError: if columns are not a list of names.
    """
    if isinstance(columns, str | bytes):
        raise not_a("columns", "a list of names", columns)
    if is_remote:
        command = replace(command, arrow=True, columns=tuple(columns))

    def read(command: Scan, found: Scanned | ScannedArrow) -> Any:
        return arrow.scanned_table(found, command.start_seq, columns, command.key_prefix)

    return ScanWalk(command, read)


def _opcodes(given: Kinds | None) -> bytes:
    """Returns kinds of ops as a scan has them.

    Raises:
        ValueError: if there is no such kind.
        TypeError: if they are not a list.
    """
    if given is None:
        return b""
    if isinstance(given, str | bytes):
        raise not_a("ops", 'a list such as ["STREAM_APPEND"]', given)
    return bytes([_opcode(one) for one in given])


def _opcode(given: Opcode | str) -> int:
    try:
        return Opcode[given] if isinstance(given, str) else Opcode(given)
    except (KeyError, ValueError):
        names = ", ".join(one.name for one in Opcode)
        raise ValueError(f"there are no ops {given!r}; there are {names}") from None
