"""Replies to the seed functions, and CHANGE, the one message that a server sends unasked."""

from __future__ import annotations

from typing import Final, NamedTuple

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Acted, Changed, Entries, Page, Refusal, Reply, Taken
from fjord.errors import Code, RemoteProtocolError
from fjord.wire import error_texts, seed_jobs
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.fields import (
    KEY_SIZES,
    U16,
    U64,
    VALUE_SIZES,
    Fields,
    encode_keys,
    encode_value,
    value_bits,
)
from fjord.wire.functions import (
    FLAGS,
    MAGIC_REPLY,
    MAGIC_REQUEST,
    QUERY_BITS,
    QUERY_CURSOR,
    REPLY,
    REQUEST,
    VALUE_BITS,
    VERSION,
    Flag,
    Function,
)

_GET: Final = Function.GET
# A GET of many keys: as much as an answer may have, and the sizes of each.
_PAIRS_BYTES_MAX: Final = limits.ANSWER_BYTES_MAX + 64 * limits.BATCH_ROWS_MAX


# -- encoding -------------------------------------------------------------------------------------


def encode_reply(
    function: Function, identifier: int, flags: int, reply: Reply, *, now_us: int, cursor: bytes
) -> bytes:
    """Returns the JR message for a reply to a request with these flags."""
    if isinstance(reply, Refusal):
        return encode_error(identifier, reply, now_us=now_us)
    if isinstance(reply, Entries):
        if reply.types[0] == Entries.MISSING:
            return encode_error(identifier, _missing(flags), now_us=now_us)
        with_data = flags & Flag.DATA or function is not _GET
        return _encode_entry(identifier, reply, reply.values[0] if with_data else b"")
    if isinstance(reply, Page):
        return _encode_page(identifier, reply, now_us=now_us, cursor=cursor)
    if isinstance(reply, Taken):
        return seed_jobs.encode_taken(identifier, reply, now_us=now_us)
    if isinstance(reply, Acted) and (refusal := seed_jobs.stale(reply)):
        return encode_error(identifier, refusal, now_us=now_us)
    return REPLY.pack(MAGIC_REPLY, VERSION, identifier, 0, now_us) + b"\0"


def encode_error(identifier: int, refusal: Refusal, *, now_us: int, flags: int = 0) -> bytes:
    flags, error = encode_keys(flags, error_texts.encode(refusal))
    return REPLY.pack(MAGIC_REPLY, VERSION, identifier, flags, now_us) + error


def _missing(flags: int) -> Refusal:
    if flags & (Flag.WORKED_ON | Flag.TIMEOUT):
        text = "the key does not exist, or its value is worked on"
        return Refusal(code=Code.NOT_FOUND, text=text)
    return Refusal(code=Code.NOT_FOUND, text="the key does not exist")


def _encode_entry(identifier: int, entries: Entries, data: bytes) -> bytes:
    flags, value = encode_value(entries.types[0], data)
    timeout = b""
    if entries.expires_at_us[0]:
        flags |= Flag.TIMEOUT
        timeout = U64.pack(entries.expires_at_us[0])
    state = entries.states[0]
    if state:
        flags |= Flag.OVERWRITE if state & Entries.LOCKED else 0
        flags |= Flag.WORKED_ON if state & Entries.WORKED_ON else 0
    head = REPLY.pack(MAGIC_REPLY, VERSION, identifier, flags, entries.timestamps_us[0])
    return b"".join((head, timeout, b"\0", value))


def _encode_page(identifier: int, page: Page, *, now_us: int, cursor: bytes) -> bytes:
    assert bool(page.next_key) == bool(cursor), "a page that goes on needs a cursor"
    rows = page.entries.values.rows()
    keys = page.keys.rows()
    bits = value_bits(1 + max(map(len, rows), default=0))
    wide = max(map(len, [*keys, cursor])) > 0xFF
    key_field, value_field = KEY_SIZES[wide], VALUE_SIZES[bits >> 1]
    assert value_field is not None
    flags = bits | Flag.COUNT | (Flag.KEY_16 if wide else 0) | (QUERY_CURSOR if cursor else 0)
    head = REPLY.pack(MAGIC_REPLY, VERSION, identifier, flags, now_us)
    parts = [head, U16.pack(len(keys)), b"\0\0" if wide else b"\0"]
    for key, type_, data in zip(keys, page.entries.types, rows, strict=True):
        size = value_field.pack(1 + len(data))
        parts += (key_field.pack(len(key)), key, size, bytes((type_,)), data)
    if cursor:
        parts += (key_field.pack(len(cursor)), cursor)
    return b"".join(parts)


def encode_change(identifier: int, changed: Changed) -> bytes:
    """Returns the CHANGE message that tells a listener of a new value, or that there is none."""
    flags, value = 0, b""
    if changed.type != Entries.MISSING:
        flags, value = encode_value(changed.type, changed.value)
    timeout = b""
    if changed.expires_at_us:
        flags |= Flag.TIMEOUT
        timeout = U64.pack(changed.expires_at_us)
    flags, key = encode_keys(flags, changed.key)
    head = REQUEST.pack(
        MAGIC_REQUEST, VERSION, Function.CHANGE, identifier, flags, changed.timestamp_us
    )
    return b"".join((head, timeout, key, value))


# -- decoding -------------------------------------------------------------------------------------


class RawChange(NamedTuple):
    """One whole CHANGE message: what became of a key that the client listens to."""

    identifier: int  # of the request that began the listening
    key: bytes
    type: int  # Entries.MISSING: it is gone
    value: bytes
    timestamp_us: int
    expires_at_us: int  # 0 = never

    def of(self, table: str) -> Changed:
        """Returns the change, once it is known to which table the listening belongs."""
        return Changed(
            table, self.key, self.type, self.value, self.timestamp_us, self.expires_at_us
        )


def decode_change(buffer: ReceiveBuffer) -> tuple[RawChange, int]:
    """Reads a CHANGE message from its beginning; returns it and its length.

    Raises:
        IncompleteError: if bytes are missing.
        RemoteProtocolError: if it is something else.
    """
    fields = Fields(buffer, 0, 0)
    fields.skip(REQUEST.size)
    *head, identifier, flags, timestamp_us = REQUEST.unpack_from(buffer.data, buffer.start)
    if head != _CHANGE_HEAD or flags & ~FLAGS[Function.CHANGE]:
        raise RemoteProtocolError(Code.BAD_MAGIC, "the peer is no Fjord server of version 1")
    fields.flags = flags
    expires_at_us = fields.u64() if flags & Flag.TIMEOUT else 0
    key = fields.key()
    type_, value = fields.value("CHANGE") if flags & VALUE_BITS else (_GONE, b"")
    change = RawChange(identifier, key, type_[0], value, timestamp_us, expires_at_us)
    return change, fields.offset


_CHANGE_HEAD: Final = [MAGIC_REQUEST, VERSION, Function.CHANGE]
_GONE: Final = bytes((Entries.MISSING,))


class Pairs:
    """The keys and values of a reply to a query, as far as they have come.

    They are many, and come in many pieces: what has been read is not read again.
    """

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._types: list[bytes] = []
        self._values: list[bytes] = []
        self._offset = 0

    def read(self, fields: Fields, count: int) -> Page:
        """Goes on reading; returns the page when all of it is there.

        Raises:
            IncompleteError: if bytes are missing.
            RemoteProtocolError: if the pairs cannot be such.
        """
        fields.offset = max(fields.offset, self._offset)
        while len(self._keys) < count:
            if fields.offset > _PAIRS_BYTES_MAX:
                raise RemoteProtocolError(Code.TOO_LARGE, "a reply without an end")
            key = fields.key()
            type_, data = fields.value("a pair")
            self._keys.append(key)
            self._types.append(type_)
            self._values.append(data)
            self._offset = fields.offset
        cursor = fields.key() if fields.flags & QUERY_BITS else b""
        found = entries_without_dates(b"".join(self._types), Strings.of(self._values))
        return Page(keys=Strings.of(self._keys), entries=found, next_key=cursor)


def entries_without_dates(types: bytes, stored: Strings) -> Entries:
    none = (0,) * len(types)
    return Entries(
        types=types,
        values=stored,
        timestamps_us=none,
        expires_at_us=none,
        states=bytes(len(types)),
        created_us=none,
        accessed_us=none,
        ttls_us=none,
    )
