"""Bodies of the functions of jobs tables, 48 to 63."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from fjord import columns, commands
from fjord.columns import Strings, repeat
from fjord.commands import Command
from fjord.wire.body import COUNT, Body, Decoders, Encoded, Encoders, encode_dates, encode_head
from fjord.wire.functions import Flag, Function

NEXT = struct.Struct(">QQ")  # lease, wait
SMALL = struct.Struct(">I4x")  # a priority, or a state
# The columns of one job but for its strings, since many are pushed one at a time.
_ONE_JOB = struct.Struct("<QQB7xB7x")


# -- adding and taking ----------------------------------------------------------------------------


def _encode_push(command: commands.Push) -> Encoded:
    rows = len(command.keys)
    _check_columns(command, rows)
    dates, expiries = command.process_at_us, command.expires_at_us
    numbers: tuple[bytes, ...]
    if rows == 1:
        priority, type_ = command.priorities[0], command.types[0]
        numbers = (_ONE_JOB.pack(dates[0], expiries[0], priority, type_),)
    else:
        numbers = (
            columns.encode_u64(dates),
            columns.encode_u64(expiries),
            columns.encode_u8(command.priorities),
            columns.encode_u8(command.types),
        )
    strings = command.keys.encode(), command.domains.encode(), command.values.encode()
    flags, timestamp_us, stamps = encode_dates(command.timestamps_us)
    if command.relative:
        flags |= Flag.TTL
    body = b"".join((encode_head(command.table, rows), stamps, *numbers, *strings))
    return Function.PUSH_MANY, flags, timestamp_us, body


def _check_columns(command: commands.Push, rows: int) -> None:
    if not (
        rows == len(command.process_at_us) == len(command.expires_at_us)
        and rows == len(command.priorities) == len(command.types) == len(command.timestamps_us)
        and rows == len(command.domains) == len(command.values)
    ):
        raise ValueError("the columns of the jobs differ in number")


def _decode_push(body: Body) -> Command:
    process_at_us: Sequence[int]
    expires_at_us: Sequence[int]
    stamps_us = body.dates()
    if body.rows == 1:
        date, expiry, priority, type_ = body.field(_ONE_JOB)
        process_at_us, expires_at_us = (date,), (expiry,)
        priorities, types = bytes((priority,)), bytes((type_,))
    else:
        process_at_us, expires_at_us = body.numbers("Q"), body.numbers("Q")
        priorities, types = bytes(body.numbers("B")), bytes(body.numbers("B"))
    keys, domains, found = body.strings(), body.strings(), body.strings()
    body.end_plain()
    return commands.Push(
        table=body.table,
        keys=keys,
        domains=domains,
        types=types,
        values=found,
        priorities=priorities,
        process_at_us=process_at_us,
        expires_at_us=expires_at_us,
        timestamps_us=repeat(body.timestamp_us, body.rows) if stamps_us is None else stamps_us,
        relative=bool(body.flags & Flag.TTL),
    )


def _encode_next(command: commands.Next) -> Encoded:
    body = b"".join(
        (
            encode_head(command.table, 1, command.count),
            NEXT.pack(command.lease_us, command.wait_us),
            Strings.of([command.domain]).encode(),
        )
    )
    return Function.NEXT_MANY, Flag.OVERWRITE if command.done else 0, 0, body


def _decode_next(body: Body) -> Command:
    body.has_rows(1)
    lease_us, wait_us = body.field(NEXT)
    domain = body.strings()[0]
    body.end()
    return commands.Next(
        table=body.table,
        count=body.argument,
        domain=domain,
        lease_us=lease_us,
        wait_us=wait_us,
        done=bool(body.flags & Flag.OVERWRITE),
    )


# -- jobs that are taken: by xid ------------------------------------------------------------------


def _encode_numbers(table: str, numbers: Sequence[int], argument: int = 0) -> bytes:
    return encode_head(table, len(numbers), argument) + columns.encode_u64(numbers)


def _encode_finish(command: commands.Finish) -> Encoded:
    body = _encode_numbers(command.table, command.xids, int(command.strict))
    return Function.FINISH, 0, 0, body


def _decode_finish(body: Body) -> Command:
    xids = body.numbers("Q")
    body.end()
    if body.argument > 1:
        raise ValueError("the argument is 0, or 1: all or none")
    return commands.Finish(table=body.table, xids=xids, strict=bool(body.argument))


def _encode_extend(command: commands.Extend) -> Encoded:
    body = _encode_numbers(command.table, command.xids, command.lease_us)
    return Function.EXTEND, 0, 0, body


def _decode_extend(body: Body) -> Command:
    xids = body.numbers("Q")
    body.end()
    return commands.Extend(table=body.table, xids=xids, lease_us=body.argument)


def _encode_fail(command: commands.Fail) -> Encoded:
    flags = Flag.COUNT if command.counts else 0
    flags |= Flag.OVERWRITE if command.buries else 0
    head = encode_head(command.table, len(command.xids), command.delay_us)
    parts = (head, _encode_reason(command.reason), columns.encode_u64(command.xids))
    return Function.FAIL, flags, 0, b"".join(parts)


def _decode_fail(body: Body) -> Command:
    reason = _decode_reason(body)
    xids = body.numbers("Q")
    body.end()
    return commands.Fail(
        table=body.table,
        xids=xids,
        delay_us=body.argument,
        counts=bool(body.flags & Flag.COUNT),
        buries=bool(body.flags & Flag.OVERWRITE),
        reason=reason,
    )


def _encode_reason(reason: bytes) -> bytes:
    return b"".join((COUNT.pack(len(reason)), reason, columns.padding(len(reason))))


def _decode_reason(body: Body) -> bytes:
    (size,) = body.field(COUNT)
    end = body.position + size
    if end > len(body.view):
        raise ValueError("the reason is cut short")
    reason = bytes(body.view[body.position : end])
    body.position = columns.aligned(end)
    return reason


# -- jobs that wait: by key -----------------------------------------------------------------------


def _encode_cancel(command: commands.Cancel) -> Encoded:
    return Function.CANCEL, 0, 0, _encode_keys(command)


def _decode_cancel(body: Body) -> Command:
    return commands.Cancel(table=body.table, keys=_decode_keys(body))


def _encode_find(command: commands.Find) -> Encoded:
    return Function.FIND, 0, 0, _encode_keys(command)


def _decode_find(body: Body) -> Command:
    return commands.Find(table=body.table, keys=_decode_keys(body))


def _encode_keys(command: commands.Cancel | commands.Find) -> bytes:
    return b"".join((encode_head(command.table, len(command.keys)), command.keys.encode()))


def _decode_keys(body: Body) -> Strings:
    keys = body.strings()
    body.end_plain()
    return keys


def _encode_reschedule(command: commands.Reschedule) -> Encoded:
    flags = Flag.TTL if command.relative else 0
    flags |= Flag.OVERWRITE if command.priority is not None else 0
    flags |= Flag.UPDATE_TIMEOUT if command.process_at_us is not None else 0
    head = encode_head(command.table, len(command.keys), command.process_at_us or 0)
    parts = (head, SMALL.pack(command.priority or 0), command.keys.encode())
    return Function.RESCHEDULE, flags, 0, b"".join(parts)


def _decode_reschedule(body: Body) -> Command:
    (priority,) = body.field(SMALL)
    keys = body.strings()
    body.end()
    if body.argument and not body.flags & Flag.UPDATE_TIMEOUT:
        raise ValueError("the argument must be 0 here: set bit 4 to change the date")
    if priority and not body.flags & Flag.OVERWRITE:
        raise ValueError("the priority must be 0 here: set bit 5 to change it")
    return commands.Reschedule(
        table=body.table,
        keys=keys,
        priority=priority if body.flags & Flag.OVERWRITE else None,
        process_at_us=body.argument if body.flags & Flag.UPDATE_TIMEOUT else None,
        relative=bool(body.flags & Flag.TTL),
    )


def _encode_bury(command: commands.Bury) -> Encoded:
    head = encode_head(command.table, len(command.keys))
    parts = (head, _encode_reason(command.reason), command.keys.encode())
    return Function.BURY, 0, 0, b"".join(parts)


def _decode_bury(body: Body) -> Command:
    reason = _decode_reason(body)
    return commands.Bury(table=body.table, keys=_decode_keys(body), reason=reason)


# -- dead jobs: by row ----------------------------------------------------------------------------


def _encode_revive(command: commands.Revive) -> Encoded:
    return Function.REVIVE, 0, 0, _encode_numbers(command.table, command.rows, command.delay_us)


def _decode_revive(body: Body) -> Command:
    rows = body.numbers("Q")
    body.end()
    return commands.Revive(table=body.table, rows=rows, delay_us=body.argument)


def _encode_discard(command: commands.Discard) -> Encoded:
    return Function.DISCARD, 0, 0, _encode_numbers(command.table, command.rows)


def _decode_discard(body: Body) -> Command:
    rows = body.numbers("Q")
    body.end_plain()
    return commands.Discard(table=body.table, rows=rows)


# -- looking --------------------------------------------------------------------------------------


def _encode_peek(command: commands.Peek) -> Encoded:
    body = b"".join(
        (
            encode_head(command.table, 1, command.count),
            SMALL.pack(command.state),
            Strings.of([command.start]).encode(),
            Strings.of([command.domain]).encode(),
        )
    )
    return Function.PEEK, 0, 0, body


def _decode_peek(body: Body) -> Command:
    body.has_rows(1)
    (state,) = body.field(SMALL)
    start, domain = body.strings()[0], body.strings()[0]
    body.end()
    return commands.Peek(
        table=body.table, state=state, start=start, count=body.argument, domain=domain
    )


def _encode_count(command: commands.CountJobs) -> Encoded:
    head = encode_head(command.table, 1, int(command.generations))
    return Function.COUNT_JOBS, 0, 0, b"".join((head, Strings.of([command.domain]).encode()))


def _decode_count(body: Body) -> Command:
    body.has_rows(1)
    domain = body.strings()[0]
    body.end()
    if body.argument > 1:
        raise ValueError("the argument is 0, or 1: generations too")
    return commands.CountJobs(table=body.table, domain=domain, generations=bool(body.argument))


def _encode_listen(command: commands.ListenJobs) -> Encoded:
    return Function.LISTEN_JOBS, 0, 0, encode_head(command.table, 0)


def _decode_listen(body: Body) -> Command:
    body.has_rows(0)
    body.end_plain()
    return commands.ListenJobs(table=body.table)


ENCODERS: Final[Encoders] = {
    commands.Push: _encode_push,
    commands.Next: _encode_next,
    commands.Finish: _encode_finish,
    commands.Extend: _encode_extend,
    commands.Fail: _encode_fail,
    commands.Cancel: _encode_cancel,
    commands.Reschedule: _encode_reschedule,
    commands.Bury: _encode_bury,
    commands.Revive: _encode_revive,
    commands.Discard: _encode_discard,
    commands.Peek: _encode_peek,
    commands.Find: _encode_find,
    commands.CountJobs: _encode_count,
    commands.ListenJobs: _encode_listen,
}

DECODERS: Final[Decoders] = {
    Function.PUSH_MANY: _decode_push,
    Function.NEXT_MANY: _decode_next,
    Function.FINISH: _decode_finish,
    Function.EXTEND: _decode_extend,
    Function.FAIL: _decode_fail,
    Function.CANCEL: _decode_cancel,
    Function.RESCHEDULE: _decode_reschedule,
    Function.BURY: _decode_bury,
    Function.REVIVE: _decode_revive,
    Function.DISCARD: _decode_discard,
    Function.PEEK: _decode_peek,
    Function.FIND: _decode_find,
    Function.COUNT_JOBS: _decode_count,
    Function.LISTEN_JOBS: _decode_listen,
}
