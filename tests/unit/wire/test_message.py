"""A request of the seed functions while it is read."""

from __future__ import annotations

from fjord import commands
from fjord.wire import Flag
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.message import Context, Message
from tests.unit.wire.streams import CURSORS, NOW_US, request_bytes


def test_a_connection_speaks_to_the_default_table_until_it_chooses_one() -> None:
    assert (Context().table, Context().cursors) == (commands.DEFAULT_TABLE, None)
    assert Context(CURSORS).cursors is CURSORS


def test_fields_are_read_behind_the_header() -> None:
    buffer = ReceiveBuffer()
    buffer.feed(request_bytes(11, b"\0\0\0\0\0\0\0\5" + b"\0\1k", flags=0x0009))
    message = Message(buffer, Flag.KEY_16 | Flag.TIMEOUT, NOW_US, Context())
    assert (message.u64(), message.key()) == (5, b"k")
    assert (message.offset, message.timestamp_us) == (len(buffer), NOW_US)
