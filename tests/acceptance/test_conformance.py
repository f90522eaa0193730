"""One set of calls, over each client: embedded, blocking and asyncio give the same answers."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import fjord
import fjord.aio
from fjord.columns import Strings
from fjord.values import Type
from tests.acceptance.daemon import Daemon

LATER: Final = datetime(2099, 1, 1, tzinfo=UTC)


class Script:
    """Runs calls of whatever client, and writes down what each of them answers."""

    def __init__(self, db: Any) -> None:
        self.db = db
        self.answers: list[Any] = []

    async def ask(self, call: Callable[[], Any]) -> Any:
        """Makes a call, awaits it or goes through it, and notes its answer or its error."""
        try:
            found = await self.get(call())
        except (fjord.FjordError, ValueError, TypeError, KeyError) as error:
            text = re.sub(r"\b[0-9a-f]{32}\b", "an epoch", str(error))
            self.answers.append((type(error).__name__, text))
            return None
        self.answers.append(plain(found))
        return found

    async def place(self, call: Callable[[], Any]) -> None:
        """Does the same for a call that answers with a place."""
        self.answers.append(Place(await self.get(call())))

    async def get(self, given: Any) -> Any:
        """Returns what a call comes to; the rows of one that yields them."""
        if inspect.isawaitable(given):
            return await given
        if isinstance(given, AsyncIterator):
            return [row async for row in given]
        return list(given) if isinstance(given, Iterator) else given

    @asynccontextmanager
    async def within(self, block: Any) -> AsyncIterator[Any]:
        """Enters a block of whatever client."""
        if hasattr(block, "__aenter__"):
            async with block as entered:
                yield entered
        else:
            with block as entered:
                yield entered


class Place(NamedTuple):
    """A number that a server counts on: of a seq, a row or a lease."""

    number: int


PLACES: Final = frozenset(
    ("seq", "last_seq", "durable_seq", "first_seq", "position", "row", "xid", "id", "end_seq")
)


def plain(found: Any) -> Any:
    """Returns an answer as it can be compared: without moments and classes of its client."""
    if isinstance(found, Place):
        return found
    if isinstance(found, datetime):
        return found if found == LATER else "a moment"
    if isinstance(found, fjord.JobBatch):
        names = ("key", "value", "priority", "domain", "timeouts", "row", "xid", "is_settled")
        return [plain({name: getattr(job, name) for name in names}) for job in found]
    if isinstance(found, fjord.MessageBatch):
        return [*map(plain, found), Place(found.last_seq), found.end_of_snapshot]
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        found = {one.name: getattr(found, one.name) for one in dataclasses.fields(found)}
    if hasattr(found, "_asdict"):
        found = found._asdict()
    if isinstance(found, Mapping):
        return {
            key: Place(one) if key in PLACES else "an epoch" if key == "epoch" else plain(one)
            for key, one in found.items()
        }
    if isinstance(found, array):
        return [Place(row) for row in found]  # of dead jobs
    if isinstance(found, Sequence) and not isinstance(found, str | bytes):
        return [plain(one) for one in found]
    if found is None or isinstance(found, str | bytes | int | float):
        return found
    return type(found).__name__.removeprefix("Async")


def unplaced(answer: Any) -> Any:
    """Returns an answer without places: a daemon also counts the requests that it has seen."""
    if isinstance(answer, Place):
        return "a place"
    if isinstance(answer, str):
        return re.sub(r"\b(seq|epoch|xid|snapshot) \d+", r"\1", answer)
    if isinstance(answer, dict):
        return {key: unplaced(one) for key, one in answer.items()}
    return [unplaced(one) for one in answer] if isinstance(answer, list | tuple) else answer


# -- the calls ------------------------------------------------------------------------------------


async def kv(script: Script) -> None:
    ask, table = script.ask, script.db.kv("settings")
    values = {"text": "x", "bytes": b"\0\xff", "int": 5, "float": 2.5, "bool": True, "void": None}
    await ask(lambda: table.get("nothing", "a default"))
    await ask(lambda: table.set_many(values))
    await ask(lambda: table.get_many([*values, "nothing"]))
    await ask(lambda: table.set("text", "y", overwrite=False))
    await ask(lambda: table.set("text", "y", ttl=60, also=["alias"]))
    await ask(lambda: table.set("text", "y", unheard=1))
    await ask(lambda: table.entry("alias"))
    await ask(lambda: table.entry("nothing"))
    await ask(lambda: table.touch("alias", ttl=120))
    await ask(lambda: table.add("int", 3))
    await ask(lambda: table.add("bytes", 3))
    await ask(lambda: table.flip("bool"))
    await ask(lambda: table.truncate("bytes", 1))
    await ask(lambda: table.rename("int", "number"))
    await ask(lambda: table.rename("int", "number"))
    await ask(lambda: table.take("number", seconds=60))
    await ask(lambda: table.take("number", "taken", seconds=60))
    await ask(lambda: table.get("number", skip_worked=True))
    await ask(lambda: table.exists("number"))
    await ask(lambda: table.range("b", "number"))
    await ask(lambda: table.match("^b"))
    await ask(lambda: table.keys("b"))
    await ask(lambda: table.keys(b"b"))
    await ask(lambda: table.entries(fjord.Span(prefix="f", limit=1)))
    await ask(lambda: table.lock("float"))
    await ask(lambda: table.set("float", 3.5))
    await ask(lambda: table.unlock("float"))
    async with script.within(table.locked("float")):
        await ask(lambda: table.entry("float"))
    await ask(lambda: table.delete("void"))
    await ask(lambda: table.delete_many(["void", "alias"]))
    await ask(lambda: table.get_many(list(values)))


async def jobs(script: Script) -> None:
    ask, table = script.ask, script.db.jobs("pages", lease=600, timeouts_max=1)
    await ask(lambda: table.push("http://a.example/1", b"one", priority=10, expires_at=LATER))
    await ask(lambda: table.push("http://a.example/1", b"once more", priority=20))
    await ask(lambda: table.push("http://b.example/2", 2, delay=600))
    await ask(lambda: table.push("http://b.example/3", "three", process_at=LATER, delay=1))
    await ask(lambda: table.push_many([{"key": f"k{n}", "value": n} for n in range(5)]))
    await ask(lambda: table.push_many(keys=["x", "y"], values=[None, 1.5], domain="d"))
    await ask(lambda: table.get("http://a.example/1"))
    await ask(lambda: table.get("nothing"))
    await ask(table.count)
    await ask(lambda: table.peek(3))
    await ask(table.next_at)
    await ask(lambda: table.cancel("k4"))
    await ask(lambda: table.cancel_many(["k3", "nothing"]))
    await ask(lambda: table.reschedule("http://b.example/2", priority=1))
    await ask(lambda: table.kick("http://b.example/2"))
    taken = await ask(lambda: table.next(3))
    await ask(lambda: table.taken())
    await ask(taken[0].done)
    await ask(taken[0].done)
    await ask(lambda: taken[1].touch(60))
    await ask(lambda: taken[1].fail(reason="it is late", bury=True))
    await ask(lambda: table.fail_many(taken[2:], count=False))
    await ask(lambda: [job.outcome for job in taken])
    await ask(lambda: table.bury("x", "nobody wants it"))
    await ask(lambda: table.dead())
    await ask(lambda: table.dead(reason="nobody"))
    await ask(lambda: table.discard())
    await ask(lambda: table.redrive(reason="late", dry_run=True))
    await ask(lambda: table.redrive(reason="late"))
    await ask(lambda: table.discard(all=True))
    rest = await ask(lambda: table.next(10))
    await ask(lambda: table.done_many(rest))
    await ask(lambda: table.done_many(rest))
    await ask(lambda: table.next(1))
    await ask(table.count)
    await ask(table.generations)
    await ask(lambda: script.db.create_jobs("pages", lease=1))
    await ask(lambda: script.db.jobs("pages", lease=1).push("k"))


async def streams(script: Script) -> None:
    ask, table = script.ask, script.db.stream("events")
    await script.place(lambda: table.append(b"one", key="a"))
    first = await script.get(table.append(b"one more"))
    await script.place(lambda: table.append_many([b"two", b"three"], keys=["b", ""]))
    await script.place(lambda: table.append_many(["four", 5, None, 6.5, True]))
    await ask(lambda: table.append_many([b"x"], keys=[]))
    await ask(lambda: table.read(3))
    await ask(lambda: table.read(2, after=first))
    reader = await ask(lambda: table.reader(start="beginning"))
    await ask(lambda: reader.batches(3))
    billing = await ask(lambda: table.subscriber("billing"))
    batch = await ask(lambda: billing.read(2))
    await ask(lambda: billing.lag)
    await ask(lambda: billing.ack(batch))
    await script.place(lambda: billing.position)
    await ask(lambda: billing.peek())
    await ask(lambda: billing.pop())
    async with script.within(billing.taking()) as message:
        await ask(lambda: message)
    await ask(lambda: billing.lag)
    await ask(lambda: billing.seek("beginning"))
    await ask(lambda: billing.ack(batch))
    await ask(lambda: billing.rewind())
    await ask(lambda: billing.batches(100))
    await ask(lambda: billing.sleep())
    await ask(lambda: table.subscribers())
    await ask(lambda: billing.delete())
    await ask(lambda: billing.delete())
    await ask(lambda: table.subscriber("no such name!"))
    await ask(lambda: table.subscriber("second", start="nowhere"))

    latest = script.db.stream("profiles", mode="latest")
    await script.place(lambda: latest.append_many([1, 2, 3], keys=["a", "b", "a"]))
    await ask(lambda: latest.get("a"))
    await ask(lambda: latest.get_many(["a", "b", "c"]))
    await ask(lambda: latest.entry("b"))
    await ask(lambda: latest.delete("b"))
    await ask(lambda: latest.delete("b"))
    await ask(lambda: latest.delete_many(["a", "b"]))
    await ask(lambda: latest.items())
    await ask(lambda: latest.read())

    columns = [("user", "string", True), ("age", "uint8", False)]
    declared = await ask(
        lambda: script.db.create_stream("people", mode="latest", columns=columns, key="user")
    )
    await script.place(lambda: declared.append({"user": "ann", "age": 30}))
    await ask(lambda: declared.append({"user": "bob", "age": "many"}))
    await script.place(lambda: declared.append_many({"user": ["cy", "di"], "age": [1, 2]}))
    await ask(lambda: declared.items())
    read = await ask(lambda: declared.read())
    await ask(lambda: read.column("age"))
    await ask(lambda: read.column("height"))


async def snapshots(script: Script) -> None:
    ask, db = script.ask, script.db
    await ask(lambda: db.kv("shown").set_many({"a": 1, "b": 2}))
    await script.place(lambda: db.stream("shown-log").append_many([b"a", b"b", b"c"]))
    async with script.within(db.snapshot(lifetime=60)) as snapshot:
        await ask(lambda: db.kv("shown").set_many({"a": 9, "c": 9}))
        await script.place(lambda: db.stream("shown-log").append(b"d"))
        table, log = snapshot.kv("shown"), snapshot.stream("shown-log")
        await script.place(lambda: snapshot.seq)
        await ask(lambda: snapshot.at)
        await ask(lambda: table.get("a"))
        await ask(lambda: table.get("c", "a default"))
        await ask(lambda: table.get_many(["a", "b", "c"]))
        await ask(lambda: table.entry("a"))
        await ask(lambda: table.items())
        await ask(lambda: table.range("b"))
        await ask(lambda: log.read(2))
        await ask(lambda: log.batches(2))
    await ask(lambda: table.get("a"))
    await ask(lambda: script.within(db.snapshot(lifetime=0)).__aenter__())


async def transactions(script: Script) -> None:
    ask, db = script.ask, script.db
    async with script.within(db.transaction()) as tx:
        tx.kv("settings").set("moved", 1)
        tx.kv("settings").add("moved", 4)
        tx.jobs("later").push("k", 1)
        tx.stream("events").append(b"seven")
    await ask(lambda: tx.results[:3])
    await ask(lambda: db.kv("settings").get("moved"))
    job = (await ask(lambda: db.jobs("later").next()))[0]

    async def again() -> None:
        async with script.within(db.transaction()) as tx:
            tx.jobs("later").done_many([job])
            tx.kv("settings").set("moved", 6)

    await ask(again)
    await ask(again)
    await ask(lambda: db.kv("settings").get("moved"))


async def staging(script: Script) -> None:
    ask, db = script.ask, script.db
    rows = db.staging("staged")
    await ask(lambda: db.create_stream("staged"))
    await ask(lambda: rows.last_batch("writer"))
    columns = bytes([Type.BUFFER] * 2), Strings.of([b"", b"k"]), Strings.of([b"x", b"y"])
    stages = [await script.get(rows.append(*columns)) for _ in range(2)]
    await ask(lambda: db.stream("staged").read())
    await ask(lambda: rows.commit("writer", 7, stages))
    await ask(lambda: rows.commit("writer", 7, stages))
    await ask(lambda: rows.commit("writer", 8, [12345]))
    await ask(lambda: rows.last_batch("writer"))
    await ask(lambda: db.stream("staged").read())


async def history(script: Script) -> None:
    ask, db = script.ask, script.db
    await script.place(lambda: db.stream("told").append_many([b"a", b"b"], keys=["k", "l"]))
    await script.place(lambda: db.stream("told").append(b"c"))
    span = await ask(lambda: db.span("told", rows_max=2))
    await ask(lambda: db.span("told", span.seq, epoch=span.epoch))
    await ask(lambda: db.span("told", span.seq, epoch="ab" * 16))
    await ask(lambda: db.span("told", -1))
    await ask(lambda: db.scan("nothing"))
    await ask(lambda: db.scan("told", ops=["NO_SUCH_OP"]))
    pieces = await script.get(db.scan("told", ops=["STREAM_APPEND"]))
    await ask(lambda: [(Place(one.next_seq), Place(one.end_seq), len(one.ops)) for one in pieces])
    arrow = await script.get(db.scan_arrow("told", columns=["seq", "key", "value"], key_prefix="k"))
    await ask(lambda: [row for one in arrow for row in one.to_pylist()])
    await ask(lambda: db.seal("told"))
    blocks = await script.get(db.blocks("told"))
    await ask(lambda: [(Place(one.first), Place(one.last), one.rows) for one in blocks])
    await ask(lambda: db.replace_blocks("told", ["a", "b"], blocks[0]))
    names = [one.name for one in await script.get(db.tables())]
    await ask(lambda: names)
    await ask(lambda: db.table("told"))
    await ask(lambda: db.drop("told"))
    await ask(lambda: db.table("told"))


# -- the clients ----------------------------------------------------------------------------------

NOUNS: Final[Mapping[str, Callable[[Script], Awaitable[None]]]] = {
    one.__name__: one for one in (kv, jobs, streams, snapshots, transactions, staging, history)
}
Answers = Mapping[str, list[Any]]


async def answers_of(db: Any) -> Answers:
    found = {}
    for noun, calls in NOUNS.items():
        script = Script(db)
        await calls(script)
        found[noun] = script.answers
    return found


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    with fjord.open(tmp_path_factory.mktemp("embedded")) as db:
        return asyncio.run(answers_of(db))


@pytest.fixture(scope="module")
def blocking(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder: Path = tmp_path_factory.mktemp("blocking")
    with Daemon(folder / "data") as daemon, fjord.connect(daemon.url) as db:
        return asyncio.run(answers_of(db))


@pytest.fixture(scope="module")
def awaited(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    async def run(url: str) -> Answers:
        async with await fjord.aio.connect(url) as db:
            return await answers_of(db)

    folder: Path = tmp_path_factory.mktemp("awaited")
    with Daemon(folder / "data") as daemon:
        return asyncio.run(run(daemon.url))


@pytest.mark.parametrize("noun", NOUNS)
def test_the_blocking_client_answers_as_the_directory_does(
    noun: str, embedded: Answers, blocking: Answers
) -> None:
    assert unplaced(blocking[noun]) == unplaced(embedded[noun])


@pytest.mark.parametrize("noun", NOUNS)
def test_the_asyncio_client_answers_as_the_blocking_one(
    noun: str, blocking: Answers, awaited: Answers
) -> None:
    assert awaited[noun] == blocking[noun]
