"""Tables of a spool: what a call writes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fjord import limits
from fjord.client.spool.records import Gathering, stamp_of
from fjord.client.spool.writer import SpoolJobs, SpoolKv, SpoolStream
from fjord.clock import Stamps
from fjord.commands import Command, Delete, Push, Set
from fjord.errors import Code, ProtocolError, RefusedError
from fjord.jobs import Priority
from fjord.testing import SimClock
from fjord.values import Type

NOW = SimClock().wall_us()
SECOND = 1_000_000
STEP = SECOND // 10  # an expiry that comes from a TTL is a multiple of it
MICROSECOND = timedelta(microseconds=1)
AT = datetime.fromtimestamp(NOW // SECOND, UTC) + timedelta(seconds=1)


class Written:
    """Tables whose records are kept here."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.stamps: list[int] = []
        stamps = Stamps(SimClock())
        self.jobs = SpoolJobs(self.write, stamps, "jobs")
        self.stream = SpoolStream(self.write, stamps, "stream")
        self.kv = SpoolKv(self.write, stamps, "kv")

    def write(self, record: bytes, stamp_us: int) -> None:
        self.records.append(record)
        self.stamps.append(stamp_us)

    def commands(self, now_us: int = NOW) -> list[Command]:
        """Returns what a forwarder sends."""
        assert [stamp_of(record) for record in self.records] == self.stamps
        batch = Gathering(now_us)
        assert batch.add_all(self.records) == len(self.records)
        return batch.commands()


@pytest.fixture
def spool() -> Written:
    return Written()


@pytest.mark.parametrize(
    "act",
    [
        lambda spool: spool.jobs.push({"uri": "a"}),
        lambda spool: spool.jobs.push("k", {"uri": "a"}),
        lambda spool: spool.jobs.push_many(values=[{"uri": "a"}]),
        lambda spool: spool.jobs.push_many(values={"uri": ["a"]}),
        lambda spool: spool.stream.append({"uri": "a"}),
        lambda spool: spool.stream.append_many([{"uri": "a"}]),
        lambda spool: spool.stream.append_many({"uri": ["a"]}),
    ],
)
def test_rows_are_refused_since_nobody_can_be_asked(
    spool: Written, act: Callable[[Any], object]
) -> None:
    with pytest.raises(ProtocolError, match="a spool takes no rows"):
        act(spool)
    assert spool.records == []


# -- jobs -----------------------------------------------------------------------------------------


def test_a_push_is_a_record(spool: Written) -> None:
    spool.jobs.push("http://example.com/a", "value")
    spool.jobs.push(b"raw", 5, priority=3, delay=1.5, domain="dom")
    (command,) = spool.commands()
    assert isinstance(command, Push)
    assert command.table == "jobs"
    assert list(command.keys) == [b"http://example.com/a", b"raw"]
    assert list(command.values) == [b"value", (5).to_bytes(8, "little")]
    assert list(command.types) == [Type.STRING, Type.INTEGER]
    assert list(command.priorities) == [Priority.DEFAULT, 3]
    assert list(command.domains) == [b"", b"dom"]
    assert list(command.process_at_us) == [0, NOW + 1 + 3 * SECOND // 2]
    assert list(command.expires_at_us) == [0, 0]
    assert list(command.timestamps_us) == [NOW, NOW + 1]


def test_dates_of_a_job_are_kept(spool: Written) -> None:
    due = datetime(2030, 1, 1, tzinfo=UTC)
    spool.jobs.push("a", process_at=due, expires_at=due + timedelta(seconds=2))
    (command,) = spool.commands()
    assert isinstance(command, Push)
    due_us = round(due.timestamp()) * SECOND
    assert list(command.process_at_us) == [due_us]
    assert list(command.expires_at_us) == [due_us + 2 * SECOND]


def test_many_jobs_are_one_record(spool: Written) -> None:
    spool.jobs.push_many([{"key": "a", "value": 1}, {"key": "b", "delay": 2}])
    spool.jobs.push_many(keys=["c", "d"], priority=7)
    spool.jobs.push_many([])
    first, second = spool.commands()
    assert isinstance(first, Push)
    assert isinstance(second, Push)
    assert (list(first.keys), list(second.keys)) == ([b"a", b"b"], [b"c", b"d"])
    # A delay counts from the call, however late it arrives.
    assert not first.relative
    assert list(first.process_at_us) == [0, NOW + 2 * SECOND]
    assert list(second.priorities) == [7, 7]
    assert len(spool.records) == 2


# -- values ---------------------------------------------------------------------------------------


def lives_of(commands: list[Command]) -> list[tuple[int, int]]:
    """Returns when values expire, from the beginning on, and their TTLs."""
    return [(one.expires_at_us - NOW, one.ttl_us) for one in commands if isinstance(one, Set)]


def test_a_value_lives_from_the_call_on(spool: Written) -> None:
    spool.kv.set("a", 1, ttl=5)
    spool.kv.set_many({"b": 2, "c": 3}, ttl=5)
    spool.kv.set("d", 1, ttl=timedelta(seconds=7), also=["e"])
    assert lives_of(spool.commands()) == [
        (5 * SECOND, 5 * SECOND), (5 * SECOND + STEP, 5 * SECOND), (7 * SECOND + STEP, 7 * SECOND),
    ]  # fmt: skip
    late = spool.commands(NOW + 5 * SECOND)
    assert [type(command) for command in late] == [Delete, Set, Set]


def test_a_value_lives_for_30_days_at_most(spool: Written) -> None:
    spool.kv.set("a", 1)
    days = timedelta(days=30)
    spool.kv.set("b", 1, ttl=days)  # not a microsecond more, which would be refused for good
    assert lives_of(spool.commands())[1:] == [(days // MICROSECOND + 1, days // MICROSECOND)]
    for options in ({"ttl": days + MICROSECOND}, {"expires_at": AT + days + MICROSECOND}):
        for call in (spool.kv.set, lambda *_, **given: spool.kv.set_many({"c": 1}, **given)):
            with pytest.raises(ProtocolError, match="BAD_TIMEOUT"):
                call("c", 1, **options)
    assert len(spool.records) == 2


def test_deletions_are_records(spool: Written) -> None:
    spool.kv.delete("a")
    spool.kv.delete_many(["b", "c"])
    spool.kv.delete_many([])
    spool.kv.set_many({})
    first, second = spool.commands()
    assert isinstance(first, Delete)
    assert isinstance(second, Delete)
    assert (list(first.keys), list(second.keys)) == ([b"a"], [b"b", b"c"])
    assert (first.timestamp_us, second.timestamp_us) == (NOW, NOW + 1)
    assert len(spool.records) == 2


# -- what is refused ------------------------------------------------------------------------------

LONG = "k" * (limits.KV_KEY_BYTES_MAX + 1)
LARGE = b"x" * (limits.VALUE_BYTES_MAX + 1)
BAD: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "value": (lambda s: s.jobs.push("a", LARGE), ProtocolError, "VALUE_TOO_LARGE"),
    "message": (lambda s: s.stream.append(LARGE), ProtocolError, "VALUE_TOO_LARGE"),
    "set": (lambda s: s.kv.set("a", LARGE), ProtocolError, "VALUE_TOO_LARGE"),
    "set, ttl": (lambda s: s.kv.set("a", LARGE, ttl=1), ProtocolError, "VALUE_TOO_LARGE"),
    "job key": (lambda s: s.jobs.push("k" * 1025), ProtocolError, "KEY_TOO_LONG"),
    "jobs key": (lambda s: s.jobs.push_many(keys=["k" * 1025]), ProtocolError, "KEY_TOO_LONG"),
    "message key": (lambda s: s.stream.append(b"", key=LONG), ProtocolError, "KEY_TOO_LONG"),
    "messages key": (lambda s: s.stream.append_many([b""], [LONG]), ProtocolError, "KEY_TOO_LONG"),
    "kv key": (lambda s: s.kv.set(LONG, 1), ProtocolError, "KEY_TOO_LONG"),
    "kv keys": (lambda s: s.kv.set_many({LONG: 1}), ProtocolError, "KEY_TOO_LONG"),
    "delete key": (lambda s: s.kv.delete(LONG), ProtocolError, "KEY_TOO_LONG"),
    "deletes key": (lambda s: s.kv.delete_many([LONG]), ProtocolError, "KEY_TOO_LONG"),
    "no key": (lambda s: s.kv.set("", 1), ProtocolError, "EMPTY_KEY"),
    "no key, ttl": (lambda s: s.kv.set("", 1, ttl=1), ProtocolError, "EMPTY_KEY"),
    "no keys": (lambda s: s.kv.set_many({"": 1}), ProtocolError, "EMPTY_KEY"),
    "no key to delete": (lambda s: s.kv.delete(""), ProtocolError, "EMPTY_KEY"),
    "no keys to delete": (lambda s: s.kv.delete_many(["a", ""]), ProtocolError, "EMPTY_KEY"),
    "domain": (lambda s: s.jobs.push("a", domain="d" * 256), ProtocolError, "BAD_DOMAIN"),
    "rows": (lambda s: s.kv.delete_many(["k"] * 100_001), ProtocolError, "100000"),
    "bytes": (
        lambda s: s.jobs.push_many(keys=["k"] * 9, values=[LARGE[:-1]] * 9), ProtocolError,
        "TOO_LARGE",
    ),
    "domains": (
        lambda s: s.jobs.push_many(keys=["k"] * 50_000, domain="d" * 255), ProtocolError,
        "TOO_LARGE",
    ),
    "priority": (lambda s: s.jobs.push("a", priority=256), ValueError, "priority"),
    "both dates": (
        lambda s: s.jobs.push("a", delay=1, process_at=datetime.now(UTC)), ValueError, "delay",
    ),
    "no such option": (lambda s: s.jobs.push("a", dealy=1), TypeError, "dealy"),
    "no such set option": (lambda s: s.kv.set("a", 1, tll=1), TypeError, "tll"),
    "overwrite": (lambda s: s.kv.set("a", 1, overwrite=False), ValueError, "leave out overwrite"),
    "overwrite many": (
        lambda s: s.kv.set_many({"a": 1}, overwrite=False), ValueError, "leave out overwrite",
    ),
    "persist": (lambda s: s.kv.set("a", 1, persist=False), ValueError, "leave out persist"),
    "no value": (lambda s: s.kv.set("a", object()), ProtocolError, "BAD_TYPE"),
    "no key at all": (lambda s: s.jobs.push(5), ProtocolError, "BAD_TYPE"),
    "next": (lambda s: s.jobs.next(), AttributeError, "a spool only writes"),
    "get": (lambda s: s.kv.get("a"), AttributeError, "use fjord.connect"),
    "read": (lambda s: s.stream.read(), AttributeError, "it has no read"),
    "private": (lambda s: s.stream._connection, AttributeError, "_connection"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_sent_is_refused_at_the_call(spool: Written, name: str) -> None:
    call, kind, text = BAD[name]
    with pytest.raises(kind, match=text):
        call(spool)
    assert not spool.records


@pytest.mark.parametrize("name", ["", "-a", "a b", "x" * 129, "ä"])
def test_a_table_needs_a_name(name: str) -> None:
    for kind in (SpoolJobs, SpoolStream, SpoolKv):
        with pytest.raises(RefusedError) as raised:
            kind(lambda record, stamp_us: None, Stamps(SimClock()), name)
        assert raised.value.code is Code.BAD_NAME


def test_what_is_as_large_as_it_may_be_is_written(spool: Written) -> None:
    spool.jobs.push("k" * limits.JOB_KEY_BYTES_MAX, LARGE[1:], domain="d" * 255)
    spool.stream.append(LARGE[1:], key=LONG[1:])
    spool.kv.set(LONG[1:], LARGE[1:])
    spool.kv.delete(LONG[1:])
    spool.kv.delete_many([LONG[1:]])
    assert len(spool.records) == 5
