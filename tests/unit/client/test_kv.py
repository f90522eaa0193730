"""A key/value table as users see it: the commands that calls build, and the values they give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord.client.calls import Call, Result
from fjord.client.kv import Entry, Key, Kv, KvCalls
from fjord.clock import Stamps
from fjord.columns import Strings
from fjord.commands import Delete, Done, Entries, Get, Set
from fjord.errors import Code, ExistsError, FjordError, LocalProtocolError, RefusedError
from fjord.testing import SimClock
from fjord.values import Type, Value
from tests.unit.tables.world import NOW_US, World

NOW = datetime.fromtimestamp(NOW_US / 1_000_000, tz=UTC)
TOKEN = Done(master=b"m" * 16, seq=5)


def make_calls() -> KvCalls:
    return KvCalls("t", Stamps(SimClock(NOW_US)))


def entries(*rows: tuple[int, bytes]) -> Entries:
    return Entries(
        types=bytes([type_ for type_, _ in rows]),
        values=Strings.of([value for _, value in rows]),
        timestamps_us=[NOW_US] * len(rows),
        expires_at_us=[0] * len(rows),
    )


@pytest.fixture
def table() -> Kv:
    """A table over a world in memory."""
    world = World()

    def run(call: Call[Result], /) -> Result:
        return call.result(world.run(call.command))

    return Kv(run, make_calls())


# -- what calls send ------------------------------------------------------------------------------


def test_set_many_is_one_command_with_one_timestamp() -> None:
    items: dict[Key, Value] = {"a": 1, b"b": "two"}
    call = make_calls().set_many(items)
    command = call.command
    assert isinstance(command, Set)
    assert command.table == "t"
    assert command.keys.rows() == [b"a", b"b"]
    assert command.types == bytes([Type.INTEGER, Type.STRING])
    assert command.values.rows() == [b"\1" + bytes(7), b"two"]
    assert list(command.timestamps_us) == [NOW_US] * 2
    assert (command.expires_at_us, command.overwrite, command.persist) == (0, True, True)
    assert call.result(TOKEN) is None


def test_options_are_passed_on() -> None:
    command = make_calls().set_many({"a": 1}, expires_at=NOW, overwrite=False, persist=False)
    assert isinstance(command.command, Set)
    assert command.command.expires_at_us == NOW_US
    assert (command.command.overwrite, command.command.persist) == (False, False)


def test_each_write_is_later_than_the_one_before() -> None:
    calls = make_calls()
    stamps = []
    for _ in range(3):
        for call in (calls.set_many({"a": 1}), calls.delete_many(["a"])):
            command = call.command
            assert isinstance(command, Set | Delete)
            stamps.append(
                command.timestamps_us[0] if isinstance(command, Set) else command.timestamp_us
            )
    assert stamps == list(range(NOW_US, NOW_US + 6))


def test_keys_are_text_or_bytes() -> None:
    keys: list[Key] = ["caf\u00e9", b"\xff"]
    for call in (make_calls().get_many(keys), make_calls().delete_many(keys)):
        assert isinstance(call.command, Get | Delete)
        assert call.command.keys.rows() == ["caf\u00e9".encode(), b"\xff"]


def test_keys_may_come_from_any_iterable() -> None:
    call = make_calls().get_many(key for key in ("a", "b"))
    assert call.result(entries((3, b"\1" + bytes(7)), (Entries.MISSING, b""))) == {"a": 1}


def test_a_key_that_utf8_cannot_hold_is_refused_as_a_value_is() -> None:
    calls = make_calls()
    with pytest.raises(FjordError):
        calls.get_many(["\ud800"])
    with pytest.raises(FjordError):
        calls.set_many({"\ud800": 1})
    with pytest.raises(FjordError):
        calls.delete_many(["\ud800"])


def test_a_value_without_a_type_is_refused_before_it_is_sent() -> None:
    unknown: Any = {"a": object()}
    with pytest.raises(LocalProtocolError):
        make_calls().set_many(unknown)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
        datetime(2030, 1, 2, 5, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_an_expiry_is_exact_to_the_microsecond(moment: datetime) -> None:
    command = make_calls().set_many({"a": 1}, expires_at=moment).command
    assert isinstance(command, Set)
    assert command.expires_at_us == 1_893_553_445_678_901


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_dates_survive_the_way_there_and_back(moment: datetime) -> None:
    command = make_calls().set_many({"a": 1}, expires_at=moment).command
    assert isinstance(command, Set)
    reply = Entries(
        types=b"\0",
        values=Strings.of([b""]),
        timestamps_us=[command.expires_at_us],
        expires_at_us=[command.expires_at_us],
    )
    entry = make_calls().entry("a").result(reply)
    assert entry is not None
    assert (entry.written_at, entry.expires_at) == (moment, moment)


# -- what replies mean ----------------------------------------------------------------------------


def test_only_what_was_found_is_in_the_answer() -> None:
    keys: list[Key] = ["a", "b", b"c"]
    call = make_calls().get_many(keys)
    reply = entries((1, b"x"), (Entries.MISSING, b""), (0, b""))
    assert call.result(reply) == {"a": b"x", b"c": None}


def test_an_entry_tells_type_and_dates() -> None:
    call = make_calls().entry("a")
    assert call.result(entries((2, b"text"))) == Entry(
        value="text", type=Type.STRING, written_at=NOW, expires_at=None
    )
    assert call.result(entries((Entries.MISSING, b""))) is None


# -- the table ------------------------------------------------------------------------------------


def test_a_table_reads_what_it_wrote(table: Kv) -> None:
    table.set("a", 1)
    table.set(b"b", "two", persist=False)
    table.set_many({"c": 3.5, "d": None, "e": True})
    assert [table.get(key) for key in "abce"] == [1, "two", 3.5, True]
    assert table.get_many(["a", "d", "none"]) == {"a": 1, "d": None}
    table.delete("a")
    table.delete_many(["b", "none"])
    assert table.get_many(["a", "b", "c"]) == {"c": 3.5}


def test_a_default_stands_for_what_is_missing_only(table: Kv) -> None:
    table.set("void", None)
    assert table.get("none") is None
    assert table.get("none", 5) == 5
    assert table.get("void", 5) is None


def test_a_later_write_of_one_client_always_wins(table: Kv) -> None:
    for number in range(5):
        table.set("a", number)
    assert table.get("a") == 4
    table.delete("a")
    assert table.get("a") is None
    table.set("a", "again")
    assert table.get("a") == "again"


def test_refusals_are_raised(table: Kv) -> None:
    table.set("a", 1)
    with pytest.raises(ExistsError):
        table.set("a", 2, overwrite=False)
    with pytest.raises(RefusedError) as caught:
        table.set("", 2)
    assert caught.value.code is Code.EMPTY_KEY
    with pytest.raises(RefusedError) as caught:
        table.set("a", 1, expires_at=NOW - timedelta(days=1))
    assert caught.value.code is Code.BAD_TIMEOUT
    assert table.get("a") == 1


def test_an_entry_of_the_table(table: Kv) -> None:
    table.set("a", 1, expires_at=NOW + timedelta(hours=1))
    entry = table.entry("a")
    assert entry is not None
    assert (entry.value, entry.type) == (1, Type.INTEGER)
    assert entry.written_at == NOW
    assert entry.expires_at == NOW + timedelta(hours=1)
    assert table.entry("none") is None


any_value: st.SearchStrategy[Value] = st.one_of(
    st.none(), st.binary(), st.text(), st.integers(-(2**63), 2**63 - 1), st.booleans()
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=9) | st.binary(min_size=1), any_value))
def test_many_values_of_any_type_come_back(items: dict[Key, Value]) -> None:
    world = World()

    def run(call: Call[Result], /) -> Result:
        return call.result(world.run(call.command))

    kv = Kv(run, make_calls())
    for key, value in items.items():
        kv.set(key, value)
    by_bytes = {key.encode() if isinstance(key, str) else key: items[key] for key in items}
    for key, value in by_bytes.items():
        assert kv.get(key) == value
