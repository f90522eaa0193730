"""A spool, a forwarder and a real daemon: what arrives, what does not, what becomes of files."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import fjord
from fjord.client.spool import bell as waking
from fjord.client.spool import files, reader, records
from fjord.client.spool.files import Fate
from fjord.clock import SystemClock
from fjord.commands import Advance, AskWriter, Batch, Command, Committed
from fjord.errors import Code
from fjord.forwarder import IN_FLIGHT, Forwarder, Progress
from tests.acceptance.cutting import CuttingProxy, Way
from tests.acceptance.daemon import Daemon
from tests.acceptance.forward_process import long_period
from tests.crash import spool_world
from tests.unit.client.scripted import Answer, Scripted, say, usual


@pytest.fixture
def tables() -> spool_world.Tables:
    return spool_world.Tables()


@pytest.fixture
def small_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (records, reader):
        monkeypatch.setattr(module, "ROWS_MAX", spool_world.LOAD_ROWS)


def is_erased(path: Path) -> bool:
    return not path.read_bytes()[files.HEADER_BYTES :].strip(b" \n\0")


# -- what is late ---------------------------------------------------------------------------------


def test_a_late_value_does_not_replace_a_newer_one(
    db: fjord.Database, daemon: Daemon, tables: spool_world.Tables, tmp_path: Path
) -> None:
    kv = db.kv(tables.kv)
    kv.set_many({"deleted since": "old", "set since": "old", "older": "old"})
    with spool_world.opened(tmp_path) as spool:
        late = spool.kv(tables.kv)
        late.set_many({"replaced": "late", "new": "late"})
        late.set("deleted since", "late")
        late.set("older", "late")
        late.delete("set since")
    kv.set_many({"replaced": "newer", "set since": "newer"})
    kv.delete("deleted since")
    spool_world.forward(tmp_path, daemon.url)
    assert dict(kv.range("")) == {
        "new": "late",
        "older": "late",
        "replaced": "newer",
        "set since": "newer",
    }


# -- what cannot be sent --------------------------------------------------------------------------


@pytest.mark.req("FJ-24", "FJ-25")
def test_a_damaged_record_is_set_aside_and_the_rest_goes_on(
    daemon: Daemon,
    db: fjord.Database,
    tables: spool_world.Tables,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with spool_world.opened(tmp_path) as spool:
        spool_world.write_all(spool, tables, range(4))
        (path,) = spool_world.spool_files(tmp_path)
        size = path.stat().st_size
        spool_world.write_all(spool, tables, range(4, 12))
    data = bytearray(path.read_bytes())
    data[size + 40] ^= 2  # in the text of record 4
    path.write_bytes(data)
    progress = spool_world.forward(tmp_path, daemon.url)
    assert (progress.records, progress.set_aside) == (11, {Fate.DAMAGED: 1})
    assert [alert.rule for alert in progress.alerts] == ["aside"]
    assert f"{path.name}: 1 damaged record was set aside" in caplog.messages
    left = path.read_bytes()[size:]
    assert left[:1] == b"!"
    assert left[1:50] == data[size + 1 : size + 50]  # all else of it is as it was
    spool_world.check(db, tables, [*range(4), *range(5, 12)])


def test_a_record_that_is_refused_is_set_aside_and_the_rest_goes_on(
    daemon: Daemon,
    db: fjord.Database,
    tables: spool_world.Tables,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    db.kv(tables.kv).set("2", 2)
    with spool_world.opened(tmp_path) as spool:
        spool_world.write_all(spool, tables, range(10))
        spool.jobs(tables.kv).push("not into a table of values")
        spool_world.write_all(spool, tables, range(10, 20))
        spool.stream(tables.kv).append_many(["nor these", "two"])
        spool_world.write_all(spool, tables, range(20, 30))
    progress = spool_world.forward(tmp_path, daemon.url)
    assert (progress.records, progress.refused) == (30, {Code.WRONG_KIND: 2})
    assert [alert.rule for alert in progress.alerts] == ["aside"]
    told = [text for text in caplog.messages if "is refused and was set aside" in text]
    assert len(told) == 2
    assert "WRONG_KIND" in told[0]
    spool_world.check(db, tables, range(30))
    again = spool_world.forward(
        tmp_path, daemon.url
    )  # another forwarder tells of it, and sends nothing
    assert (again.records, [alert.rule for alert in again.alerts]) == (0, ["aside"])
    spool_world.put_in_the_past(tmp_path)
    spool_world.forward(tmp_path, daemon.url)
    assert not spool_world.spool_files(tmp_path)
    assert len(files.aside_names(str(tmp_path))) == 1


# -- who is away ----------------------------------------------------------------------------------


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for something that a forwarder in the same loop does."""
    async with asyncio.timeout(spool_world.DEADLINE_SECONDS):
        while not is_so():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.001)


def while_forwarding(forwarder: Forwarder, act: Callable[[], Awaitable[None]]) -> Progress:
    """Does something while a forwarder runs, and stops it."""

    async def main() -> Progress:
        task = asyncio.create_task(forwarder.run())
        await act()
        forwarder.stop()
        await asyncio.wait_for(task, spool_world.DEADLINE_SECONDS)
        return forwarder.progress

    return asyncio.run(main())


@pytest.mark.req("FJ-16", "FJ-27")
def test_what_is_written_while_the_daemon_is_away_arrives_when_it_is_back(
    tables: spool_world.Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fjord.forwarder.REPLY_SECONDS", 0.5)  # it notices sooner
    directory, period = tmp_path / "spool", long_period()
    with Daemon(tmp_path / "data") as daemon, fjord.spool(directory, period=period) as spool:
        forwarder = Forwarder(str(directory), daemon.url, period=period)

        async def act() -> None:
            spool_world.write_all(spool, tables, range(10))
            await until(lambda: forwarder.progress.records == 10)
            port = daemon.port
            await asyncio.to_thread(daemon.kill)
            spool_world.write_all(spool, tables, range(10, 20))
            await until(lambda: bool(forwarder.progress.problem))
            spool_world.write_all(spool, tables, range(20, 30))
            await asyncio.to_thread(daemon.start, port)
            await until(lambda: forwarder.progress.records == 30)
            await until(lambda: not forwarder.progress.problem)

        progress = while_forwarding(forwarder, act)
        assert progress.retries > 0
        with fjord.connect(daemon.url) as db:
            spool_world.check(db, tables, range(30))
        (path,) = spool_world.spool_files(directory)
        assert is_erased(path)


@pytest.mark.req("FJ-16", "FJ-25")
@pytest.mark.usefixtures("small_loads")
@pytest.mark.parametrize("way", list(Way))
def test_connections_that_are_cut_anywhere_double_and_lose_nothing(
    way: Way, daemon: Daemon, db: fjord.Database, tables: spool_world.Tables, tmp_path: Path
) -> None:
    written = 0
    with CuttingProxy(daemon.port) as proxy:
        for place in range(0, 900, 30):
            with spool_world.opened(tmp_path) as spool:
                spool_world.write_all(
                    spool, tables, range(written, written + 4 * spool_world.LOAD_ROWS)
                )
            written += 4 * spool_world.LOAD_ROWS
            proxy.arm(way, place)
            spool_world.forward(tmp_path, proxy.url)
        assert proxy.cuts > 20
    spool_world.check(db, tables, range(written))


# -- what becomes of files ------------------------------------------------------------------------


@pytest.mark.req("FJ-25")
@pytest.mark.usefixtures("small_loads")
def test_nothing_is_erased_before_it_is_acknowledged(
    tables: spool_world.Tables, tmp_path: Path
) -> None:
    """A record that is under way is in the file, whatever is sent or acknowledged beside it."""
    with spool_world.opened(tmp_path) as spool:
        spool_world.write_all(spool, tables, range(20 * spool_world.LOAD_ROWS))
        (path,) = spool_world.spool_files(tmp_path)
        whole = path.read_bytes()
        acknowledged = files.HEADER_BYTES
        early: list[int] = []  # acknowledged up to here when something behind it was gone

        def script(number: int, command: Command) -> Answer:
            nonlocal acknowledged
            if isinstance(command, AskWriter):
                return say(Committed(batch=-1, is_new=False, left=0, rows=0, seq=0))
            if path.read_bytes()[acknowledged:] != whole[acknowledged:]:
                early.append(acknowledged)
            assert isinstance(command, Batch)
            advance = command.commands[0]
            assert isinstance(advance, Advance)
            acknowledged = advance.batch
            return say(usual(command))

        with Scripted(script) as scripted:
            progress = spool_world.forward(tmp_path, scripted.url)
    assert progress.batches > 2 * IN_FLIGHT
    assert not early
    assert acknowledged == len(whole)
    assert is_erased(path)


@pytest.mark.req("FJ-26")
def test_a_finished_file_is_removed_when_its_writer_has_gone_on_and_its_name_used_again(
    daemon: Daemon, db: fjord.Database, tables: spool_world.Tables, tmp_path: Path
) -> None:
    idle = spool_world.opened(tmp_path)
    spool_world.write(idle, tables, 0)
    (path,) = spool_world.spool_files(tmp_path)
    first = path.read_bytes()[: files.HEADER_BYTES]
    assert spool_world.forward(tmp_path, daemon.url).files_deleted == 0  # its period is not over
    assert (
        spool_world.forward(tmp_path, daemon.url, hours=1).files_deleted == 0
    )  # somebody may still write
    spool_world.write(idle, tables, 1)
    idle.close()
    assert spool_world.forward(tmp_path, daemon.url, hours=1).files_deleted == 1
    assert not spool_world.spool_files(tmp_path)
    with spool_world.opened(tmp_path) as spool:
        spool_world.write(spool, tables, 2)
    (again,) = spool_world.spool_files(tmp_path)
    assert again == path
    assert again.read_bytes()[: files.HEADER_BYTES] != first  # to the daemon it is another file
    spool_world.forward(tmp_path, daemon.url)
    spool_world.check(db, tables, range(3))


# -- in order, and at once ------------------------------------------------------------------------


class Watched(Forwarder):
    """A forwarder that lets somebody act each time when it is done with a file, for now."""

    def __init__(self, directory: Path, url: str, act: Callable[[], None]) -> None:
        super().__init__(str(directory), url)
        self._act = act

    async def _retire(self, source: reader.FileReader) -> None:
        self._act()
        await super()._retire(source)


def test_records_of_a_process_that_goes_on_to_the_next_file_stay_in_order(
    daemon: Daemon, db: fjord.Database, tables: spool_world.Tables, tmp_path: Path
) -> None:
    slot = files.slot_of(SystemClock().wall_us(), spool_world.PERIOD_US)
    earlier, later = (
        spool_world.HeldFile(tmp_path / files.name_of(slot + hour)) for hour in (-1, 0)
    )
    numbers, rounds = itertools.count(0, 4), iter(range(4))

    def act() -> None:
        """What a process does at the end of a period, while the forwarder is between two files."""
        for _ in itertools.islice(rounds, 1):
            memory = spool_world.SpoolInMemory()
            spool_world.write_all(memory, tables, itertools.islice(numbers, 2))
            for file, line in zip((earlier, later), memory.lines, strict=True):
                file.write(line)

    act()
    forwarder = Watched(tmp_path, daemon.url, act)
    asyncio.run(asyncio.wait_for(forwarder.run(until_empty=True), spool_world.DEADLINE_SECONDS))
    found = [int(value) for value in spool_world.stream_values(db, tables.stream)]
    # Those of one round are in order; that several rounds mix is due to the test, not to time.
    assert [number for number in found if number % 8 == 0] == [0, 8, 16, 24]
    assert all(found.index(number) < found.index(number + 4) for number in (0, 8, 16, 24))
    earlier.close()
    later.close()


@pytest.mark.req("FJ-22", "FJ-23")
@pytest.mark.parametrize("how", ["PING", "events"])
def test_a_forwarder_that_sleeps_is_woken_by_a_write(
    how: str,
    daemon: Daemon,
    db: fjord.Database,
    tables: spool_world.Tables,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if how == "PING":
        monkeypatch.setattr(waking, "_watch", lambda directory: None)
    else:
        monkeypatch.setattr(waking.Bell, "ring", lambda bell: None)
    forwarder = Forwarder(str(tmp_path), daemon.url, poll=10 * spool_world.DEADLINE_SECONDS)

    async def act() -> None:
        with spool_world.opened(tmp_path) as spool:
            for number in range(20):
                spool_world.write(spool, tables, number)
                await until(lambda seen=number + 1: forwarder.progress.records == seen)  # type: ignore[misc]

    while_forwarding(forwarder, act)
    spool_world.check(db, tables, range(20))
