"""The FJ protocol, sans-IO: bytes in, commands out, and back.  See docs/protocol.md.

`messages` has whole messages, `seed` those of the functions 0 to 16, `fields` what all of them are
made of; the bodies of all others are in `commands.codec`.  `explain` names every byte.  Nothing
here waits, sends or stores.
"""

from fjord.wire.cursor import Cursors
from fjord.wire.fields import LAST_SEED_FUNCTION, decode_error
from fjord.wire.messages import (
    Link,
    RawReply,
    ReplyDecoder,
    Request,
    RequestDecoder,
    encode_fatal,
    encode_reply,
    encode_request,
    read_reply,
)
from fjord.wire.seed import Function, RawChange, encode_change

__all__ = [
    "LAST_SEED_FUNCTION",
    "Cursors",
    "Function",
    "Link",
    "RawChange",
    "RawReply",
    "ReplyDecoder",
    "Request",
    "RequestDecoder",
    "decode_error",
    "encode_change",
    "encode_fatal",
    "encode_reply",
    "encode_request",
    "read_reply",
]
