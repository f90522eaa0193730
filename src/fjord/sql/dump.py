"""The rows of the journal table in a mysqldump.

CREATE TABLE gives the columns of a table, which identify it; INSERT and REPLACE have its rows, with
or without a list of columns.  SET gives their character set, and whether backslashes escape.
Everything else is skipped.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from fjord import limits
from fjord.errors import FjordError
from fjord.sql import shape
from fjord.sql.shape import Cell, Found, Odd

# What is read at a time, at least.
READ_BYTES: Final = 256 * limits.KIB
# The largest value in JSON, with each byte escaped.
TOKEN_BYTES_MAX: Final = 16 * limits.MIB
_DELIMITER_BYTES_MAX: Final = 16


class CutShortError(FjordError):
    """The text ends in the middle of a statement."""


class TokenKind(enum.StrEnum):
    """Kinds of tokens; most have the names of their groups in the regular expression."""

    WORD = "word"  # a keyword, a name or a number
    NAME = "name"  # a name in backticks, without them
    STRING = "string"  # its content, with nothing escaped
    MARK = "mark"  # any other byte
    TOO_LONG = "too long"
    END = "end"  # of the text


class Token(NamedTuple):
    """A piece of SQL."""

    kind: TokenKind
    text: bytes


_END: Final = Token(TokenKind.END, b"")
_TOKEN_TOO_LONG: Final = Token(TokenKind.TOO_LONG, b"")

_QUOTES: Final = {b"'": "a string", b'"': "a string", b"`": "a name"}


def _inside(quote: bytes, *, escapes: bool) -> bytes:
    """Returns a pattern for the text between two quotes; in names a backslash escapes nothing."""
    if escapes and quote != b"`":
        return rb"(?:[^%b\\]++|\\.|%b%b)*+" % (quote, quote, quote)
    return rb"(?:[^%b]++|%b%b)*+" % (quote, quote, quote)


def _quoted(quote: bytes, *, escapes: bool) -> bytes:
    return quote + _inside(quote, escapes=escapes) + quote


# Without and with backslashes as escapes.
_INSIDE: Final = tuple(
    {quote: re.compile(_inside(quote, escapes=escapes), re.DOTALL) for quote in _QUOTES}
    for escapes in (False, True)
)
_TOKENS: Final = tuple(
    re.compile(
        rb"(?P<space>\s++)|(?P<line>\#|--(?:\s|\Z))|(?P<open>/\*M?!\d*+)|(?P<comment>/\*)"
        rb"|(?P<close>\*/)|(?P<string>%b|%b)|(?P<name>%b)"
        rb"|(?P<word>[0-9A-Za-z_$@\x80-\xff]++)|(?P<mark>.)"
        % tuple(_quoted(quote, escapes=escapes) for quote in _QUOTES),
        re.DOTALL,
    )
    for escapes in (False, True)
)
# This many bytes distinguish comments from what looks like one: `/*M!`.
_AHEAD: Final = 4
_COMMENTS: Final = ("line", "open", "comment")
_WORD: Final = re.compile(rb"[0-9A-Za-z_$@\x80-\xff]++")
# Commands for the client of MariaDB, which are not statements.
_SANDBOX: Final = re.compile(rb"\\-[^*]{0,100}+\*/")
_ESCAPES: Final = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a"}
_ESCAPED: Final = {
    b"'": re.compile(rb"\\(.)|''", re.DOTALL),
    b'"': re.compile(rb'\\(.)|""', re.DOTALL),
}


class Scanner:
    """Reads tokens.

    `text` is the part in memory, and `at` is where the next token begins; a caller that knows what
    follows may match there and move `at`.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """Takes a function that reads at most this many bytes, and none at the end."""
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
            kind, end = found.lastgroup or "", found.end()
            if kind == "space" or kind == "close":
                self.at = end
            elif self._may_go_on(kind, end) and self._more_of(found.start()):
                continue
            elif kind in _COMMENTS:
                self._pass_comment(kind, end)
            elif len(found[0]) > TOKEN_BYTES_MAX:
                return self._too_long(found[0][:1])
            elif kind == "mark" and found[0] in _QUOTES:  # its end is not in memory
                if self._more_of(found.start()):
                    continue
                if len(self.text) - self.at <= TOKEN_BYTES_MAX:
                    raise self._cut(_QUOTES[found[0]])
                return self._too_long(found[0])
            else:
                self.at = end
                return self._made(kind, found[0])

    def token_of(self, what: str = "a statement") -> Token:
        """Returns the next token, in the middle of something.

        Raises:
            CutShortError: if the text ends before it.
        """
        token = self.token()
        if token.kind is TokenKind.END:
            raise self._cut(what)
        return token

    def skip(self) -> None:
        """Skips to the end of the statement.

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
                raise self._cut("a statement")
            if self.text.startswith(self.delimiter, self.at):
                self.at += len(self.delimiter)
                return
            mark = self.text[self.at : self.at + 1]
            if mark in _QUOTES:
                self._pass_quoted(mark)
                continue
            found = _TOKENS[self.escapes].match(self.text, self.at)
            if found is not None and found.lastgroup in _COMMENTS:
                self._pass_comment(found.lastgroup, found.end())
            else:
                self.at += 1

    def passes(self, prefix: bytes) -> bool:
        """Skips a prefix if it comes next; returns whether it does."""
        is_next = self._has(len(prefix)) and self.text.startswith(prefix, self.at)
        self.at += len(prefix) if is_next else 0
        return is_next

    def rest_of_line(self) -> bytes:
        """Skips and returns the rest of this line, if it is short."""
        self._has(_DELIMITER_BYTES_MAX * 2)
        found = self.text[self.at : self.at + _DELIMITER_BYTES_MAX].partition(b"\n")[0].strip()
        self._pass(b"\n")
        return found

    # -- what is in memory ------------------------------------------------------------------------

    def _more(self) -> bool:
        """Reads more after the unused part; returns whether there was any."""
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

    def _may_go_on(self, kind: str, end: int) -> bool:
        """Returns whether the following bytes could extend a token that ends here."""
        left = len(self.text) - end
        return left == 0 or (left < _AHEAD and kind in ("mark", "comment"))

    def _more_of(self, start: int) -> bool:
        """Reads more of a token that may continue, unless it is already too long."""
        return len(self.text) - start <= TOKEN_BYTES_MAX and self._more()

    def _has(self, count: int) -> bool:
        """Reads until this many bytes are there; returns whether they are."""
        while len(self.text) - self.at < count:
            if not self._more():
                return False
        return True

    # -- going on ---------------------------------------------------------------------------------

    def _made(self, kind: str, text: bytes) -> Token:
        if kind == "name":
            text = text[1:-1].replace(b"``", b"`")
        elif kind == "string":
            text = self.unquoted(text[1:-1], text[:1])
        return Token(TokenKind(kind), text)

    def unquoted(self, text: bytes, quote: bytes = b"'") -> bytes:
        """Returns the value of the text between two quotes."""
        if not self.escapes or b"\\" not in text:
            return text.replace(quote + quote, quote)
        return _ESCAPED[quote].sub(_unescape, text)

    def _too_long(self, first: bytes) -> Token:
        if first in _QUOTES:
            self._pass_quoted(first)
            return _TOKEN_TOO_LONG
        while (found := _WORD.match(self.text, self.at)) is not None:
            self.at = found.end()
            if self.at < len(self.text) or not self._more():
                break
        return _TOKEN_TOO_LONG

    def _pass(self, end: bytes) -> None:
        """Skips past the next of these; to the end of the text if there is none."""
        while (found := self.text.find(end, self.at)) < 0:
            self.at = max(self.at, len(self.text) - len(end) + 1)
            if not self._more():
                self.at = len(self.text)
                if end == b"*/":
                    raise self._cut("a comment")
                return
        self.at = found + len(end)

    def _pass_quoted(self, quote: bytes) -> None:
        """Skips the string or name that begins here."""
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
                raise self._cut(_QUOTES[quote])

    def _pass_comment(self, kind: str, end: int) -> None:
        """Skips a comment; if it holds statements, only its beginning."""
        if kind == "line":
            self._pass(b"\n")  # which may be part of the token
            return
        self.at = end
        if kind == "comment":
            self._pass(b"*/")
            return
        self._has(100)
        sandbox = _SANDBOX.match(self.text, self.at)
        if sandbox is not None:
            self.at = sandbox.end()

    def _cut(self, what: str) -> CutShortError:
        text = f"it ends at line {self.line} in the middle of {what}: it was cut short"
        return CutShortError(text)


def _unescape(found: re.Match[bytes]) -> bytes:
    one = found[1]
    if one is None:
        return found[0][:1]  # a quote that is written twice
    if one in (b"%", b"_"):
        return found[0]  # for patterns; the backslash is part of the text
    return _ESCAPES.get(one, one)


# MySQL has no table with more.
_COLUMNS_MAX: Final = 4096
# Of one dump, that have the columns of the journal.
_TABLES_MAX: Final = 1000
_SET_BYTES_MAX: Final = 4096

_EARLY: Final = {b"LOW_PRIORITY", b"DELAYED", b"HIGH_PRIORITY", b"IGNORE", b"INTO"}
# After the rows: what to do if one already exists.
_LATE: Final = {b"ON", b"AS", b"RETURNING"}
_NO_COLUMN: Final = {
    *(b"PRIMARY", b"UNIQUE", b"KEY", b"INDEX", b"FULLTEXT", b"SPATIAL", b"CONSTRAINT"),
    *(b"FOREIGN", b"CHECK", b"PERIOD", b"EXCLUDE", b"LIKE"),
}
_UTF8: Final = {b"utf8", b"utf8mb3", b"utf8mb4", b"ascii", b"binary"}
_NAMES: Final = re.compile(rb"^SET NAMES (\w+)", re.IGNORECASE)
# A row of usual values is matched whole; all others are taken apart by tokens.
_NUMBER: Final = rb"NULL|-?\d{1,20}+"
_MATCHED_COLUMNS_MAX: Final = 64
_NO_MATCH: Final = re.compile(rb"(?!)")
_NULL: Final = b"NULL"
_QUOTE: Final = b"'"[0]
_TRUTH: Final = {b"TRUE": 1, b"FALSE": 0}
_EXPRESSION: Final = Odd("an expression, not a plain value")
_TOO_LONG: Final = Odd("too long")


class Bad(NamedTuple):
    """Something that should be a row and is not."""

    number: int  # the line on which it begins
    reason: str


class _Table(NamedTuple):
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


class _Plan(NamedTuple):
    """How the values of a row are cells."""

    places: tuple[int, ...]  # the cell of each value, -1 if none
    least: int  # how many values there are at least


class Dump:
    """The table in a dump that has the columns of the journal."""

    def __init__(
        self,
        read: Callable[[int], bytes],
        *,
        table: str = "",
        columns: Sequence[str] = shape.COLUMNS,
    ) -> None:
        """Notes what to read.

        Args:
            read: reads at most this many bytes, and none at the end.
            table: its name, perhaps with that of its schema and a dot; empty: the first that has
                the columns.
            columns: those that are wanted; a row has its cells in this order.
        """
        self._scanner = Scanner(read)
        self._wanted = tuple(table.rpartition(".")[::2])
        self._columns = columns
        self._schema = ""
        self._charset = b"utf8mb4"
        self._known: dict[_Table, list[str]] = {}
        self._table: _Table | None = None
        self.left_out: list[str] = []  # columns that are not read
        self.others: set[str] = set()  # tables that have the columns, too, and are not read

    @property
    def table(self) -> str:
        """The table that was found; empty if there is none."""
        return str(self._table or next(filter(self._fits, self._known), ""))

    def rows(self) -> Iterator[Found | Bad]:
        """Yields rows as they come.

        Raises:
            FjordError: if the dump was cut short, or cannot be read; rows before that were
                yielded.
        """
        scanner = self._scanner
        if scanner.passes(b"\xff\xfe") or scanner.passes(b"\xfe\xff"):
            raise FjordError(_UTF16)
        scanner.passes(b"\xef\xbb\xbf")
        while (token := scanner.token()).kind is not TokenKind.END:
            word = token.text.upper() if token.kind is TokenKind.WORD else b""
            if word in (b"INSERT", b"REPLACE"):
                yield from self._insert()
            elif word == b"CREATE":
                self._create()
            elif word == b"SET":
                self._set()
            elif word == b"USE":
                self._schema = _text(scanner.token())
                scanner.skip()
            elif word == b"DELIMITER":
                scanner.delimiter = scanner.rest_of_line() or b";"
            elif word == b"COPY":
                raise FjordError(
                    f"line {scanner.line} is COPY of PostgreSQL; make the dump with "
                    "pg_dump --inserts, or read the table itself with --sql"
                )
            elif token == _META:
                scanner.rest_of_line()
            elif token != _STOP:
                scanner.skip()

    # -- statements -------------------------------------------------------------------------------

    def _set(self) -> None:
        """Reads SET, for the character set and backslashes."""
        words: list[bytes] = [b"SET"]
        size = 0
        while (token := self._scanner.token_of()) != _STOP:
            size += len(token.text)
            if size > _SET_BYTES_MAX:
                self._scanner.skip()
                return
            words.append(token.text)
        text = b" ".join(words)
        names = _NAMES.match(text)
        if names is not None:
            self._charset = names[1].lower()
        upper = text.upper()
        if b"SQL_MODE =" in upper:
            self._scanner.escapes = b"NO_BACKSLASH_ESCAPES" not in upper
        if b"STANDARD_CONFORMING_STRINGS =" in upper:
            self._scanner.escapes = upper.endswith(b" OFF")

    def _create(self) -> None:
        """Reads the columns of a table, if it is one."""
        scanner = self._scanner
        token = scanner.token_of()
        while token.text.upper() in (b"OR", b"REPLACE", b"TEMPORARY"):
            token = scanner.token_of()
        if token.text.upper() == b"TABLE":
            token = scanner.token_of()
            while token.kind is TokenKind.WORD and token.text.upper() in (b"IF", b"NOT", b"EXISTS"):
                token = scanner.token_of()
            table, token = self._name(token)
            if token.text == b"(":
                columns = self._column_definitions()
                if not shape.missing(columns, self._columns) or table.name == self._wanted[1]:
                    self._known[table] = columns
                if len(self._known) > _TABLES_MAX:
                    raise FjordError(f"more than {_TABLES_MAX} tables have the wanted columns")
        if token != _STOP:
            scanner.skip()

    def _column_definitions(self) -> list[str]:
        """Reads to the end of the open bracket; returns the names of columns."""
        columns: list[str] = []
        depth, is_first = 1, True
        while depth:
            token = self._scanner.token_of()
            if token.kind is TokenKind.MARK:
                depth += (token.text == b"(") - (token.text == b")")
                is_first = depth == 1 and token.text == b","
                continue
            is_name = token.kind is TokenKind.NAME or token.text.upper() not in _NO_COLUMN
            if is_first and is_name and len(columns) < _COLUMNS_MAX:
                columns.append(_text(token).lower())
            is_first = False
        return columns

    def _name(self, token: Token) -> tuple[_Table, Token]:
        """Reads the name of a table that begins with a token; also returns the token after it."""
        first, following = _text(token), self._scanner.token_of()
        if following.text != b".":
            return _Table(self._schema, first), following
        second = _text(self._scanner.token_of())
        return _Table(first, second), self._scanner.token_of()

    def _is_wanted(self, table: _Table) -> bool:
        schema, name = self._wanted
        return not name or (name == table.name and schema in ("", table.schema))

    def _fits(self, table: _Table) -> bool:
        return self._is_wanted(table) and not shape.missing(self._known[table], self._columns)

    # -- rows -------------------------------------------------------------------------------------

    def _insert(self) -> Iterator[Found | Bad]:
        scanner, line = self._scanner, self._scanner.line
        token = scanner.token_of()
        while token.kind is TokenKind.WORD and token.text.upper() in _EARLY:
            token = scanner.token_of()
        table, token = self._name(token)
        listed: list[str] = []
        if token.text == b"(":
            listed = self._column_definitions()
            token = scanner.token_of()
        plan = self._plan(table, listed)
        if plan is None or token.text.upper() not in (b"VALUES", b"VALUE"):
            if token != _STOP:
                scanner.skip()
            if plan is not None:
                yield Bad(line, "an INSERT without VALUES is not supported")
            return
        yield from self._values(plan)

    def _plan(self, table: _Table, listed: list[str]) -> _Plan | None:
        """Returns how rows of a table are read; None if the table is not wanted.

        Raises:
            FjordError: if it is the requested table, and lacks columns.
        """
        if not self._is_wanted(table):
            return None
        is_named = self._wanted[1] != ""
        columns = listed or self._known.get(table, [])
        least = len(columns)
        if not columns and is_named:  # those of the original; the last is written, or not
            columns, least = [*shape.ORDER, shape.GENERATED], len(shape.ORDER)
        missing = shape.missing(columns, self._columns)
        if missing and is_named:
            raise FjordError(f"table {table} has no column {', '.join(missing)}")
        if missing:
            return None
        if self._table is None:
            self._table = table
            self.left_out = shape.left_out(columns, self._columns)
        if table != self._table:
            if len(self.others) < _TABLES_MAX:
                self.others.add(str(table))
            return None
        if self._charset not in _UTF8:
            raise FjordError(
                f"the dump is in {self._charset.decode('latin-1')}; make it with "
                "--default-character-set=utf8mb4"
            )
        wanted = list(self._columns)
        places = (wanted.index(one) if one in wanted else -1 for one in columns)
        return _Plan(tuple(places), least)

    def _values(self, plan: _Plan) -> Iterator[Found | Bad]:
        scanner, usual = self._scanner, _pattern(*plan, self._scanner.escapes)
        wanted = [place for place in plan.places if place >= 0]
        while True:
            found = usual.match(scanner.text, scanner.at)
            if found is not None:
                scanner.at = found.start(1)
                line = scanner.line
                scanner.at = found.end()
                yield Found(line, self._matched(wanted, found.groups()[1:]))
                continue
            line = scanner.line
            try:
                if not self._begins_row():
                    return
                line = scanner.line
                yield self._row(plan, line)
            except _NoRowError as error:
                yield Bad(line, f"{error}; the rest of its statement is skipped")
                return

    def _matched(self, wanted: list[int], texts: Sequence[bytes]) -> list[Cell]:
        """Returns the cells of a row that was matched whole."""
        cells: list[Cell] = [None] * len(self._columns)
        for place, text in zip(wanted, texts, strict=True):
            if text[0] == _QUOTE:
                cells[place] = self._scanner.unquoted(text[1:-1])
            elif text != _NULL:
                cells[place] = int(text)
        return cells

    def _begins_row(self) -> bool:
        """Skips to the next row of a statement; to its end if there is none."""
        token = self._scanner.token_of("an INSERT")
        if token.text == b",":
            token = self._scanner.token_of("an INSERT")
        if token.text == b"(":
            return True
        if token != _STOP:
            self._scanner.skip()
            if token.text.upper() not in _LATE:
                raise _NoRowError("this is not a row")
        return False

    def _row(self, plan: _Plan, line: int) -> Found | Bad:
        """Reads a row whose bracket is open, value by value."""
        cells: list[Cell] = [None] * len(self._columns)
        places, count = plan.places, 0
        end = b","
        while end == b",":
            cell, end = self._value()
            if count < len(places) and places[count] >= 0:
                cells[places[count]] = cell
            count += 1
        if not plan.least <= count <= len(places):
            return Bad(line, f"it has {count} values for {plan.least} columns")
        return Found(line, cells)

    def _value(self) -> tuple[Cell, bytes]:
        """Reads any value, token by token; returns it, and whether a comma or a bracket follows."""
        tokens: list[Token] = []
        depth = 0
        while True:
            token = self._scanner.token_of("an INSERT")
            if token.kind is TokenKind.MARK:
                if depth == 0 and token.text in (b",", b")"):
                    return _plain(tokens), token.text
                if token == _STOP:
                    raise _NoRowError("it has no end")
                depth += (token.text == b"(") - (token.text == b")")
            if len(tokens) < _TOKENS_MAX:
                tokens.append(token)


@functools.lru_cache(maxsize=16)
def _pattern(places: tuple[int, ...], least: int, escapes: bool) -> re.Pattern[bytes]:  # noqa: FBT001
    """Returns a pattern for a row of plain values: its bracket, then the wanted values."""
    if len(places) > _MATCHED_COLUMNS_MAX:
        return _NO_MATCH
    value = _NUMBER + b"|" + _quoted(b"'", escapes=escapes)
    values = [rb"\s*+(%b%b)\s*+" % (b"" if place >= 0 else b"?:", value) for place in places]
    rest = b"".join(b"(?:," + one + b")?+" for one in values[least:])
    return re.compile(rb"\s*+,?\s*+(\()" + b",".join(values[:least]) + rest + rb"\)", re.DOTALL)


class _NoRowError(Exception):
    """What follows is not the rest of a row."""


_STOP: Final = Token(TokenKind.MARK, b";")
_META: Final = Token(TokenKind.MARK, b"\\")  # a line for the client of PostgreSQL
_UTF16: Final = (
    "the dump is in UTF-16, as some shells write what a program prints; make it with "
    "mysqldump --result-file=FILE"
)
# Of a plain value: a sign and a number, or an introducer and a string; one more shows that it is
# none.
_TOKENS_MAX: Final = 3


def _plain(tokens: list[Token]) -> Cell:
    """Returns the value of some tokens."""
    if any(token.kind is TokenKind.TOO_LONG for token in tokens):
        return _TOO_LONG
    if len(tokens) == 2:
        first, second = tokens[0], tokens[1]
        if first.text in (b"-", b"+") and second.kind is TokenKind.WORD:
            number = _word(second.text)
            sign = -1 if first.text == b"-" else 1
            return sign * number if isinstance(number, int) else _EXPRESSION
        if first.kind is TokenKind.WORD:
            return _introduced(first.text.upper(), second)
    if len(tokens) != 1:
        return _EXPRESSION
    (token,) = tokens
    if token.kind is TokenKind.STRING:
        return token.text
    return _word(token.text) if token.kind is TokenKind.WORD else _EXPRESSION


def _introduced(introducer: bytes, token: Token) -> Cell:
    """Returns the value of a string with a prefix, such as X'6162'."""
    if introducer == b"X" and token.kind is TokenKind.STRING:
        return _from_hex(token.text)
    if introducer == b"N" and token.kind is TokenKind.STRING:
        return token.text
    if introducer.lower().removeprefix(b"_") in _UTF8 and introducer[:1] == b"_":
        return _plain([token])
    return _EXPRESSION


def _word(word: bytes) -> Cell:
    upper = word.upper()
    if upper == b"NULL":
        return None
    if upper.isdigit() and len(upper) <= 20:
        return int(upper)
    if upper.startswith(b"0X"):
        return _from_hex(word[2:])
    return _TRUTH.get(upper, _EXPRESSION)


def _from_hex(digits: bytes) -> Cell:
    try:
        return bytes.fromhex(digits.decode("latin-1"))
    except ValueError:
        return Odd("no hexadecimal number")


def _text(token: Token) -> str:
    return token.text.decode(errors="replace")
