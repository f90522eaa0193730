"""RANGE: entries in order, pages that are bounded in every way, and nothing left out between."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import re2  # type: ignore[import-untyped]
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.commands import Page, Range, Refusal
from fjord.errors import Code
from fjord.layouts import PREFIX_BYTES
from fjord.tables.kv import read
from fjord.tables.kv.read import Matcher
from fjord.values import Value
from tests.unit.tables.world import MISSING, World, code_of, items_of

BOTH = pytest.mark.parametrize("persist", [True, False], ids=["stored", "in-memory"])


@pytest.fixture
def world() -> World:
    made = World()
    made.set({b"%02d" % number: number for number in range(20)})
    return made


def page(world: World, **wanted: object) -> Page:
    reply = world.run(Range(table="t", **wanted))  # type: ignore[arg-type]
    assert isinstance(reply, Page), reply
    return reply


def keys(world: World, **wanted: object) -> list[bytes]:
    return page(world, **wanted).keys.rows()


def all_pages(world: World, wanted: Range) -> tuple[list[bytes], int]:
    """Asks until there is no more; returns all keys, and how many pages there were."""
    found: list[bytes] = []
    for count in range(1, 10_000):
        reply = world.run(wanted)
        assert isinstance(reply, Page), reply
        found += reply.keys.rows()
        if not reply.next_key:
            return found, count
        assert not found or reply.next_key > found[-1]
        wanted = replace(wanted, start=reply.next_key)
    raise AssertionError("pages without an end")


# -- the range ------------------------------------------------------------------------------------


@pytest.mark.req("FJ-45")
@BOTH
def test_a_range_has_its_first_key_and_not_its_last(persist: bool) -> None:
    world = World()
    world.set({b"%02d" % number: number for number in range(20)}, persist=persist)
    found = page(world, start=b"05", stop=b"08")
    assert items_of(found) == {b"05": 5, b"06": 6, b"07": 7}
    assert found.next_key == b""


def test_a_range_that_ends_before_it_begins_is_refused(world: World) -> None:
    assert code_of(world.run(Range(table="t", start=b"2", stop=b"1"))) is Code.BAD_RANGE
    assert code_of(world.run(Range(table="none", start=b"2", stop=b"1"))) is Code.BAD_RANGE


def test_bounds_are_no_longer_than_keys(world: World) -> None:
    longest = b"k" * limits.KV_KEY_BYTES_MAX
    assert code_of(world.run(Range(table="t", start=longest, stop=longest))) is None
    assert code_of(world.run(Range(table="t", start=longest + b"k"))) is Code.KEY_TOO_LONG
    assert code_of(world.run(Range(table="t", stop=longest + b"k"))) is Code.KEY_TOO_LONG


# -- entries --------------------------------------------------------------------------------------


@pytest.mark.req("FJ-46")
@BOTH
def test_what_is_worked_on_is_left_out_when_asked(world: World, persist: bool) -> None:
    world.set({b"05": 1}, at=1, persist=persist)
    world.touch(b"05", worked=10)
    assert keys(world, start=b"04", stop=b"07") == [b"04", b"05", b"06"]
    assert keys(world, start=b"04", stop=b"07", skip_worked=True) == [b"04", b"06"]
    world.lease_us += 10
    assert keys(world, start=b"04", stop=b"07", skip_worked=True) == [b"04", b"05", b"06"]


@pytest.mark.req("FJ-45")
def test_a_probe_reads_no_data(world: World) -> None:
    found = page(world, stop=b"02", with_data=False)
    assert found.entries.types == b"\3\3"
    assert found.entries.values.rows() == [b"", b""]
    assert world.payload_reads == 0


# -- pages ----------------------------------------------------------------------------------------


@pytest.mark.req("FJ-43")
def test_a_page_has_as_many_entries_as_were_asked_for(world: World) -> None:
    found = page(world, start=b"03", count=4)
    assert found.keys.rows() == [b"03", b"04", b"05", b"06"]
    assert found.next_key == b"07"
    last = page(world, start=b"18", count=2)
    assert (len(last.keys), last.next_key) == (2, b"")


@pytest.mark.req("FJ-43")
def test_a_count_of_0_is_the_servers_maximum() -> None:
    world = World()
    world.set({b"%05d" % number: None for number in range(limits.PAGE_ENTRIES_MAX + 1)})
    for count in (0, 65_535, limits.PAGE_ENTRIES_MAX):
        found = page(world, count=count)
        assert len(found.keys) == limits.PAGE_ENTRIES_MAX
        assert found.next_key == b"%05d" % limits.PAGE_ENTRIES_MAX
    rest = page(world, start=found.next_key)
    assert (len(rest.keys), rest.next_key) == (1, b"")


def test_a_count_below_0_is_refused(world: World) -> None:
    assert code_of(world.run(Range(table="t", count=-1))) is Code.BAD_COUNT


@BOTH
def test_a_page_ends_where_it_would_be_too_large(persist: bool) -> None:
    world = World()
    size = limits.PAGE_BYTES_MAX // 8
    for number in range(10):
        world.set({b"%03d" % number: bytes(size)}, persist=persist)
    first = page(world)
    assert len(first.keys) == 7  # the keys count too, so 8 are too many
    assert len(first.entries.values.data) == 7 * size
    assert first.next_key == b"007"
    found, pages = all_pages(world, Range(table="t"))
    assert (len(found), pages) == (10, 2)
    assert len(page(world, with_data=False).keys) == 10


def test_a_page_may_be_exactly_as_large_as_pages_are(world: World) -> None:
    world = World()
    key_bytes = PREFIX_BYTES + 1
    half = limits.PAGE_BYTES_MAX // 2 - key_bytes
    world.set({b"a": bytes(half), b"b": bytes(half), b"c": b""})
    found = page(world)
    assert (found.keys.rows(), found.next_key) == ([b"a", b"b"], b"c")
    world.set({b"b": bytes(half + 1)}, at=1)
    found = page(world)
    assert (found.keys.rows(), found.next_key) == ([b"a"], b"b")


@BOTH
def test_the_first_value_of_a_page_comes_however_large(persist: bool) -> None:
    assert limits.VALUE_BYTES_MAX >= limits.PAGE_BYTES_MAX
    world = World()
    large = bytes(limits.VALUE_BYTES_MAX)
    world.set({b"a": b"small", b"b": large}, persist=persist)
    world.set({b"c": large, b"d": b"small"}, persist=persist)
    pages = []
    start: bytes = b"a"
    while start:
        found = page(world, start=start)
        pages.append(found.keys.rows())
        start = found.next_key
    assert pages == [[b"a"], [b"b"], [b"c"], [b"d"]]
    assert items_of(page(world, start=b"c")) == {b"c": large}


def test_a_page_ends_when_enough_was_examined() -> None:
    world = World()
    many = [b"%05d" % number for number in range(limits.EXAMINED_ENTRIES_MAX + 5)]
    world.set(dict.fromkeys(many))
    world.delete(*many[:-1], at=1)
    first = page(world, count=3)
    assert first.keys.rows() == []
    assert first.next_key == many[limits.EXAMINED_ENTRIES_MAX]
    assert all_pages(world, Range(table="t", count=3)) == ([many[-1]], 2)


def test_a_match_that_takes_much_work_takes_more_pages() -> None:
    world = World()
    many = [b"%03d" % number + b"ab" * 200 for number in range(200)]
    world.set(dict.fromkeys(many))
    hard = b"[ab]*a[ab]{201}$"
    found, pages = all_pages(world, Range(table="t", regex=hard))
    assert found == many
    assert pages > 1


# -- regular expressions --------------------------------------------------------------------------


@pytest.mark.req("FJ-45")
@BOTH
def test_a_match_lists_the_keys_in_which_it_is_found(persist: bool) -> None:
    world = World()
    names = [b"user:1", b"user:22", b"user:x", b"a user:3", b"other"]
    world.set(dict.fromkeys(names, 1), persist=persist)
    assert keys(world, regex=rb"^user:\d+$") == [b"user:1", b"user:22"]
    assert keys(world, regex=rb"user:\d") == [b"a user:3", b"user:1", b"user:22"]
    assert keys(world, regex=b"^none") == []


@pytest.mark.parametrize("regex", [b"(", b"(?=a)", rb"(a)\1", b"a" * 257])
def test_a_bad_expression_is_refused(world: World, regex: bytes) -> None:
    assert code_of(world.run(Range(table="t", regex=regex))) is Code.BAD_REGEX
    assert code_of(world.run(Range(table="none", regex=regex))) is Code.BAD_REGEX


# -- all together ---------------------------------------------------------------------------------

some_keys = st.lists(st.text(alphabet="ab\x00\xff", min_size=1, max_size=4), max_size=12)


@settings(max_examples=80, deadline=None)
@given(
    stored=some_keys,
    volatile=some_keys,
    gone=some_keys,
    start=st.text(alphabet="ab\xff", max_size=2),
    stop=st.text(alphabet="ab\xff", max_size=2),
    count=st.integers(0, 4),
    regex=st.sampled_from([b"", b"a", b"^a", b"^[ab]b?", b"b$", b"\xff"]),
)
def test_pages_together_are_the_whole_range(
    stored: list[str],
    volatile: list[str],
    gone: list[str],
    start: str,
    stop: str,
    count: int,
    regex: bytes,
) -> None:
    world = World()
    world.set({b"before": 0}, table="s")
    model: dict[bytes, Value] = {}
    for name in stored:
        model[name.encode("latin-1")] = "stored"
        world.set({name.encode("latin-1"): "stored"})
    for name in gone:
        model.pop(name.encode("latin-1"), None)
        world.delete(name.encode("latin-1"))
    for name in volatile:
        model[name.encode("latin-1")] = "memory"
        world.set({name.encode("latin-1"): "memory"}, persist=False)
    world.set({b"after": 0}, table="u")
    first, last = start.encode("latin-1"), stop.encode("latin-1")
    wanted = Range(table="t", start=first, stop=last, count=count, regex=regex)
    if last and first > last:
        assert code_of(world.run(wanted)) is Code.BAD_RANGE
        return
    found, _ = all_pages(world, wanted)
    assert found == sorted(
        key
        for key in model
        if key >= first and (not last or key < last) and re.search(regex, key, re.DOTALL)
    )
    assert world.get(*found or [b"-"]) == [model.get(key, MISSING) for key in found or [b"-"]]


# -- regular expressions over keys ----------------------------------------------------------------


def compiled(regex: bytes) -> Matcher:
    found = read.compiled(regex)
    assert isinstance(found, Matcher), found
    return found


def refusal(regex: bytes) -> Refusal:
    found = read.compiled(regex)
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_REGEX
    return found


def test_one_byte_is_one_character() -> None:
    assert compiled(b"^.$").finds(b"\xff")
    assert compiled(b"^\xff\xfe$").finds(b"\xff\xfe")
    assert compiled(rb"^\x00..$").finds(b"\0\xc3\xa9")
    assert compiled("^é$".encode()).finds("é".encode())


@pytest.mark.parametrize(
    "regex",
    [
        *(b"(", b"[", b"*a", rb"(a)\1", b"(?=a)", b"(?<!a)b", b"a{1,100000}"),
        *(b"(?:a{1,100}){1,100}", b"(?P<n>a", b"\\"),
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
        *(b"abc", b"^abc|b", b"^*abc", b"^?abc", b"^{0,1}abc", b"(?m)^abc", b"(?:^abc)|x"),
        *(b"^[|]a|b", rb"^\|a|b", rb"^\Q(\E|b", b"^\xff", b"^", b"", b"(?i)^abc"),
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
