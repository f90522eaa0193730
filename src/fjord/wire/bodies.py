"""Requests above 16: which command goes with which body.

`kv_bodies`, `job_bodies`, `stream_bodies`, `history_bodies`, `staging_bodies` and `session_bodies`
hold the layouts, `body` what all of them share; `batch` puts several into one.
"""

from __future__ import annotations

import struct
from typing import Final

from fjord.commands import Command, Refusal
from fjord.errors import Code
from fjord.wire import (
    history_bodies,
    job_bodies,
    kv_bodies,
    session_bodies,
    staging_bodies,
    stream_bodies,
)
from fjord.wire.body import Body, Decoders, Encoded, Encoders
from fjord.wire.functions import Function

_ENCODERS: Final[Encoders] = (
    kv_bodies.ENCODERS
    | job_bodies.ENCODERS
    | stream_bodies.ENCODERS
    | history_bodies.ENCODERS
    | staging_bodies.ENCODERS
    | session_bodies.ENCODERS
)
_DECODERS: Final[Decoders] = (
    kv_bodies.DECODERS
    | job_bodies.DECODERS
    | stream_bodies.DECODERS
    | history_bodies.DECODERS
    | staging_bodies.DECODERS
    | session_bodies.DECODERS
)


def encode_body(command: Command) -> Encoded:
    """Returns function, flags, timestamp and body of the message for a command.

    Raises:
        struct.error, ValueError, OverflowError: if something in it is beyond its field.
    """
    return _ENCODERS[type(command)](command)


def decode_body(
    function: Function, flags: int, timestamp_us: int, body: bytes | memoryview
) -> Command | Refusal:
    """Returns the command of a body, or what is wrong with it."""
    try:
        return _DECODERS[function](Body(body, flags, timestamp_us))
    except (ValueError, struct.error) as error:
        return Refusal(code=Code.BAD_BATCH, text=str(error))
