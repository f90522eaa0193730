"""Addresses of daemons."""

from __future__ import annotations

import pytest

from fjord.client.address import DEFAULT_PORT, parse_url, split_url
from fjord.errors import FjordError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("fjord://127.0.0.1:17994", ("127.0.0.1", 17994)),
        ("fjord://localhost:1", ("localhost", 1)),
        ("fjord://localhost:65535/", ("localhost", 65535)),
        ("fjord://db.example.com", ("db.example.com", DEFAULT_PORT)),
        *(("fjord://[::1]:9999", ("::1", 9999)), ("fjord://[::1]", ("::1", DEFAULT_PORT))),
        *(("localhost:9999", ("localhost", 9999)), ("localhost", ("localhost", DEFAULT_PORT))),
        ("FJORD://localhost:9", ("localhost", 9)),
    ],
)
def test_host_and_port_are_found(url: str, expected: tuple[str, int]) -> None:
    assert parse_url(url) == expected


def test_a_port_that_is_not_named_is_none() -> None:
    assert split_url("fjord://localhost:1") == ("localhost", 1)
    for url in ("localhost", "localhost:", "fjord://localhost", "fjord://localhost/"):
        assert split_url(url) == ("localhost", None)


@pytest.mark.parametrize(
    "url",
    [
        *("", "fjord://", "fjord://:17994", "http://localhost:17994", "redis://localhost"),
        *("fjord://localhost:17994/table", "fjord://localhost:port", "fjord://localhost:65536"),
        *("fjord://localhost:-1", "fjord://[::1"),
    ],
)
def test_what_is_no_address_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(FjordError) as caught:
        parse_url(url)
    assert type(caught.value) is FjordError
    assert url in str(caught.value)
