"""A stream as users see it: the blocking shell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fjord import limits
from fjord.client.blocking.streams import Stream
from fjord.client.declared_tables import StreamSettings
from fjord.commands import Refusal, Reply, Stats, Welcome
from fjord.errors import Code, RemoteProtocolError
from tests.unit.client import stream_samples as samples
from tests.unit.client.runners import runner
from tests.unit.client.scripted import TOKEN, entries
from tests.unit.client.shell_calls import FIVE, MISSING, Recorder, Sample, page, range_of


def over(recorder: Recorder, settings: StreamSettings | None = None) -> Stream:
    return Stream(runner(recorder.answer), samples.stream_calls(), samples.entry_calls(), settings)


def read_all(result: Any) -> Any:
    return list(result) if isinstance(result, Iterator) else samples.shown(result)


@pytest.mark.parametrize("sample", samples.STREAM_SAMPLES, ids=lambda sample: sample.name)
def test_a_call_sends_its_command_and_reads_the_answer(sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    result = read_all(sample.call(over(recorder)))
    assert recorder.sent == sample.sent
    assert result == sample.result
    assert type(result) is type(sample.result)


@pytest.mark.parametrize(
    "sample", [one for one in samples.STREAM_SAMPLES if one.sent], ids=lambda sample: sample.name
)
def test_a_reply_of_another_kind_is_the_peers_mistake(sample: Sample) -> None:
    wrong = Welcome(client=b"c" * 16, master=b"m" * 16, version="1")
    with pytest.raises(RemoteProtocolError, match="of the kind Welcome"):
        read_all(sample.call(over(Recorder([wrong]))))


# -- declaring ------------------------------------------------------------------------------------

USES: list[tuple[Callable[[Stream], object], Reply]] = [
    (lambda stream: stream.append(b"v"), TOKEN),
    (lambda stream: stream.append_many([b"v"]), TOKEN),
    (lambda stream: stream.read(), samples.TWO),
    (lambda stream: stream.subscriber("s"), samples.POSITION),
    (lambda stream: stream.reader(start="end"), samples.LAST),
    (lambda stream: stream.get("k"), entries((3, FIVE))),
]


@pytest.mark.parametrize(("use", "reply"), USES)
def test_settings_are_declared_before_the_first_use(
    use: Callable[[Stream], object], reply: Reply
) -> None:
    recorder = Recorder([TOKEN, reply, reply])
    stream = over(recorder, {"mode": "latest"})
    assert recorder.sent == []
    use(stream)
    use(stream)
    assert recorder.sent[0] == samples.CREATED
    assert recorder.sent[1] == recorder.sent[2] != samples.CREATED


# -- many -----------------------------------------------------------------------------------------


def test_the_first_commits_stay_if_a_later_one_is_refused() -> None:
    recorder = Recorder([TOKEN, Refusal(code=Code.DISK_FULL, text="full")])
    with pytest.raises(Exception, match="full"):
        over(recorder).append_many([b""] * (2 * limits.BATCH_ROWS_MAX + 1))
    assert len(recorder.sent) == 2


# -- readers --------------------------------------------------------------------------------------


def test_a_reader_keeps_its_place() -> None:
    recorder = Recorder(
        [
            samples.LAST,
            samples.messages(b"a", after=9),
            samples.messages(b"b", first=10),
            samples.messages(after=10),
        ]
    )
    reader = over(recorder).reader(start="end")
    assert repr(reader) == "<Reader of 't' after seq 5>"
    assert [list(batch.values) for batch in reader.batches(10, wait=1)] == [[b"a"], [b"b"]]
    assert reader.position == 10
    asked = {"count": 10, "wait_us": 1_000_000, "subscriber": ""}
    assert recorder.sent == [
        Stats(),
        samples.read_of(5, **asked),
        samples.read_of(9, **asked),
        samples.read_of(10, **asked),
    ]


def test_a_stream_is_like_a_dict() -> None:
    recorder = Recorder([entries((3, FIVE)), entries(MISSING), entries((3, b"")), entries(MISSING)])
    stream = over(recorder)
    assert stream["k"] == 5
    with pytest.raises(KeyError):
        stream["k"]
    assert "k" in stream
    assert "k" not in stream


def test_a_stream_is_iterated_and_emptied_like_a_dict() -> None:
    recorder = Recorder([page(b"k", b"l"), samples.acted(), samples.acted(0)])
    stream = over(recorder)
    assert list(stream) == ["k", "l"]
    del stream["k"]
    with pytest.raises(KeyError, match="k"):
        del stream["k"]
    assert recorder.sent == [
        range_of(with_data=False),
        samples.erase_of(b"k"),
        samples.erase_of(b"k"),
    ]
