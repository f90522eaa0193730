"""Bodies of replies to the functions of jobs tables, 48 to 63."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from fjord import columns
from fjord.columns import Strings
from fjord.commands import Acted, JobPage, Reply, Taken
from fjord.wire.reply_body import PAGE, ReplyDecoders, ReplyEncoders, check_end, check_rows

TAKEN = struct.Struct(">QQQI4x")  # first xid, until, next at, rows
ACTED = struct.Struct(">16sQII")  # token, how many are missing, how many were dropped
# The columns of one job but for its strings, since a worker often takes but one.
_ONE_JOB = struct.Struct("<QQQQQB7xB7xB7x")


def _encode_taken(reply: Taken) -> bytes:
    rows = len(reply.types)
    numbers: tuple[bytes, ...]
    if rows == 1:
        numbers = (
            _ONE_JOB.pack(
                reply.rows[0],
                reply.process_at_us[0],
                reply.inserted_us[0],
                reply.updated_us[0],
                reply.expires_at_us[0],
                reply.priorities[0],
                reply.timeouts[0],
                reply.types[0],
            ),
        )
    else:
        numbers = _encode_numbers(reply)
    return b"".join(
        (
            TAKEN.pack(reply.first_xid, reply.until_us, reply.next_at_us, rows),
            *numbers,
            reply.keys.encode(),
            reply.domains.encode(),
            reply.values.encode(),
        )
    )


def _encode_numbers(reply: Taken | JobPage) -> tuple[bytes, ...]:
    return (
        *(columns.encode_u64(getattr(reply, name)) for name in reply.NUMBERS),
        columns.encode_u8(reply.priorities),
        columns.encode_u8(reply.timeouts),
        columns.encode_u8(reply.types),
    )


def _decode_taken(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    first_xid, until_us, next_at_us, rows = TAKEN.unpack_from(view)
    if rows == 1:
        return _decode_one(view, first_xid, until_us, next_at_us)
    check_rows(rows)
    columns_ = _Columns(view, TAKEN.size, rows)
    numbers = {name: columns_.numbers("Q") for name in Taken.NUMBERS}
    reply = Taken(
        first_xid=first_xid,
        until_us=until_us,
        next_at_us=next_at_us,
        **numbers,
        priorities=bytes(columns_.numbers("B")),
        timeouts=bytes(columns_.numbers("B")),
        types=bytes(columns_.numbers("B")),
        keys=columns_.strings(),
        domains=columns_.strings(),
        values=columns_.strings(),
    )
    check_end(columns_.position, view)
    return reply


def _decode_one(view: memoryview, first_xid: int, until_us: int, next_at_us: int) -> Taken:
    row, process_at_us, inserted_us, updated_us, expires_at_us, priority, timeouts, type_ = (
        _ONE_JOB.unpack_from(view, TAKEN.size)
    )
    keys, position = columns.decode_strings(view, TAKEN.size + _ONE_JOB.size, 1)
    domains, position = columns.decode_strings(view, position, 1)
    stored, position = columns.decode_strings(view, position, 1)
    check_end(position, view)
    return Taken(
        first_xid=first_xid,
        until_us=until_us,
        next_at_us=next_at_us,
        rows=(row,),
        process_at_us=(process_at_us,),
        inserted_us=(inserted_us,),
        updated_us=(updated_us,),
        expires_at_us=(expires_at_us,),
        priorities=bytes((priority,)),
        timeouts=bytes((timeouts,)),
        types=bytes((type_,)),
        keys=keys,
        domains=domains,
        values=stored,
    )


class _Columns:
    """Columns of a body, read one after the other."""

    __slots__ = ("_rows", "_view", "position")

    def __init__(self, view: memoryview, position: int, rows: int) -> None:
        self._view = view
        self.position = position
        self._rows = rows

    def numbers(self, kind: columns.NumberKind) -> Sequence[int]:
        found, self.position = columns.decode_numbers(self._view, self.position, self._rows, kind)
        return found

    def strings(self) -> Strings:
        found, self.position = columns.decode_strings(self._view, self.position, self._rows)
        return found


def _encode_jobs(reply: JobPage) -> bytes:
    head = PAGE.pack(len(reply.types), len(reply.next_start)) + reply.next_start
    return b"".join(
        (
            head,
            columns.padding(len(head)),
            *_encode_numbers(reply),
            reply.keys.encode(),
            reply.domains.encode(),
            reply.values.encode(),
            reply.reasons.encode(),
        )
    )


def _decode_jobs(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    rows, size = PAGE.unpack_from(view)
    check_rows(rows)
    end = PAGE.size + size
    if end > len(view):
        raise ValueError("where the next page begins is cut short")
    columns_ = _Columns(view, columns.aligned(end), rows)
    numbers = {name: columns_.numbers("Q") for name in JobPage.NUMBERS}
    reply = JobPage(
        **numbers,
        priorities=bytes(columns_.numbers("B")),
        timeouts=bytes(columns_.numbers("B")),
        types=bytes(columns_.numbers("B")),
        keys=columns_.strings(),
        domains=columns_.strings(),
        values=columns_.strings(),
        reasons=columns_.strings(),
        next_start=bytes(view[PAGE.size : end]),
    )
    check_end(columns_.position, view)
    return reply


def _encode_acted(reply: Acted) -> bytes:
    head = ACTED.pack(reply.master, reply.seq, len(reply.missing), len(reply.dropped))
    return head + columns.encode_u64(reply.missing) + columns.encode_u64(reply.dropped)


def _decode_acted(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    master, seq, missing_rows, dropped_rows = ACTED.unpack_from(view)
    check_rows(missing_rows)
    check_rows(dropped_rows)
    missing, position = columns.decode_numbers(view, ACTED.size, missing_rows, "Q")
    dropped, position = columns.decode_numbers(view, position, dropped_rows, "Q")
    check_end(position, view)
    return Acted(master=master, seq=seq, missing=missing, dropped=dropped)


ENCODERS: Final[ReplyEncoders] = {
    Taken: _encode_taken,
    JobPage: _encode_jobs,
    Acted: _encode_acted,
}

DECODERS: Final[ReplyDecoders] = {
    Taken: _decode_taken,
    JobPage: _decode_jobs,
    Acted: _decode_acted,
}
