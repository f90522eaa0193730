"""Regular expressions over keys: RE2, bounded, and never narrower than what they match."""

from __future__ import annotations

import pytest
import re2  # type: ignore[import-untyped]
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.commands import Refusal
from fjord.errors import Code
from fjord.tables.kv import read
from fjord.tables.kv.read import Matcher
from tests.unit.tables.world import code_of


def compiled(regex: bytes) -> Matcher:
    found = read.compiled(regex)
    assert isinstance(found, Matcher), found
    return found


def refusal(regex: bytes) -> Refusal:
    found = read.compiled(regex)
    assert code_of(found) is Code.BAD_REGEX
    return found


def test_an_expression_is_found_anywhere_in_a_key() -> None:
    matcher = compiled(rb"b+c")
    assert matcher.finds(b"abbcd")
    assert not matcher.finds(b"abbd")


def test_one_byte_is_one_character() -> None:
    assert compiled(b"^.$").finds(b"\xff")
    assert compiled(b"^\xff\xfe$").finds(b"\xff\xfe")
    assert compiled(rb"^\x00..$").finds(b"\0\xc3\xa9")
    assert compiled("^é$".encode()).finds("é".encode())


@pytest.mark.parametrize(
    "regex",
    [
        b"(",
        b"[",
        b"*a",
        rb"(a)\1",
        b"(?=a)",
        b"(?<!a)b",
        b"a{1,100000}",
        b"(?:a{1,100}){1,100}",
        b"(?P<n>a",
        b"\\",
    ],
)
def test_what_re2_does_not_take_is_refused(regex: bytes) -> None:
    text = refusal(regex).text
    assert text.isascii()
    assert text.isprintable()


def test_an_expression_that_is_too_large_a_program_is_refused() -> None:
    assert "too large" in refusal(b"(?:a|b|ab|ba|abc){900}x{1000}").text


@pytest.mark.parametrize("regex", [b"^(a|a)*$", b"(a+)+b", b"(x+x+)+y", b"(.*)*$"])
def test_no_expression_takes_more_than_its_keys_have_bytes(regex: bytes) -> None:
    """Python's own would take for ever with these."""
    matcher = compiled(regex)
    for _ in range(1000):
        matcher.finds(b"a" * limits.KV_KEY_BYTES_MAX)
    assert matcher.steps < 100


@pytest.mark.parametrize(
    ("regex", "first", "last"),
    [
        (b"^abc", b"abc", b"abd"),
        (rb"\Aabc", b"abc", b"abd"),
        (rb"^user:\d+$", b"user:0", b"user:9:"),
        (b"^(?:a|b)c", b"ac", b"bd"),
        (b"^abc$", b"abc", b"abc"),
    ],
)
def test_an_anchored_expression_says_where_to_look(regex: bytes, first: bytes, last: bytes) -> None:
    matcher = compiled(regex)
    assert (matcher.first, matcher.last) == (first, last)


@pytest.mark.parametrize(
    "regex",
    [
        b"abc",
        b"^abc|b",
        b"^*abc",
        b"^?abc",
        b"^{0,1}abc",
        b"(?m)^abc",
        b"(?:^abc)|x",
        b"^[|]a|b",
        rb"^\|a|b",
        rb"^\Q(\E|b",
        b"^\xff",
        b"^",
        b"",
        b"(?i)^abc",
    ],
)
def test_any_other_looks_everywhere(regex: bytes) -> None:
    matcher = compiled(regex)
    assert (matcher.first, matcher.last) == (b"", None)


pieces = st.sampled_from(
    [
        b"a", b"b", b"z", b"\xff", b".", b"^", b"$", rb"\A", rb"\z", b"|", b"(", b")", b"(?:",
        b"[ab]", b"[^a]", b"*", b"+", b"?", b"{2}", b"{0,1}", rb"\d", rb"\|", b"[|]", b"(?i)",
        b"(?s)", b"(?m)", rb"\b", rb"\Q", rb"\E", rb"\x00", b"a|b",
    ]
)  # fmt: skip
keys_st = st.lists(
    st.text(alphabet="abzAB09|(\x00\xff\n", max_size=5).map(lambda text: text.encode("latin-1")),
    min_size=1,
    max_size=20,
)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from([b"", b"^", b"^", rb"\A"]), st.lists(pieces, max_size=6).map(b"".join), keys_st
)
def test_no_key_that_matches_is_outside_of_the_bounds(
    anchor: bytes, rest: bytes, keys: list[bytes]
) -> None:
    found = read.compiled(anchor + rest)
    assume(isinstance(found, Matcher))
    assert isinstance(found, Matcher)
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    plain = re2.compile(anchor + rest, options)
    for key in keys:
        assert found.finds(key) is (plain.search(key) is not None)
        if found.finds(key):
            assert key >= found.first
            assert found.last is None or key <= found.last


def test_compiled_expressions_are_kept_in_bounds() -> None:
    for number in range(limits.REGEX_KEPT * 3):
        compiled(b"^%d" % number)
    assert read.compiled.cache_info().currsize <= limits.REGEX_KEPT
    assert re2._Regexp._make.cache_info().currsize == 0
