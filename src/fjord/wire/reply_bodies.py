"""Bodies of replies to functions above 16.

Those of jobs are in `job_replies`, those of streams, snapshots and blocks in `stream_replies`.
"""

from __future__ import annotations

import struct
from typing import Final

from fjord import columns
from fjord.columns import Strings
from fjord.commands import (
    Acted,
    BlockList,
    Committed,
    Done,
    Entries,
    JobPage,
    Messages,
    Numbers,
    Opened,
    Page,
    Position,
    Reply,
    Scanned,
    ScannedArrow,
    Spanned,
    Subscribers,
    TableList,
    Taken,
    Welcome,
)
from fjord.wire import history_replies, job_replies, staging_bodies, stream_replies
from fjord.wire.functions import Function
from fjord.wire.reply_body import PAGE, ROWS, ReplyDecoders, ReplyEncoders, check_end, check_rows

DONE = struct.Struct(">16sQ")
WELCOME = struct.Struct(">16s16s")
SCANNED = struct.Struct(">QQII")  # next seq, end seq, rows or size, form
# What a piece of history is: ops as they are stored, or an Arrow IPC stream.
AS_OPS: Final = 0
AS_ARROW: Final = 1
# The columns of one entry but for its value, since most replies have but one.
_ONE_ENTRY = struct.Struct("<B7xB7xQQQQQ")


def encode_body(reply: Reply) -> bytes:
    return _ENCODERS[type(reply)](reply)


def decode_body(function: Function, body: columns.Buffer) -> Reply:
    """Returns the reply of a body.

    Raises:
        ValueError, struct.error: if the body is not one.
    """
    return DECODERS[REPLY_TYPES[function]](body)


def _encode_done(reply: Done) -> bytes:
    return DONE.pack(reply.master, reply.seq)


def _decode_done(body: columns.Buffer) -> Reply:
    master, seq = DONE.unpack(body)
    return Done(master=master, seq=seq)


def _encode_entries(reply: Entries) -> bytes:
    return b"".join((ROWS.pack(len(reply.types)), *_entry_columns(reply)))


def _entry_columns(entries: Entries) -> tuple[columns.Buffer, ...]:
    if len(entries.types) == 1:
        return _ONE_ENTRY.pack(
            entries.types[0],
            entries.states[0],
            entries.timestamps_us[0],
            entries.expires_at_us[0],
            entries.created_us[0],
            entries.accessed_us[0],
            entries.ttls_us[0],
        ), entries.values.encode()
    return (
        columns.encode_u8(entries.types),
        columns.encode_u8(entries.states),
        columns.encode_u64(entries.timestamps_us),
        columns.encode_u64(entries.expires_at_us),
        columns.encode_u64(entries.created_us),
        columns.encode_u64(entries.accessed_us),
        columns.encode_u64(entries.ttls_us),
        entries.values.encode(),
    )


def _decode_entries(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    (rows,) = ROWS.unpack_from(view)
    return _read_entries(view, ROWS.size, rows)


def _read_entries(view: memoryview, position: int, rows: int) -> Entries:
    """Reads the columns of entries from `position` to the end."""
    if rows == 1:
        type_, state, *dates = _ONE_ENTRY.unpack_from(view, position)
        stored, position = columns.decode_strings(view, position + _ONE_ENTRY.size, 1)
        check_end(position, view)
        timestamp_us, expires_at_us, created_us, accessed_us, ttl_us = dates
        return Entries(
            types=bytes((type_,)),
            values=stored,
            timestamps_us=(timestamp_us,),
            expires_at_us=(expires_at_us,),
            states=bytes((state,)),
            created_us=(created_us,),
            accessed_us=(accessed_us,),
            ttls_us=(ttl_us,),
        )
    check_rows(rows)
    types, position = columns.decode_numbers(view, position, rows, "B")
    states, position = columns.decode_numbers(view, position, rows, "B")
    timestamps_us, position = columns.decode_numbers(view, position, rows, "Q")
    expires_at_us, position = columns.decode_numbers(view, position, rows, "Q")
    created_us, position = columns.decode_numbers(view, position, rows, "Q")
    accessed_us, position = columns.decode_numbers(view, position, rows, "Q")
    ttls_us, position = columns.decode_numbers(view, position, rows, "Q")
    stored, position = columns.decode_strings(view, position, rows)
    check_end(position, view)
    return Entries(
        types=bytes(types),
        values=stored,
        timestamps_us=timestamps_us,
        expires_at_us=expires_at_us,
        states=bytes(states),
        created_us=created_us,
        accessed_us=accessed_us,
        ttls_us=ttls_us,
    )


def _encode_page(reply: Page) -> bytes:
    head = PAGE.pack(len(reply.keys), len(reply.next_key)) + reply.next_key
    parts = (columns.padding(len(head)), reply.keys.encode(), *_entry_columns(reply.entries))
    return b"".join((head, *parts))


def _decode_page(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    rows, size = PAGE.unpack_from(view)
    check_rows(rows)
    end = PAGE.size + size
    if end > len(view):
        raise ValueError("the next key is cut short")
    keys, position = columns.decode_strings(view, columns.aligned(end), rows)
    entries = _read_entries(view, position, rows)
    return Page(keys=keys, entries=entries, next_key=bytes(view[PAGE.size : end]))


def _encode_tables(reply: TableList) -> bytes:
    return b"".join(
        (
            ROWS.pack(len(reply.names)),
            columns.encode_u64(reply.ids),
            columns.encode_u8(reply.kinds),
            reply.names.encode(),
            reply.settings.encode(),
        )
    )


def _decode_tables(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    (rows,) = ROWS.unpack_from(view)
    check_rows(rows)
    ids, position = columns.decode_numbers(view, ROWS.size, rows, "Q")
    kinds, position = columns.decode_numbers(view, position, rows, "B")
    names, position = columns.decode_strings(view, position, rows)
    settings, position = columns.decode_strings(view, position, rows)
    check_end(position, view)
    return TableList(names=names, ids=ids, kinds=bytes(kinds), settings=settings)


def _encode_numbers(reply: Numbers) -> bytes:
    return b"".join(
        (ROWS.pack(len(reply.names)), columns.encode_u64(reply.values), reply.names.encode())
    )


def _decode_numbers(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    (rows,) = ROWS.unpack_from(view)
    check_rows(rows)
    found, position = columns.decode_numbers(view, ROWS.size, rows, "Q")
    names, position = columns.decode_strings(view, position, rows)
    check_end(position, view)
    return Numbers(names=names, values=found)


def _encode_welcome(reply: Welcome) -> bytes:
    version = Strings.of([reply.version.encode()])
    return b"".join((WELCOME.pack(reply.client, reply.master), version.encode()))


def _decode_welcome(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    client, master = WELCOME.unpack_from(view)
    version, position = columns.decode_strings(view, WELCOME.size, 1)
    check_end(position, view)
    return Welcome(client=client, master=master, version=version[0].decode(errors="replace"))


def _encode_scanned(reply: Scanned) -> bytes:
    return b"".join(
        (
            SCANNED.pack(reply.next_seq, reply.end_seq, len(reply.ops), AS_OPS),
            columns.encode_u64(reply.first_seqs),
            columns.encode_u64(reply.walls_us),
            columns.encode_u64(reply.last_seqs),
            reply.ops.encode(),
        )
    )


def _decode_scanned(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    next_seq, end_seq, count, form = SCANNED.unpack_from(body)
    if form == AS_ARROW:
        return _decode_arrow(view, next_seq, end_seq, count)
    if form != AS_OPS:
        raise ValueError(f"a piece of history in form {form}")
    first_seqs, position = columns.decode_numbers(view, SCANNED.size, count, "Q")
    walls_us, position = columns.decode_numbers(view, position, count, "Q")
    last_seqs, position = columns.decode_numbers(view, position, count, "Q")
    found, position = columns.decode_strings(view, position, count)
    check_end(position, view)
    return Scanned(
        first_seqs=first_seqs,
        walls_us=walls_us,
        last_seqs=last_seqs,
        ops=found,
        next_seq=next_seq,
        end_seq=end_seq,
    )


def _encode_arrow(reply: ScannedArrow) -> bytes:
    size = len(reply.stream)
    head = SCANNED.pack(reply.next_seq, reply.end_seq, size, AS_ARROW)
    return b"".join((head, reply.stream, columns.padding(size)))


def is_arrow(data: bytes, start: int) -> bool:
    """Says whether the piece of history that begins there is an Arrow IPC stream."""
    return data[start + 20 : start + 24] == AS_ARROW.to_bytes(4, "big")


def _decode_arrow(view: memoryview, next_seq: int, end_seq: int, size: int) -> ScannedArrow:
    check_end(SCANNED.size + columns.aligned(size), view)
    stream = bytes(view[SCANNED.size : SCANNED.size + size])
    return ScannedArrow(stream=stream, next_seq=next_seq, end_seq=end_seq)


_ENCODERS: Final[ReplyEncoders] = (
    job_replies.ENCODERS
    | stream_replies.ENCODERS
    | history_replies.ENCODERS
    | staging_bodies.REPLY_ENCODERS
    | {
        Done: _encode_done,
        Entries: _encode_entries,
        Page: _encode_page,
        TableList: _encode_tables,
        Numbers: _encode_numbers,
        Welcome: _encode_welcome,
        Scanned: _encode_scanned,
        ScannedArrow: _encode_arrow,
    }
)

DECODERS: Final[ReplyDecoders] = (
    job_replies.DECODERS
    | stream_replies.DECODERS
    | history_replies.DECODERS
    | staging_bodies.REPLY_DECODERS
    | {
        Done: _decode_done,
        Entries: _decode_entries,
        Page: _decode_page,
        TableList: _decode_tables,
        Numbers: _decode_numbers,
        Welcome: _decode_welcome,
        Scanned: _decode_scanned,
    }
)

# What a function is answered with when all is well; BATCH and AS_OF have a module of their own.
REPLY_TYPES: Final[dict[Function, type[Reply]]] = {
    Function.HELLO: Welcome,
    Function.USE: Done,
    Function.TABLES: TableList,
    Function.CREATE_TABLE: Done,
    Function.DROP_TABLE: Done,
    Function.STATS: Numbers,
    Function.SET_MANY: Done,
    Function.GET_MANY: Entries,
    Function.DELETE_MANY: Done,
    Function.TOUCH_MANY: Entries,
    Function.MODIFY: Entries,
    Function.RENAME_KEY: Done,
    Function.LOCK_MANY: Done,
    Function.UNLOCK_MANY: Done,
    Function.RANGE: Page,
    Function.LISTEN_MANY: Done,
    Function.UNLISTEN: Done,
    Function.PUSH_MANY: Done,
    Function.NEXT_MANY: Taken,
    Function.FINISH: Acted,
    Function.EXTEND: Acted,
    Function.FAIL: Acted,
    Function.CANCEL: Acted,
    Function.RESCHEDULE: Acted,
    Function.BURY: Acted,
    Function.REVIVE: Acted,
    Function.DISCARD: Acted,
    Function.PEEK: JobPage,
    Function.FIND: JobPage,
    Function.COUNT_JOBS: Numbers,
    Function.LISTEN_JOBS: Done,
    Function.SCAN: Scanned,  # or ScannedArrow, as was asked; the body says which
    Function.APPEND: Done,
    Function.ERASE: Acted,
    Function.READ: Messages,
    Function.SUBSCRIBE: Position,
    Function.ACKNOWLEDGE: Position,
    Function.SEEK: Position,
    Function.REST: Position,
    Function.UNSUBSCRIBE: Done,
    Function.SUBSCRIBERS: Subscribers,
    Function.LAG: Numbers,
    Function.OPEN_SNAPSHOT: Opened,
    Function.CLOSE_SNAPSHOT: Done,
    Function.BLOCKS: BlockList,
    Function.SEAL: Done,
    Function.SPAN: Spanned,
    Function.STAGE: Done,
    Function.COMMIT: Committed,
    Function.WRITER: Committed,
    Function.REPLACE_BLOCKS: Done,
    Function.ADVANCE: Done,
}
