"""SQL as tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.sql import dump
from fjord.sql.dump import CutShortError, Scanner, Token, TokenKind
from tests.unit.sql.reading import bytewise, endless, whole

SAMPLES = [
    (b"", []),
    (b" \n\t", []),
    (b"SELECT 15", [(TokenKind.WORD, b"SELECT"), (TokenKind.WORD, b"15")]),
    (b"`a``b`", [(TokenKind.NAME, b"a`b")]),
    (b"'a''b'", [(TokenKind.STRING, b"a'b")]),
    (rb"'\0\b\n\r\t\Z\\\'\"\x\%\_'", [(TokenKind.STRING, b"\0\b\n\r\t\x1a\\'\"x\\%\\_")]),
    (b'"a""b\'\'c\\n"', [(TokenKind.STRING, b"a\"b''c\n")]),
    (b"'a' 'b'", [(TokenKind.STRING, b"a"), (TokenKind.STRING, b"b")]),
    (b"-- it's\na", [(TokenKind.WORD, b"a")]),
    (b"--", []),
    (b"--a", [(TokenKind.MARK, b"-"), (TokenKind.MARK, b"-"), (TokenKind.WORD, b"a")]),
    (b"# it's\na", [(TokenKind.WORD, b"a")]),
    (b"/* it's */a", [(TokenKind.WORD, b"a")]),
    (b"/**/a", [(TokenKind.WORD, b"a")]),
    (b"/*!40101 SET */;", [(TokenKind.WORD, b"SET"), (TokenKind.MARK, b";")]),
    (b"/*M!100100 SET */;", [(TokenKind.WORD, b"SET"), (TokenKind.MARK, b";")]),
    (b"/*M!999999\\- enable the sandbox mode */ a", [(TokenKind.WORD, b"a")]),
    (
        b"a/b*c",
        [
            (TokenKind.WORD, b"a"),
            (TokenKind.MARK, b"/"),
            (TokenKind.WORD, b"b"),
            (TokenKind.MARK, b"*"),
            (TokenKind.WORD, b"c"),
        ],
    ),
]


def tokens(scanner: Scanner) -> list[Token]:
    found = []
    while (token := scanner.token()).kind is not TokenKind.END:
        found.append(token)
    return found


@pytest.mark.parametrize("reader", [whole, bytewise], ids=["whole", "bytewise"])
@pytest.mark.parametrize(("text", "wanted"), SAMPLES)
def test_text_is_taken_apart(
    text: bytes, wanted: list[Token], reader: Callable[[bytes], Callable[[int], bytes]]
) -> None:
    assert tokens(Scanner(reader(text))) == wanted


@pytest.mark.parametrize("reader", [whole, bytewise], ids=["whole", "bytewise"])
@pytest.mark.parametrize(
    "statement",
    [
        *(b";", b"a;", b"'a;' \"b;\" `c;`;", b"'a'';\\';';", b"/* ; */;", b"/*!1 a */;"),
        *(b"/*M!1 'b;' */;", b"a -- ;\n;", b"a # ;\n;", b"a - b / c;", b"a--b;"),
    ],
)
def test_a_statement_is_skipped(
    statement: bytes, reader: Callable[[bytes], Callable[[int], bytes]]
) -> None:
    scanner = Scanner(reader(statement + b"next"))
    scanner.skip()
    assert tokens(scanner) == [(TokenKind.WORD, b"next")]


@pytest.mark.parametrize("reader", [whole, bytewise], ids=["whole", "bytewise"])
def test_lines_are_counted_in_strings_and_comments_too(
    reader: Callable[[bytes], Callable[[int], bytes]],
) -> None:
    scanner = Scanner(reader(b"a\n'\n' /*\n*/ -- \n`\n`\n;\nb"))
    scanner.skip()
    assert scanner.line == 7
    assert (scanner.token().text, scanner.line) == (b"b", 8)


# -- bounds ---------------------------------------------------------------------------------------

PIECE = dump.READ_BYTES
TOKEN_BYTES_MAX = 4 * PIECE


@pytest.fixture(autouse=True)
def _smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a text that is too long be a short one."""
    monkeypatch.setattr(dump, "TOKEN_BYTES_MAX", TOKEN_BYTES_MAX)


def long_text(first: bytes, unit: bytes, last: bytes) -> Callable[[int], bytes]:
    """Returns what reads four times as much as a token may have."""
    count = 4 * TOKEN_BYTES_MAX // PIECE
    return endless(
        itertools.chain([first], itertools.repeat(unit * (PIECE // len(unit)), count), [last])
    )


@pytest.mark.parametrize(
    ("first", "unit", "last"),
    [
        *((b"'", b"ab", b"'"), (b"'", b"''", b"'"), (b"'", b"\\'", b"'"), (b"`", b"ab", b"`")),
        (b"", b"ab", b" "),
    ],
)
def test_a_token_that_is_too_long_is_passed_over(first: bytes, unit: bytes, last: bytes) -> None:
    scanner = Scanner(long_text(first, unit, last + b" next"))
    assert scanner.token().kind is TokenKind.TOO_LONG
    assert len(scanner.text) <= 3 * TOKEN_BYTES_MAX
    assert tokens(scanner) == [(TokenKind.WORD, b"next")]


# -- anything -------------------------------------------------------------------------------------

PIECES = st.lists(
    st.sampled_from(
        [
            *(b"'", b'"', b"`", b"\\", b"/*", b"/*!", b"/*M!", b"*/", b"--", b" ", b"\n", b"#"),
            *(b";", b"a"),
        ]
    ),
    max_size=12,
)


@given(PIECES, st.integers(1, 5))
def test_pieces_make_no_difference(pieces: list[bytes], step: int) -> None:
    text = b"".join(pieces)
    assert outcome(Scanner(whole(text))) == outcome(Scanner(bytewise(text, step)))


def outcome(scanner: Scanner) -> tuple[list[Token], str, int]:
    found: list[Token] = []
    try:
        while (token := scanner.token()).kind is not TokenKind.END:
            found.append(token)
    except CutShortError as error:
        return found, str(error), 0
    return found, "", scanner.line
