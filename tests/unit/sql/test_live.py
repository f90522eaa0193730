"""Addresses of databases, and drivers that are not there; the rest needs a database."""

from __future__ import annotations

import sys

import pytest

from fjord.errors import FjordError, UsageError
from fjord.sql import live, shape
from fjord.sql.live import Live


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        (
            "mysql://snap:se%40cret@db.example/snaplist",
            ("mysql", "db.example", 3306, "snap", "se@cret", "snaplist", ""),
        ),
        (
            "mariadb:///a%20b?unix_socket=/run/s.sock",
            ("mariadb", "localhost", 3306, "", "", "a b", "/run/s.sock"),
        ),
        (
            "postgresql://u@[::1]:5433/db?host=/run/postgresql",
            ("postgresql", "::1", 5433, "u", "", "db", "/run/postgresql"),
        ),
    ],
)
def test_an_address_is_read(url: str, parts: tuple[object, ...]) -> None:
    names = ("scheme", "host", "port", "user", "password", "database", "socket")
    found = live.parse(url)
    assert tuple(getattr(found, name) for name in names) == parts


def test_a_password_is_not_shown() -> None:
    address = live.parse("mysql://snap:secret@db.example/snaplist")
    assert str(address) == "mysql://snap@db.example/snaplist"
    assert "secret" not in repr(address)
    address = live.parse("mysql://snap:secret@db.example:3307/snaplist")
    assert str(address) == "mysql://snap@db.example:3307/snaplist"


@pytest.mark.parametrize(
    "url",
    [
        *("", "secret", "oracle://u:secret@h/db", "mysql://u:secret@h", "mysql://u:secret@/db"),
        *("mysql://u:secret@h:port/db", "mysql://u:secret@h/db?ssl=1"),
        *("mysql://u:secret@h/db?secret", "mysql://[secret/db"),
    ],
)
def test_what_is_no_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError, match="--sql needs an address") as caught:
        live.parse(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "driver"), [("mysql", "pymysql"), ("mariadb", "pymysql"), ("postgresql", "psycopg")]
)
def test_a_driver_that_is_not_there_is_named_with_the_extra(
    scheme: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    table = Live(live.parse(f"{scheme}://u:p@127.0.0.1:1/db"), "journal", shape.COLUMNS)
    with pytest.raises(FjordError, match=rf"needs {driver}: .*fjord-journal\[sql\]"):
        table.opened().__enter__()


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_a_server_that_is_not_there_is_told_without_the_password(scheme: str) -> None:
    table = Live(live.parse(f"{scheme}://u:secret@127.0.0.1:1/db"), "journal", shape.COLUMNS)
    with pytest.raises(FjordError, match=rf"{scheme}://u@127.0.0.1:1/db: ") as caught:
        table.opened().__enter__()
    assert "secret" not in str(caught.value)
