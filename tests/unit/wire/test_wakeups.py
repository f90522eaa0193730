"""Wake-ups: bytes and back, whatever comes, copies, and where they go to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.wire.wakeups import (
    EVERYBODY,
    HEADER,
    SPOOL,
    WAKEUP_BYTES_MAX,
    Heard,
    Wakeup,
    What,
    decode,
    encode,
    is_shared,
    parse_address,
)

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
NUMBERS = st.integers(0, 2**64 - 1)
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}", fullmatch=True)
SAMPLE = Wakeup(What.ARRIVED, "pages", 0x0102030405060708, 1)
WAKEUPS = st.one_of(
    st.builds(
        Wakeup,
        st.sampled_from([What.ARRIVED, What.DUE, What.CHANGED]),
        NAMES,
        NUMBERS,
        st.integers(1, 2**64 - 1),
    ),
    st.builds(
        Wakeup, st.just(What.WRITTEN), st.just(SPOOL), NUMBERS, st.integers(1, 2**64 - 1)
    ),
)  # fmt: skip


@given(WAKEUPS)
def test_what_is_sent_is_what_is_heard(wakeup: Wakeup) -> None:
    datagram = encode(wakeup)
    assert len(datagram) <= WAKEUP_BYTES_MAX < 512
    assert decode(datagram) == wakeup


@pytest.mark.parametrize(
    "wrong",
    [
        HEADER.pack(b"FJ", 1, 1, 1, 1, 5) + b"pages",
        HEADER.pack(b"FW", 0, 1, 1, 1, 5) + b"pages",
        HEADER.pack(b"FW", 2, 1, 1, 1, 5) + b"pages",
        HEADER.pack(b"FW", 1, 0, 1, 1, 5) + b"pages",
        HEADER.pack(b"FW", 1, 5, 1, 1, 5) + b"pages",
        HEADER.pack(b"FW", 1, 1, 1, 0, 5) + b"pages",
        HEADER.pack(b"FW", 1, 1, 1, 1, 4) + b"pages",
        HEADER.pack(b"FW", 1, 1, 1, 1, 0),
        HEADER.pack(b"FW", 1, 4, 1, 1, 5) + b"pages",
        HEADER.pack(b"FW", 1, 1, 1, 1, 5) + b"p.ges",
        HEADER.pack(b"FW", 1, 1, 1, 1, 5) + b"p\xc3\xa4ge",
        HEADER.pack(b"FW", 1, 1, 1, 1, 5) + b"page\n",
        HEADER.pack(b"FW", 1, 1, 1, 1, 5) + b"-ages",
        HEADER.pack(b"FW", 1, 1, 1, 1, 129) + b"p" * 129,
        b"",
    ],
    ids=bytes.hex,
)
def test_anything_else_is_no_wakeup(wrong: bytes) -> None:
    assert decode(wrong) is None


def test_the_page_shows_its_bytes() -> None:
    section = PAGE[PAGE.index("## Wake-ups over UDP") :]
    example = section[section.index("```\n") + 4 :]
    lines = example[: example.index("```")].splitlines()
    found = [re.match(r"((?:[0-9a-f]{2} )+)", line) for line in lines]
    shown = b"".join(bytes.fromhex(match[1]) for match in found if match)
    assert shown == encode(SAMPLE)
    missing = [what.name for what in What if f"| {what.value} | `{what.name}` |" not in section]
    assert missing == []


# -- copies ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=50))
def test_each_is_news_once_in_whatever_order_they_come(seen: list[tuple[int, int]]) -> None:
    heard = Heard()
    news = [pair for pair in seen if heard.is_new(Wakeup(What.DUE, "t", *pair))]
    assert news == list(dict.fromkeys(seen))


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [
        *((17995, EVERYBODY, 17995), ("17995", EVERYBODY, 17995)),
        *(("127.0.0.1:1", "127.0.0.1", 1), ("127.255.255.255:65535", EVERYBODY, 65535)),
        *(("127.0.0.7:5", "127.0.0.7", 5), ("localhost:5", "127.0.0.1", 5)),
        ("[::1]:5", "::1", 5),
    ],
)
def test_an_address_is_of_this_machine(given: str | int, host: str, port: int) -> None:
    assert parse_address(given) == (host, port)
    assert is_shared((host, port)) == (host == EVERYBODY)


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "0", 0, -1, 65536, "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:x"),
        *(":5", "example.com:5", "[::1:5", "127.0.0.1:²", "127.0.0.1:5 ", "1.2.3:5"),
    ],
)
def test_what_is_no_address_is_refused(wrong: str | int) -> None:
    with pytest.raises(ValueError, match="not an address for wake-ups"):
        parse_address(wrong)
