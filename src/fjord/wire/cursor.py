"""Cursors: where a GET of many keys continues; held by the client and signed by the server.

A server keeps nothing for a client that has read one page and may never ask for the next.  A cursor
is valid only at the server that issued it, and only until the server restarts.

    cursor = version u8, bits u8, count u16, sizes of the strings (u8, u16, u16, u16),
             table, next key, stop, regex, master (16 bytes), signature (16 bytes)
"""

from __future__ import annotations

import hmac
import struct
from typing import Final

from fjord.commands import Command, Page, Range, Refusal, Reply
from fjord.errors import Code

_VERSION: Final = 1
_HEAD = struct.Struct(">BBHBHHH")
_MASTER_BYTES: Final = 16
_SIGNATURE_BYTES: Final = 16
_WITH_DATA, _SKIP_WORKED = 1, 2


class Cursors:
    """Issues and checks cursors."""

    def __init__(self, secret: bytes, master: bytes) -> None:
        assert len(master) == _MASTER_BYTES
        self._secret = secret
        self._master = master

    def after(self, command: Command | Refusal, reply: Reply) -> bytes:
        """Returns the cursor after a page; empty if there is no more."""
        if type(reply) is not Page or not reply.next_key or type(command) is not Range:
            return b""
        return self.encode(command, reply.next_key)

    def encode(self, page: Range, next_key: bytes) -> bytes:
        """Returns a cursor for the request `page`, from `next_key` on."""
        strings = (page.table.encode(), next_key, page.stop, page.regex)
        bits = _WITH_DATA * page.with_data | _SKIP_WORKED * page.skip_worked
        head = _HEAD.pack(_VERSION, bits, page.count, *map(len, strings))
        signed = b"".join((head, *strings, self._master))
        return signed + self._sign(signed)

    def decode(self, cursor: bytes, count: int | None = None) -> Range | Refusal:
        """Returns the range of a cursor, with `count` entries if given."""
        try:
            found, signed = self._parse(cursor)
        except (ValueError, struct.error):
            return _BAD
        if signed[-_MASTER_BYTES:] != self._master:
            return _EXPIRED
        if not hmac.compare_digest(self._sign(signed), cursor[len(signed) :]):
            return _BAD
        if count is not None:
            found.count = count
        return found

    def _parse(self, cursor: bytes) -> tuple[Range, bytes]:
        version, bits, count, *sizes = _HEAD.unpack_from(cursor)
        end = _HEAD.size + sum(sizes) + _MASTER_BYTES
        if version != _VERSION or len(cursor) != end + _SIGNATURE_BYTES:
            raise ValueError("no cursor")
        strings, position = [], _HEAD.size
        for size in sizes:
            strings.append(cursor[position : position + size])
            position += size
        table, start, stop, regex = strings
        return Range(
            table=table.decode(),
            start=start,
            stop=stop,
            count=count,
            regex=regex,
            with_data=bool(bits & _WITH_DATA),
            skip_worked=bool(bits & _SKIP_WORKED),
        ), cursor[:end]

    def _sign(self, signed: bytes) -> bytes:
        return hmac.digest(self._secret, signed, "sha256")[:_SIGNATURE_BYTES]


_BAD: Final = Refusal(code=Code.BAD_CURSOR, text="this is not a cursor of this server")
_EXPIRED: Final = Refusal(
    code=Code.CURSOR_EXPIRED, text="the server has restarted since; begin the query again"
)
