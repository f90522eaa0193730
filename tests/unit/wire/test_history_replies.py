"""The body of the reply to SPAN, byte by byte."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from fjord.wire import Function, reply_bodies
from tests.unit.wire.history_samples import span_reply
from tests.unit.wire.streams import MASTER, NOW_US

BODY = struct.pack(">QQQQQQQ", 9, 4, 300, NOW_US, 12, 20, 1) + MASTER + struct.pack(">I4x", 0)


def test_all_of_it_are_fields() -> None:
    assert reply_bodies.encode_body(span_reply()) == BODY
    assert reply_bodies.decode_body(Function.SPAN, BODY) == span_reply()
    more = BODY[:-8] + struct.pack(">I4x", 1)
    assert reply_bodies.decode_body(Function.SPAN, more) == replace(span_reply(), is_more=True)


@pytest.mark.parametrize("body", [BODY[:-1], BODY + b"\0", BODY[:-8] + struct.pack(">I4x", 2)])
def test_what_is_no_body_is_refused(body: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        reply_bodies.decode_body(Function.SPAN, body)
