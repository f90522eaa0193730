"""Rows of records, for people who look at a spool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fjord
from fjord.client.spool import records, survey
from fjord.client.spool import writer as module
from fjord.client.spool.files import SpoolFile
from fjord.client.spool.records import RecordRow, rows_of
from fjord.columns import Strings
from fjord.commands import Erase
from fjord.testing import SimClock


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimClock:
    """No hour ends, so there is one file."""
    found = SimClock()
    monkeypatch.setattr(module, "SystemClock", lambda: found)
    return found


def written(path: Path, write: Callable[[fjord.Spool], None]) -> list[RecordRow]:
    """Returns the rows of what somebody writes to a spool."""
    with fjord.spool(path) as spool:
        write(spool)
    (name,) = (file.name for file in path.glob("*.spool"))
    file = SpoolFile(str(path), name, is_writable=False)
    try:
        return [row for found in survey.walk(file) for one in found.records for row in rows_of(one)]
    finally:
        file.close()


def test_a_job_has_all_that_was_given(tmp_path: Path) -> None:
    def write(spool: fjord.Spool) -> None:
        spool.jobs("pages").push("key", 7, priority=3, delay=10, domain="example.com")

    (row,) = written(tmp_path, write)
    assert (row.what, row.table, row.key, row.type) == ("push", "pages", b"key", 3)
    assert (row.value, row.domain, row.priority) == ((7).to_bytes(8, "little"), b"example.com", 3)
    assert (row.due_us - row.stamp_us, row.expires_us) == (10_000_000, 0)


def test_many_rows_are_one_record(tmp_path: Path) -> None:
    def write(spool: fjord.Spool) -> None:
        spool.jobs("pages").push_many(keys=["a", "b"], values=[b"x", b"y"])
        spool.stream("events").append_many([b"m", b"n"], keys=["k", ""])
        spool.kv("settings").set_many({"s": b"1", "t": b"2"}, ttl=5)
        spool.kv("settings").delete_many(["u", "v"])

    rows = written(tmp_path, write)
    assert [(row.what, row.table, row.key, row.value) for row in rows] == [
        ("push", "pages", b"a", b"x"),
        ("push", "pages", b"b", b"y"),
        ("append", "events", b"k", b"m"),
        ("append", "events", b"", b"n"),
        ("set", "settings", b"s", b"1"),
        ("set", "settings", b"t", b"2"),
        ("delete", "settings", b"u", b""),
        ("delete", "settings", b"v", b""),
    ]
    assert {0 <= row.expires_us - row.stamp_us - 5_000_000 < 100_000 for row in rows[4:6]} == {True}
    assert [row.priority for row in rows] == [100, 100, *[None] * 6]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (b"", "cut short"),
        (b"\x01", "cut short"),
        (records.HEAD.pack(1, 0, 0, 1, 0, 0, 0, 0, 0), "cut short"),
        (records.HEAD.pack(9, 0, 0, 0, 0, 0, 0, 0, 0), "9 is not a valid RecordKind"),
        (records.HEAD.pack(5, 0, 0, 0, 60_000, 0, 0, 0, 0), "a record of function 60000"),
        (records.of_command(Erase(table="t", keys=Strings.of([b"k"])), 1), "of function 66"),
    ],
)
def test_what_is_no_record_is_said_to_be_none(what: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rows_of(what)
