"""Rows of declared columns in an open directory: jobs, streams, transactions and snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.client.calls import Call
from fjord.client.subscribers import Cursor, read_on
from fjord.commands import ListTables
from fjord.errors import FjordError, LocalProtocolError, RefusedError, StaleSchemaError
from fjord.values import RowType

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


def test_a_table_is_declared_before_its_columns_are_asked_for(db: fjord.Database) -> None:
    pages = db.jobs("pages", columns=COLUMNS, key="uri")
    pages.push({"uri": "a"})
    events = db.stream("events", columns=COLUMNS)
    events.append({"uri": "a"})
    assert [job.value for job in pages.next()] == events.read().values == [full("a")]


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


def test_a_misspelled_column_is_the_same_error_everywhere(db: fjord.Database) -> None:
    pages: Any = db.create_jobs("pages", columns=COLUMNS, key="uri")
    events: Any = db.create_stream("events", columns=COLUMNS)
    wrong = {"uri": "a", "deepth": 1}
    columns = {"uri": ["a"], "deepth": [1]}
    writes: list[Callable[[], object]] = [
        lambda: pages.push(wrong),
        lambda: pages.push_many([wrong]),
        lambda: pages.push_many([{"uri": "b", "depth": 1}, wrong]),
        lambda: pages.push_many([{**wrong, "priority": 1}]),
        lambda: pages.push_many(values=[wrong]),
        lambda: pages.push_many(values=columns),
        lambda: pages.push_many(**columns),
        lambda: events.append(wrong),
        lambda: events.append_many([wrong]),
        lambda: events.append_many(columns),
    ]
    there = ", ".join(COLUMNS)
    for write in writes:
        with pytest.raises(LocalProtocolError) as refused:
            write()
        assert refused.value.text == f"there is no column 'deepth'; there are {there}"
    assert pages.count().waiting == 0


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


def test_readers_and_subscribers_give_rows(db: fjord.Database) -> None:
    events = db.create_stream("events", columns=COLUMNS)
    events.append_many({"uri": list("abcd")})
    subscriber = db.stream("events").subscriber("s")
    peeked, popped = subscriber.peek(), subscriber.pop()
    assert peeked is not None
    assert popped is not None
    assert peeked.value == popped.value == full("a")
    with subscriber.taking() as message:
        assert message is not None
        assert message.value == full("b")
    assert subscriber.read().values == [full("c"), full("d")]
    assert [one.value for batch in events.reader().batches(3) for one in batch] == [
        *map(full, "abcd")
    ]


def test_a_reader_that_cannot_ask_for_columns_stays_where_it_is(db: fjord.Database) -> None:
    db.create_stream("events", columns=COLUMNS).append({"uri": "a"})
    cursor = Cursor("events", 0)
    steps = read_on(cursor, 10, None)
    with pytest.raises(FjordError, match="the line is cut"):
        _follow_until_asked(db, steps)
    assert (cursor.after, cursor.until) == (0, 0)


def _follow_until_asked(db: fjord.Database, steps: Any) -> None:
    call: Call[Any] = next(steps)
    while not isinstance(call.command, ListTables):
        call = steps.send(db.runner.run(call))
    steps.throw(FjordError("the line is cut"))


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


def test_the_latest_rows_are_a_map(db: fjord.Database) -> None:
    made = db.stream("pages", columns=COLUMNS, key="uri", mode="latest")
    made.append_many([{"uri": "a"}, {"uri": "b"}, {"uri": "a", "depth": 9}])
    made.delete("b")
    pages = db.stream("pages")
    assert pages.get("a") == pages["a"] == full("a", 9)
    assert pages.get_many(["a", "b"]) == dict(pages.items()) == {"a": full("a", 9)}
    assert list(pages.values()) == [full("a", 9)]
    entry = pages.entry("a")
    assert entry is not None
    assert (entry.value, entry.type) == (full("a", 9), RowType.ROW)
    assert [(one.key, one.value) for one in pages.read()] == [("a", full("a", 9)), ("b", None)]
    with db.snapshot() as snapshot:
        made.append({"uri": "a", "depth": 10})
        then = snapshot.stream("pages")
        assert then.get("a") == then["a"] == full("a", 9)
        assert then.read().values == [full("a", 9), None]
        assert dict(then.items()) == {"a": full("a", 9)}
    assert pages["a"]["depth"] == 10


def test_a_snapshot_asks_for_columns_by_itself(tmp_path: Path) -> None:
    with fjord.open(tmp_path) as db:
        db.create_stream("pages", columns=COLUMNS, key="uri", mode="latest").append({"uri": "a"})
    with fjord.open(tmp_path) as db, db.snapshot() as snapshot:
        assert snapshot.stream("pages").get("a") == full("a")
    with fjord.open(tmp_path) as db, db.snapshot() as snapshot:
        assert [batch.values for batch in snapshot.stream("pages").batches()] == [[full("a")]]


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda pages: pages.append(b"v", key="k"), "this table takes rows of its columns"),
        (lambda pages: pages.append({"uri": "a"}, key="k"), "append the row alone"),
        (lambda pages: pages.append_many([{"uri": "a"}], keys=["k"]), "append the row alone"),
        (lambda pages: pages.append_many([{"uri": "a"}, 5]), "where one is a row, is a dict"),
        (lambda pages: pages.append_many([5, {"uri": "a"}]), "a value is None, bytes, str"),
        (lambda pages: pages.append_many({"url": ["a"]}), "there is no column 'url'"),
        (lambda pages: pages.append_many({"uri": "a"}), "column uri is a list of values"),
    ],
)
def test_what_is_no_message_of_the_stream_is_refused(
    db: fjord.Database, act: Callable[[fjord.Stream], object], said: str
) -> None:
    pages = db.create_stream("pages", columns=COLUMNS, key="uri", mode="latest")
    with pytest.raises((FjordError, TypeError), match=said):
        act(pages)
    assert len(pages.read()) == 0


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


def test_a_transaction_with_a_row_that_is_none_does_nothing(tmp_path: Path) -> None:
    with fjord.open(tmp_path) as db:
        db.create_jobs("pages", columns=COLUMNS, key="uri")
    with fjord.open(tmp_path) as db:
        with (
            pytest.raises(LocalProtocolError, match="column uri is string"),
            db.transaction() as tx,
        ):
            tx.jobs("pages").push({"uri": "fine"})
            tx.jobs("pages").push({"uri": 5})
        with pytest.raises(LocalProtocolError, match="no declared columns"), db.transaction() as tx:
            tx.stream("none").append({"uri": "a"})
        assert db.jobs("pages").count().waiting == 0


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
