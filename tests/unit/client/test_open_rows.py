"""Rows of declared columns in an open directory: jobs, streams, transactions and snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.errors import FjordError, LocalProtocolError, RefusedError, StaleSchemaError

COLUMNS: Any = {"uri": ("string", True), "depth": "uint8", "seen": "time_seconds"}
MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def full(uri: str, depth: int | None = None, seen: datetime | None = None) -> dict[str, Any]:
    return {"uri": uri, "depth": depth, "seen": seen}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[fjord.Database]:
    with fjord.open(tmp_path) as one:
        yield one


# -- jobs -----------------------------------------------------------------------------------------


@pytest.mark.req("SJ-17")
def test_jobs_are_rows(db: fjord.Database) -> None:
    pages = db.create_jobs("pages", columns=COLUMNS, key="uri")
    pages.push({"uri": "a", "depth": 3, "seen": MOMENT}, priority=5)
    pages.push_many([{"uri": "b"}, {"uri": "c", "priority": 1}])
    by_name: Any = {"uri": ["d"], "depth": [4]}
    pages.push_many(**by_name, priority=6)
    pages.push_many(values={"uri": ["e"]}, priority=[7])
    pages.push_many(values=[{"uri": "f"}], priority=8)
    assert [job.value for job in db.jobs("pages").peek()] == [
        full("c"),
        full("a", 3, MOMENT),
        full("d", 4),
        full("e"),
        full("f"),
        full("b"),
    ]
    assert pages.get("a") is not None
    for job in pages.next(2):
        job.fail(bury=True)
    assert [job.value["uri"] for job in db.jobs("pages").dead()] == ["a", "c"]
    assert [job.value["uri"] for job in db.jobs("pages").next(9)] == ["d", "e", "f", "b"]


def test_rows_go_beside_a_key_where_no_columns_are_the_key(db: fjord.Database) -> None:
    pages = db.create_jobs("pages", columns=COLUMNS)
    pages.push("k", {"uri": "a"})
    pages.push_many([{"key": "l", "uri": "b"}, {"key": "m", "uri": "c", "depth": 1}])
    pages.push_many([{"key": "n", "value": {"uri": "d"}}])
    pages.push_many(keys=["o"], values={"uri": ["e"]})
    assert [(job.key, job.value["uri"]) for job in pages.next(9)] == list(
        zip("klmno", "abcde", strict=True)
    )
    with pytest.raises(RefusedError, match="a key has at least one byte"):
        pages.push({"uri": "a"})


def test_a_column_with_the_name_of_an_option_is_given_apart(db: fjord.Database) -> None:
    waits = db.create_jobs("waits", columns={"delay": "int8"}, merge=False)
    waits.push({"delay": 5})
    waits.push_many(values=[{"delay": 6}], delay=0)
    waits.push_many(values={"delay": [7]})
    assert [job.value["delay"] for job in waits.next(9)] == [5, 6, 7]
    wide: Any = db.create_jobs("wide", columns={"delay": "int8", "n": "int8"}, merge=False)
    with pytest.raises(TypeError, match="delay is both an option and a column"):
        wide.push_many([{"delay": 5, "n": 1}])
    with pytest.raises(TypeError, match="delay is both an option and a column"):
        wide.push_many(delay=[5], n=[1])


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda pages: pages.push("k", b"v"), "this table takes rows of its columns"),
        (lambda pages: pages.push("k", {"uri": "k"}), "push the row alone"),
        (lambda pages: pages.push({"uri": "k"}, {"uri": "k"}), "push takes either a row, or a key"),
        (lambda pages: pages.push({"uri": 5}), r"column uri is string \(text\), not 5"),
        (lambda pages: pages.push({}), "column uri is required"),
        (lambda pages: pages.push_many([{"uri": "a"}, {"uri": 5}]), "row 2 of 2"),
        (lambda pages: pages.push_many([{"uri": "a", "value": 1}]), "a job has no value; there"),
        (lambda pages: pages.push_many(uri=["a"], depth=[1, 2]), "columns have 1 and 2 values"),
        (lambda pages: pages.push_many(uri="a"), "column uri is a list of values"),
        (lambda pages: pages.push_many(keys=["a"], uri=["a"]), "leave out keys"),
        (lambda pages: pages.push_many(uri=["a"], values=[1]), "push_many has no values; there"),
    ],
)
def test_what_is_no_job_of_the_table_is_refused(
    db: fjord.Database, act: Callable[[fjord.Jobs], object], said: str
) -> None:
    pages = db.create_jobs("pages", columns=COLUMNS, key="uri")
    pages.push({"uri": "first"})
    with pytest.raises((FjordError, TypeError), match=said):
        act(pages)
    assert pages.count().waiting == 1


@pytest.mark.req("SJ-04")
def test_a_handle_follows_when_the_columns_change(db: fjord.Database) -> None:
    pages = db.create_jobs("pages", columns=COLUMNS, key="uri", period="day")
    pages.push({"uri": "old"})
    others: Any = {"uri": ("string", True), "who": "string"}
    db.create_jobs("pages", change=True, columns=others, key="uri", period="day")
    pages.push({"uri": "new"})  # the server says that there are others
    pages.push({"uri": "newer", "who": "me"})
    by_name: Any = {"uri": ["last"], "who": ["you"]}
    pages.push_many(**by_name)
    assert [job.value for job in pages.next(9)] == [
        full("old"),
        {"uri": "new", "who": None},
        {"uri": "newer", "who": "me"},
        {"uri": "last", "who": "you"},
    ]


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.req("SJ-17")
def test_messages_are_rows(db: fjord.Database) -> None:
    events = db.create_stream("events", columns=COLUMNS)
    events.append({"uri": "a", "seen": MOMENT})
    events.append({"uri": "b"}, key="k")
    events.append_many(({"uri": uri} for uri in "cd"), keys=["l", "m"])
    last = events.append_many({"uri": ["e", "f"], "depth": [1, None]})
    wanted = [full("a", seen=MOMENT), *map(full, "bcd"), full("e", 1), full("f")]
    found = db.stream("events").read()
    assert found.values == [one.value for one in found] == wanted
    assert [one.value for one in found.messages[1:3]] == wanted[1:3]
    assert found.keys == ["", "k", "l", "m", "", ""]
    assert found.last_seq == last
    assert events.append_many([]) == events.append_many({}) == 0


def test_a_reader_finds_the_columns_of_a_stream_that_was_made_anew(db: fjord.Database) -> None:
    events = db.create_stream("events", columns=COLUMNS)
    events.append({"uri": "a"})
    assert events.read().values == [full("a")]
    db.drop("events")
    db.create_stream("events", columns={"n": "int8"})
    events.append({"n": 5})
    assert db.stream("events").read().values == events.read().values == [{"n": 5}]
    db.drop("events")
    db.create_stream("events", columns={"n": "int64"})
    events.append_many([{"n": 6}, {"n": 7}])  # it is told that the columns are others
    assert events.read().values == [{"n": 6}, {"n": 7}]
    db.drop("events")
    db.stream("events").append(b"plain")
    assert events.read().values == [b"plain"]
    assert events.read().values == [b"plain"]


def test_a_snapshot_asks_for_columns_by_itself(tmp_path: Path) -> None:
    with fjord.open(tmp_path) as db:
        db.create_stream("pages", columns=COLUMNS, key="uri", mode="latest").append({"uri": "a"})
    with fjord.open(tmp_path) as db, db.snapshot() as snapshot:
        assert snapshot.stream("pages").get("a") == full("a")
    with fjord.open(tmp_path) as db, db.snapshot() as snapshot:
        assert [batch.values for batch in snapshot.stream("pages").batches()] == [[full("a")]]


def test_tables_without_columns_take_no_rows(db: fjord.Database) -> None:
    row = {"uri": "a"}
    for act in (
        lambda: db.jobs("t").push(row),
        lambda: db.stream("t").append(row),
        lambda: db.stream("t").append_many({"uri": ["a"]}),
    ):
        with pytest.raises(LocalProtocolError, match="table t has no declared columns"):
            act()
    with pytest.raises(LocalProtocolError, match="rows are for jobs tables and streams"):
        db.kv().set("k", row)  # type: ignore[arg-type]


# -- transactions ---------------------------------------------------------------------------------


def test_a_transaction_asks_for_columns_at_its_end(tmp_path: Path) -> None:
    with fjord.open(tmp_path) as db:
        db.create_jobs("pages", columns=COLUMNS, key="uri")
        db.create_stream("events", columns=COLUMNS)
    with fjord.open(tmp_path) as db:
        row = {"uri": "a"}
        with db.transaction() as tx:
            tx.kv().set("k", 1)
            tx.jobs("pages").push(row)
            row["uri"] = "b"  # what was pushed stays as it was
            tx.jobs("pages").push_many([row])
            tx.jobs("pages").push_many(iter([{"uri": "c"}]))
            tx.stream("events").append(row)
            tx.stream("events").append_many({"uri": ["d", "e"]})
        assert len(tx.results) == 6
        assert [job.key for job in db.jobs("pages").next(9)] == ["a", "b", "c"]
        assert [one["uri"] for one in db.stream("events").read().values] == ["b", "d", "e"]
        with db.transaction() as tx:  # and now they are known
            tx.jobs("pages").push(row)
            with pytest.raises(LocalProtocolError, match="column uri is required"):
                tx.jobs("pages").push({"depth": 1})


def test_a_transaction_that_is_stale_is_done_again_by_the_user(db: fjord.Database) -> None:
    pages = db.create_jobs("pages", columns=COLUMNS, key="uri", period="day")
    pages.push({"uri": "a"})
    others: Any = {"uri": ("string", True)}
    db.create_jobs("pages", change=True, columns=others, key="uri", period="day")
    with pytest.raises(StaleSchemaError), db.transaction() as tx:
        tx.jobs("pages").push({"uri": "b"})
    with db.transaction() as tx:
        tx.jobs("pages").push({"uri": "b"})
    assert [job.value for job in pages.next(9)] == [full("a"), {"uri": "b"}]
