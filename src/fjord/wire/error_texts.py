"""Error texts: a code, a colon, and a sentence for people."""

from __future__ import annotations

from fjord.commands import Refusal
from fjord.errors import Code


def encode(refusal: Refusal) -> bytes:
    return f"{refusal.code}: {refusal.text}".encode(errors="replace")[:0xFFFF]


def decode(text: bytes) -> Refusal:
    """Returns the refusal of a text; one of an unknown code is a failure."""
    code, _, sentence = text.decode(errors="replace").partition(": ")
    try:
        return Refusal(code=Code(code), text=sentence)
    except ValueError:
        return Refusal(code=Code.FAILED, text=text.decode(errors="replace"))
