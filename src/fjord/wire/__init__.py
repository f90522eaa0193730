"""The FJ protocol, sans-IO: bytes in, commands out, and back.  See docs/protocol.md.

`RequestDecoder` and `ReplyDecoder` take bytes as they come and give whole messages.  `seed` and
`seed_replies` know the messages of the seed functions, 0 to 16, and `seed_jobs` those of them that
speak of jobs; `bodies` and `reply_bodies` those above, and `batch` those that hold others.
`explain` names every byte.  Nothing here waits, sends or stores.
"""

from fjord.wire.cursor import Cursors
from fjord.wire.functions import Flag, Function
from fjord.wire.replies import (
    RawReply,
    ReplyDecoder,
    encode_answer,
    encode_messages,
    encode_reply,
    read_reply,
)
from fjord.wire.requests import (
    Request,
    RequestDecoder,
    encode_parts,
    encode_request,
    encode_use,
)
from fjord.wire.seed_replies import RawChange, encode_change

__all__ = [
    "Cursors",
    "Flag",
    "Function",
    "RawChange",
    "RawReply",
    "ReplyDecoder",
    "Request",
    "RequestDecoder",
    "encode_answer",
    "encode_change",
    "encode_messages",
    "encode_parts",
    "encode_reply",
    "encode_request",
    "encode_use",
    "read_reply",
]
