"""Regular expressions over keys: RE2, whose time grows with a key only as its bytes do.

Keys are bytes, and so are expressions: one byte is one character, whatever encoding was meant.
An expression that is bound to the beginning of keys also says between which keys to look.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final

import re2  # type: ignore[import-untyped]

from fjord import limits
from fjord.commands import Refusal
from fjord.errors import Code

# How many bytes of a key are looked at to say where matches can begin and end.
_PREFIX_BYTES: Final = 64
_REPEATS: Final = b"*+?{"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """A compiled expression."""

    expression: Any
    steps: int  # of its program: what one byte of a key may take
    first: bytes  # no key before this one matches
    last: bytes | None  # and none after this one; None: there is no such bound

    def finds(self, key: bytes) -> bool:
        return self.expression.search(key) is not None


@functools.lru_cache(maxsize=limits.REGEX_KEPT)
def compiled(regex: bytes) -> Matcher | Refusal:
    """Returns the matcher of an expression, or what is wrong with it."""
    try:
        expression = re2.compile(regex, _options())
        first, last = _bounds(regex)
    except re2.error as error:
        return Refusal(code=Code.BAD_REGEX, text=f"RE2 says: {_text(error)}")
    finally:
        re2.purge()  # its own cache is larger than what is kept here
    if expression.programsize > limits.REGEX_STEPS_MAX:
        return Refusal(code=Code.BAD_REGEX, text="the regular expression is too large a program")
    return Matcher(expression=expression, steps=expression.programsize, first=first, last=last)


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.never_capture = True
    options.max_mem = limits.REGEX_MEMORY_BYTES
    return options


def _bounds(regex: bytes) -> tuple[bytes, bytes | None]:
    """Returns the first and the last key that can match; all keys where that is not known."""
    anchored = _after_anchor(regex)
    if anchored is None:
        return b"", None
    whole = re2.compile(b"(?:" + anchored + b")(?s:.*)", _options())
    try:
        first, last = whole.possiblematchrange(_PREFIX_BYTES)
    except re2.error:
        return b"", None
    return first, last


def _after_anchor(regex: bytes) -> bytes | None:
    """Returns what follows the anchor, if all that can match must begin at it; None if unsure."""
    for anchor in (b"^", b"\\A"):
        rest = regex[len(anchor) :]
        if regex.startswith(anchor) and rest[:1] not in {bytes([at]) for at in _REPEATS}:
            return None if _may_choose(rest) else rest
    return None


def _may_choose(regex: bytes) -> bool:
    """Says whether a choice may stand outside of all brackets; it then needs no anchor."""
    if b"|" not in regex:
        return False
    if b"[" in regex or b"\\" in regex:
        return True
    depth = 0
    for byte in regex:
        depth += (byte == ord("(")) - (byte == ord(")"))
        if byte == ord("|") and not depth:
            return True
    return False


def _text(error: Exception) -> str:
    """Returns RE2's words without bytes of the expression that are no text."""
    text = error.args[0] if error.args else ""
    words = text.decode("latin-1") if isinstance(text, bytes) else str(text)
    return "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in words)
