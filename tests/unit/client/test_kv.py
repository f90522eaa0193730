"""A key/value table as users see it: the blocking shell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import commands
from fjord.client.blocking.kv import Kv
from fjord.client.entries import Key
from fjord.commands import Entries, Get, Set, Welcome
from fjord.errors import Code, ExistsError, RefusedError, RemoteProtocolError
from fjord.values import Type, Value
from tests.unit.client.runners import runner
from tests.unit.client.scripted import TOKEN, entries
from tests.unit.client.shell_calls import FIVE, NOW, SAMPLES, K, Recorder, Sample, make_calls
from tests.unit.tables.world import World


def recorded(recorder: Recorder) -> Kv:
    return Kv(runner(recorder.answer), make_calls())


@pytest.fixture
def table() -> Kv:
    """A table over a world in memory."""
    world = World()

    return Kv(runner(world.run), make_calls())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_call_sends_its_command_and_reads_the_answer(sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    result: Any = sample.call(recorded(recorder))
    if isinstance(result, Iterator):
        result = list(result)
    assert recorder.sent == sample.sent
    assert result == sample.result
    assert type(result) is type(sample.result)


def read_all(sample: Sample, reply: commands.Reply) -> None:
    result: Any = sample.call(recorded(Recorder([reply])))
    if isinstance(result, Iterator):
        list(result)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_reply_of_another_kind_is_the_peers_mistake(sample: Sample) -> None:
    with pytest.raises(RemoteProtocolError, match="of the kind Welcome"):
        read_all(sample, Welcome(client=b"c" * 16, master=b"m" * 16, version="1"))


@pytest.mark.parametrize(
    "sample",
    [one for one in SAMPLES if isinstance(one.replies[0], Entries)],
    ids=lambda sample: sample.name,
)
def test_more_or_fewer_values_than_keys_are_the_peers_mistake(sample: Sample) -> None:
    for wrong in (entries(), entries(*[(3, FIVE)] * 3)):
        with pytest.raises(RemoteProtocolError, match="rows"):
            read_all(sample, wrong)


def test_a_table_says_its_name_and_where_it_is() -> None:
    kv = recorded(Recorder([]))
    assert repr(kv) == "<Kv 't'>"
    named = Kv(runner(Recorder([]).answer, "fjord://host:1"), make_calls())
    assert repr(named) == "<Kv 't' at fjord://host:1>"


def test_pages_are_asked_for_only_when_they_are_needed() -> None:
    sample = next(one for one in SAMPLES if one.name == "range over pages")
    recorder = Recorder(sample.replies)
    rows = recorded(recorder).range("a", "m")
    assert recorder.sent == []
    assert [next(rows), next(rows)] == [("a", 5), ("b", 5)]
    assert len(recorder.sent) == 1


def test_a_table_is_used_like_a_dict() -> None:
    recorder = Recorder([TOKEN, entries((3, FIVE)), entries((3, b"")), TOKEN, entries((0xFF, b""))])
    kv = recorded(recorder)
    kv["k"] = 5
    assert kv["k"] == 5
    assert "k" in kv
    del kv["k"]
    with pytest.raises(KeyError):
        kv["k"]
    assert isinstance(recorder.sent[0], Set)
    assert recorder.sent[1] == Get(table="t", keys=K)


# -- over a real table ----------------------------------------------------------------------------


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

    kv = Kv(runner(world.run), make_calls())
    for key, value in items.items():
        kv.set(key, value)
    by_bytes = {key.encode() if isinstance(key, str) else key: items[key] for key in items}
    for key, value in by_bytes.items():
        assert kv.get(key) == value
