"""A request of the seed functions while it is read, and what its connection knows."""

from __future__ import annotations

from fjord import commands
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.cursor import Cursors
from fjord.wire.fields import Fields
from fjord.wire.functions import REQUEST, Function

Encoded = tuple[Function, int, int, bytes]  # function, flags, timestamp, what follows the header


class Context:
    """What a connection knows beside its bytes: its table, and who signs its cursors."""

    __slots__ = ("cursors", "table")

    def __init__(self, cursors: Cursors | None = None) -> None:
        self.table = commands.DEFAULT_TABLE
        self.cursors = cursors


class Message(Fields):
    """One request, as far as it is read."""

    __slots__ = ("context", "timestamp_us")

    def __init__(
        self, buffer: ReceiveBuffer, flags: int, timestamp_us: int, context: Context
    ) -> None:
        self.buffer = buffer
        self.offset = REQUEST.size
        self.flags = flags
        self.timestamp_us = timestamp_us
        self.context = context
