"""All clients do the same: embedded, blocking and asyncio, over real data."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fjord
import fjord.aio
from fjord.client.blocking.database import Database
from fjord.errors import Code, LockedError, NotFoundError, RefusedError
from fjord.wire import Function
from tests.acceptance import raw
from tests.acceptance.daemon import Daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("clients") / "data") as one:
        yield one


@pytest.fixture(params=["embedded", "daemon"])
def db(request: pytest.FixtureRequest, tmp_path: Path, daemon: Daemon) -> Iterator[Database]:
    with fjord.open(tmp_path) if request.param == "embedded" else fjord.connect(daemon.url) as one:
        yield one


@pytest.mark.req("FJ-30")
def test_an_entry_keeps_its_dates_and_its_life(db: Database) -> None:
    kv = db.kv("entries")
    before = datetime.now(tz=UTC) - timedelta(seconds=5)
    until = datetime(2099, 1, 1, tzinfo=UTC)
    with pytest.raises(RefusedError) as caught:
        kv.set("key", 1, expires_at=until)
    assert caught.value.code is Code.BAD_TIMEOUT
    kv.set("key", 1, ttl=60)
    first = kv.entry("key")
    assert first is not None
    assert first.expires_at is not None
    assert (first.value, first.ttl, first.accessed_at) == (1, 60.0, None)
    assert before < first.written_at < first.expires_at
    assert kv.touch("key", ttl=3600) == 1
    second = kv.entry("key")
    assert second is not None
    assert second.expires_at is not None
    assert second.accessed_at is not None
    assert second.expires_at > first.expires_at + timedelta(minutes=50)
    assert second.created_at == first.created_at


@pytest.mark.req("FJ-31")
@pytest.mark.parametrize("where", ["embedded", "daemon"])
def test_a_value_keeps_its_other_keys_when_one_is_renamed(tmp_path: Path, where: str) -> None:
    with Daemon(tmp_path / "served") as one:
        for at in range(3):
            own = where == "embedded"
            with fjord.open(tmp_path / "own") if own else fjord.connect(one.url) as db:
                kv = db.kv("default")
                if at == 0:
                    kv.set("sort0", "row", also=["uri", "id"])
                kv.rename(f"sort{at}", f"sort{at + 1}")
                kv.set("uri", f"row {at}")
                assert kv.get_many([f"sort{at}", f"sort{at + 1}", "uri", "id"]) == {
                    f"sort{at + 1}": f"row {at}",
                    "uri": f"row {at}",
                    "id": f"row {at}",
                }
            one.stop()
            one.start()
        if where == "daemon":
            with raw.Raw(one.port) as seed:
                rename = raw.head(Function.RENAME) + raw.key(b"sort3") + raw.key(b"seed")
                assert seed.code(rename) == ""
                assert [seed.code(raw.get(name)) for name in (b"seed", b"uri", b"id")] == [""] * 3
                assert seed.code(raw.get(b"sort3")) == "NOT_FOUND"


@pytest.mark.req("FJ-43", "FJ-45")
def test_a_long_range_comes_in_pages(db: Database) -> None:
    kv = db.kv("pages")
    items = {f"{number:06}": number for number in range(25_000)}
    kv.set_many(items)
    assert dict(kv.range("")) == items
    assert sum(1 for _ in kv.keys()) == 25_000  # noqa: SIM118 - this is no dict
    assert [key for key, _ in kv.range("012345", limit=2)] == ["012345", "012346"]
    assert [key for key, _ in kv.match("^0246.7$")] == [f"0246{digit}7" for digit in range(10)]


def test_one_refusal_refuses_the_whole_transaction(db: Database) -> None:
    kv = db.kv("transactions")
    kv.set("there", 1)
    with pytest.raises(fjord.ExistsError), db.transaction() as tx:
        tx.kv("transactions").set("new", 1)
        tx.kv("transactions").set("there", 2, overwrite=False)
    assert kv.get_many(["new", "there"]) == {"there": 1}
    with db.transaction() as tx:
        tx.kv("transactions").set("new", 1)
        tx.kv("transactions").add("new", 4)
        tx.kv("elsewhere").set("other", "x")
    assert tx.results == [None, 5, None]
    assert db.kv("elsewhere").get("other") == "x"


def test_tables_come_and_go(db: Database) -> None:
    db.kv("gone").set("key", 1)
    found = db.table("gone")
    assert (found.name, found.kind) == ("gone", "kv")
    assert "gone" in [table.name for table in db.tables()]
    db.drop("gone")
    with pytest.raises(NotFoundError):
        db.table("gone")
    with pytest.raises(NotFoundError):
        db.drop("gone")
    assert db.kv("gone").get("key") is None
    assert db.stats()["durable_seq"] > 0
    assert db.ping() >= 0


@pytest.mark.req("FJ-44")
def test_a_listener_in_a_thread_hears_every_change_in_order(db: Database) -> None:
    kv = db.kv("heard")
    changes = kv.listen("a", "b")
    heard: list[tuple[object, object]] = []
    thread = threading.Thread(
        target=lambda: heard.extend((change.key, change.value) for change in changes)
    )
    thread.start()
    for number in range(50):
        kv.set("a", number)
    kv.set("c", "not this")
    kv.delete("a")
    with kv.listen("end") as own:  # what comes last is told last
        kv.set("b", "last")
        kv.set("end", 1)
        assert own.wait(20) is not None
    while len(heard) < 52 and thread.is_alive():
        thread.join(0.01)
    changes.close()
    thread.join(timeout=20)
    assert heard == [*(("a", number) for number in range(50)), ("a", None), ("b", "last")]


@pytest.mark.req("FJ-35")
def test_a_lock_keeps_other_clients_out_until_its_holder_is_gone(daemon: Daemon) -> None:
    with fjord.connect(daemon.url) as other:
        kv = other.kv("locks")
        kv.set("key", 1)
        with fjord.connect(daemon.url) as holder:
            with holder.kv("locks").locked("key"):
                with pytest.raises(LockedError):
                    kv.set("key", 2)
                with pytest.raises(LockedError):
                    kv.lock("key")
                with pytest.raises(RefusedError) as caught:
                    kv.unlock("key")
                assert caught.value.code is Code.NOT_OWNER
                entry = kv.entry("key")
                assert entry is not None
                assert entry.locked
            kv.set("key", 3)
            holder.kv("locks").lock("key")
        for _ in range(1000):  # the server hears of the end a moment later
            found = kv.entry("key")
            assert found is not None
            if not found.locked:
                break
        kv.set("key", 4)
        assert kv.get("key") == 4


def test_everything_works_awaited_too(daemon: Daemon) -> None:
    async def main() -> None:
        async with await fjord.aio.connect(daemon.url) as db:
            kv = db.kv("awaited")
            await kv.set_many({"user:1": 1, "user:2": 2})
            assert await asyncio.gather(*(kv.add("user:1", 1) for _ in range(3))) == [2, 3, 4]
            assert [row async for row in kv.match("^user:", limit=5)] == [
                ("user:1", 4),
                ("user:2", 2),
            ]
            async with kv.listen("user:1") as changes:
                async with db.transaction() as tx:
                    tx.kv("awaited").add("user:1", 1)
                    tx.kv("awaited").delete("user:2")
                assert tx.results == [5, None]
                change = await changes.wait(20)
                assert change is not None
                assert (change.key, change.value) == ("user:1", 5)
            async with kv.locked("user:1"):
                entry = await kv.entry("user:1")
                assert entry is not None
                assert entry.locked
            assert await kv.take("user:1") == 5
            assert await kv.take("user:1") is None

    asyncio.run(main())


def test_a_single_command_is_refused_with_the_same_words_everywhere(db: Database) -> None:
    kv = db.kv("words")
    kv.set("there", 1)
    for call, text in (
        (lambda: kv.add("nope", 1), "NOT_FOUND: the key does not exist"),
        (lambda: kv.rename("nope", "other"), "NOT_FOUND: the key does not exist"),
        (lambda: kv.set("there", 2, overwrite=False), "EXISTS: "),
        (lambda: db.drop("nope"), "NOT_FOUND: "),
    ):
        with pytest.raises(RefusedError) as caught:
            call()
        assert str(caught.value).startswith(text)
        assert "batch" not in str(caught.value)
    with pytest.raises(NotFoundError, match="command 2 of the batch"), db.transaction() as tx:
        tx.kv("words").set("new", 1)
        tx.kv("words").add("nope", 1)


def test_a_touch_gives_no_end_to_what_never_expires(db: Database) -> None:
    kv = db.kv("endless")
    kv.set("key", 1)
    assert kv.touch("key", ttl=60) == 1
    entry = kv.entry("key")
    assert entry is not None
    assert (entry.expires_at, entry.ttl) == (None, None)
    assert entry.accessed_at is not None


def test_a_void_is_told_from_no_value(db: Database) -> None:
    kv = db.kv("voids")
    kv.set("void", None)
    assert kv.touch("void", "none") is None
    assert kv.take("void", "none") is None
    assert kv.take("void", "none") == "none"  # it is worked on
    assert kv.touch("missing", "none") == kv.take("missing", "none") == "none"
    assert kv.touch("missing") is kv.take("missing") is None
