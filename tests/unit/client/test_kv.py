"""A key/value table as users see it: the blocking shell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fjord import commands
from fjord.client.blocking.kv import Kv
from fjord.commands import Entries, Get, Set, Welcome
from fjord.errors import RemoteProtocolError
from tests.unit.client.runners import runner
from tests.unit.client.scripted import TOKEN, entries
from tests.unit.client.shell_calls import FIVE, SAMPLES, K, Recorder, Sample, make_calls


def recorded(recorder: Recorder) -> Kv:
    return Kv(runner(recorder.answer), make_calls())


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
