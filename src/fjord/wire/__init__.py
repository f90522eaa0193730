"""The FJ protocol, sans-IO: bytes in, commands out, and back.  See docs/protocol.md.

`RequestDecoder` and `ReplyDecoder` take bytes as they come and give whole messages; `seed` knows
the messages of functions 0 to 16, `batch` those above.  Nothing here waits, sends or stores.
"""

from fjord.wire.functions import Flag, Function
from fjord.wire.replies import RawReply, ReplyDecoder, encode_reply, read_reply
from fjord.wire.requests import Request, RequestDecoder, encode_request

__all__ = [
    "Flag",
    "Function",
    "RawReply",
    "ReplyDecoder",
    "Request",
    "RequestDecoder",
    "encode_reply",
    "encode_request",
    "read_reply",
]
