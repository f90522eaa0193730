"""SQL as tokens, read in pieces: whatever the text is, only some of it is in memory.

It knows as much of MySQL as it takes to find where things end: strings with their escapes, names
in backticks, comments.  What stands in a comment such as /*!40101 ... */ counts, as it does for
MySQL.  A token that is too long is passed over, and told as such.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from fjord import limits
from fjord.errors import FjordError

# What is read at a time, at least.
READ_BYTES: Final = 256 * limits.KIB
# The largest value in JSON, with each byte escaped.
TOKEN_BYTES_MAX: Final = 16 * limits.MIB
_DELIMITER_BYTES_MAX: Final = 16


class CutShortError(FjordError):
    """The text ends in the middle of something."""


class Kind(enum.Enum):
    """What a token is."""

    WORD = enum.auto()  # a keyword, a name or a number
    NAME = enum.auto()  # a name in backticks, without them
    STRING = enum.auto()  # its content, with nothing escaped
    MARK = enum.auto()  # any other byte
    TOO_LONG = enum.auto()
    END = enum.auto()  # of the text


class Token(NamedTuple):
    """A piece of SQL."""

    kind: Kind
    text: bytes


_END: Final = Token(Kind.END, b"")
_TOO_LONG: Final = Token(Kind.TOO_LONG, b"")

_QUOTES: Final = {b"'": "a string", b'"': "a string", b"`": "a name"}
# Without backslashes that escape, and with them.
_INSIDE: Final = (
    {quote: re.compile(rb"(?:[^%b]++|%b%b)*+" % (quote, quote, quote)) for quote in _QUOTES},
    {
        b"'": re.compile(rb"(?:[^'\\]++|\\.|'')*+", re.DOTALL),
        b'"': re.compile(rb'(?:[^"\\]++|\\.|"")*+', re.DOTALL),
        b"`": re.compile(rb"(?:[^`]++|``)*+"),
    },
)
_STRINGS: Final = (
    rb"""(?P<string>'(?:[^']++|'')*+'|"(?:[^"]++|"")*+")""",
    rb"""(?P<string>'(?:[^'\\]++|\\.|'')*+'|"(?:[^"\\]++|\\.|"")*+")""",
)
_TOKENS: Final = tuple(
    re.compile(
        rb"(?P<space>\s++)|(?P<line>\#|--(?:\s|\Z))|(?P<open>/\*M?!\d*+)|(?P<comment>/\*)"
        rb"|(?P<close>\*/)|" + strings + rb"|(?P<name>`(?:[^`]++|``)*+`)"
        rb"|(?P<word>[0-9A-Za-z_$@\x80-\xff]++)|(?P<mark>.)",
        re.DOTALL,
    )
    for strings in _STRINGS
)
# So many bytes tell comments from what looks like one: `/*M!`.
_AHEAD: Final = 4
_OPENING: Final = re.compile(rb"/\*M?!")
_COMMENT: Final = re.compile(rb"--(?:\s|\Z)")
_WORD: Final = re.compile(rb"[0-9A-Za-z_$@\x80-\xff]++")
# Words for the client of MariaDB, which are no statement.
_SANDBOX: Final = re.compile(rb"\\-[^*]{0,100}+\*/")
_ESCAPES: Final = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a"}
_ESCAPED: Final = {
    b"'": re.compile(rb"\\(.)|''", re.DOTALL),
    b'"': re.compile(rb'\\(.)|""', re.DOTALL),
}


class Scanner:
    """Reads tokens.

    `text` and `at` are what is in memory, and where the next token begins; who knows what is to
    come may match there and move `at`.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """Takes what reads at most so many bytes, and none at the end."""
        self._read = read
        self._is_end = False
        self._line = 1  # of the first byte in memory
        self._lines_to = 0  # up to here its lines are counted
        self.text = b""
        self.at = 0
        self.escapes = True  # a backslash in a string escapes
        self.delimiter = b";"

    @property
    def line(self) -> int:
        """The line of the next byte."""
        self._line += self.text.count(b"\n", self._lines_to, self.at)
        self._lines_to = self.at
        return self._line

    def token(self) -> Token:
        """Returns the next token.

        Raises:
            CutShortError: if the text ends inside of it.
        """
        while True:
            found = _TOKENS[self.escapes].match(self.text, self.at)
            if found is None:
                if not self._more():
                    return _END
                continue
            kind, end = found.lastgroup, found.end()
            if kind == "space" or kind == "close":
                self.at = end
            elif self._may_go_on(kind, end) and self._more_of(found.start()):
                continue
            elif kind == "line":
                self._pass(b"\n")  # which may be part of the token
            elif kind == "open":
                self.at = end
                self._pass_sandbox()
            elif kind == "comment":
                self.at = end
                self._pass(b"*/")
            elif len(found[0]) > TOKEN_BYTES_MAX:
                return self._too_long(found[0][:1])
            elif kind == "mark" and found[0] in _QUOTES:  # its end is not in memory
                if not self._more_of(found.start()):
                    return self._unended(found[0])
            else:
                self.at = end
                return self._made(kind, found[0])

    def skip(self) -> None:
        """Goes behind the end of the statement.

        Raises:
            CutShortError: if it has none.
        """
        first = self.delimiter[:1]
        plain = re.compile(b"[^'\"`#/\\-%b]++" % re.escape(first))
        while True:
            found = plain.match(self.text, self.at)
            if found is not None:
                self.at = found.end()
            if not self._has(max(_AHEAD, len(self.delimiter))) and self.at == len(self.text):
                raise CutShortError(self._cut("a statement"))
            if self.text.startswith(self.delimiter, self.at):
                self.at += len(self.delimiter)
                return
            self._skip_mark(self.text[self.at : self.at + 1], first)

    def _skip_mark(self, mark: bytes, first: bytes) -> None:
        if mark in _QUOTES:
            self._pass_quoted(mark)
        elif (opening := _OPENING.match(self.text, self.at)) is not None:
            self.at = opening.end()
        elif self.text.startswith(b"/*", self.at):
            self.at += 2
            self._pass(b"*/")
        elif mark == b"#" or _COMMENT.match(self.text, self.at):
            self._pass(b"\n")
        elif mark in (b"-", b"/", first):
            self.at += 1

    def passes(self, prefix: bytes) -> bool:
        """Goes behind a prefix, if it comes next; says whether it does."""
        is_next = self._has(len(prefix)) and self.text.startswith(prefix, self.at)
        self.at += len(prefix) if is_next else 0
        return is_next

    def rest_of_line(self) -> bytes:
        """Returns what is left of this line, if that is short, and goes behind it."""
        self._has(_DELIMITER_BYTES_MAX * 2)
        found = self.text[self.at : self.at + _DELIMITER_BYTES_MAX].partition(b"\n")[0].strip()
        self._pass(b"\n")
        return found

    # -- what is in memory ------------------------------------------------------------------------

    def _more(self) -> bool:
        """Reads more behind what is not used yet; says whether there was any."""
        if self._is_end:
            return False
        left = len(self.text) - self.at
        data = self._read(max(READ_BYTES, left))
        if not data:
            self._is_end = True
            return False
        self._line = self.line
        self._lines_to = 0
        self.text, self.at = self.text[self.at :] + data, 0
        return True

    def _may_go_on(self, kind: str | None, end: int) -> bool:
        """Says whether what comes next could make another token of one that ends here."""
        left = len(self.text) - end
        return left == 0 or (left < _AHEAD and kind in ("mark", "comment"))

    def _more_of(self, start: int) -> bool:
        """Reads more of a token that may go on, unless it is too long already."""
        return len(self.text) - start <= TOKEN_BYTES_MAX and self._more()

    def _has(self, count: int) -> bool:
        """Says whether so many bytes are there, having read them."""
        while len(self.text) - self.at < count:
            if not self._more():
                return False
        return True

    # -- going on ---------------------------------------------------------------------------------

    def _made(self, kind: str | None, text: bytes) -> Token:
        if kind == "mark":
            return Token(Kind.MARK, text)
        if kind == "word":
            return Token(Kind.WORD, text)
        if kind == "name":
            return Token(Kind.NAME, text[1:-1].replace(b"``", b"`"))
        return Token(Kind.STRING, self.unquoted(text[1:-1], text[:1]))

    def unquoted(self, text: bytes, quote: bytes = b"'") -> bytes:
        """Returns what the text between two quotes stands for."""
        if not self.escapes or b"\\" not in text:
            return text.replace(quote + quote, quote)
        return _ESCAPED[quote].sub(_unescape, text)

    def _unended(self, quote: bytes) -> Token:
        if len(self.text) - self.at <= TOKEN_BYTES_MAX:
            raise CutShortError(self._cut(_QUOTES[quote]))
        return self._too_long(quote)

    def _too_long(self, first: bytes) -> Token:
        if first in _QUOTES:
            self._pass_quoted(first)
            return _TOO_LONG
        while (found := _WORD.match(self.text, self.at)) is not None:
            self.at = found.end()
            if self.at < len(self.text) or not self._more():
                break
        return _TOO_LONG

    def _pass(self, end: bytes) -> None:
        """Goes behind the next of these; to the end of the text if there is none."""
        while (found := self.text.find(end, self.at)) < 0:
            self.at = max(self.at, len(self.text) - len(end) + 1)
            if not self._more():
                self.at = len(self.text)
                if end == b"*/":
                    raise CutShortError(self._cut("a comment"))
                return
        self.at = found + len(end)

    def _pass_quoted(self, quote: bytes) -> None:
        """Goes behind the string or the name that begins here, and keeps nothing of it."""
        inside = _INSIDE[self.escapes][quote]
        self.at += 1
        while True:
            found = inside.match(self.text, self.at)
            assert found is not None  # it matches nothing, too
            self.at = found.end()
            # What is left is a quote or a backslash, whose next byte says what it is for.
            has_next = self._has(2)
            if self.text.startswith(quote, self.at):
                if not has_next or not self.text.startswith(quote, self.at + 1):
                    self.at += 1
                    return
            elif not has_next:
                raise CutShortError(self._cut(_QUOTES[quote]))

    def _pass_sandbox(self) -> None:
        self._has(100)
        found = _SANDBOX.match(self.text, self.at)
        if found is not None:
            self.at = found.end()

    def _cut(self, what: str) -> str:
        return f"it ends at line {self.line} in the middle of {what}: it was cut short"


def _unescape(found: re.Match[bytes]) -> bytes:
    one = found[1]
    if one is None:
        return found[0][:1]  # a quote that is written twice
    if one in (b"%", b"_"):
        return found[0]  # for patterns; the backslash is part of the text
    return _ESCAPES.get(one, one)
