"""A stream as users see it: the blocking shell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fjord import limits
from fjord.client.blocking.streams import Stream
from fjord.client.declared_tables import StreamSettings
from fjord.client.streams import StreamCalls
from fjord.commands import Append, Refusal, Reply, Stats, Subscribe, Welcome
from fjord.errors import Code, DiskFullError, RefusedError, RemoteProtocolError
from fjord.streams import Start
from tests.unit.client.runners import runner
from tests.unit.client.scripted import TOKEN, entries
from tests.unit.client.shell_calls import FIVE, MISSING, Recorder, Sample, page, range_of
from tests.unit.client.stream_samples import (
    CREATED,
    LAST,
    POSITION,
    STREAM_SAMPLES,
    TWO,
    acted,
    append_of,
    entry_calls,
    erase_of,
    message,
    messages,
    read_of,
    shown,
    stream_calls,
)


def over(recorder: Recorder, settings: StreamSettings | None = None) -> Stream:
    return Stream(runner(recorder.answer), stream_calls(), entry_calls(), settings)


def read_all(result: Any) -> Any:
    return list(result) if isinstance(result, Iterator) else shown(result)


@pytest.mark.parametrize("sample", STREAM_SAMPLES, ids=lambda sample: sample.name)
def test_a_call_sends_its_command_and_reads_the_answer(sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    result = read_all(sample.call(over(recorder)))
    assert recorder.sent == sample.sent
    assert result == sample.result
    assert type(result) is type(sample.result)


@pytest.mark.parametrize(
    "sample", [one for one in STREAM_SAMPLES if one.sent], ids=lambda sample: sample.name
)
def test_a_reply_of_another_kind_is_the_peers_mistake(sample: Sample) -> None:
    wrong = Welcome(client=b"c" * 16, master=b"m" * 16, version="1")
    with pytest.raises(RemoteProtocolError, match="of the kind Welcome"):
        read_all(sample.call(over(Recorder([wrong]))))


def test_a_stream_says_its_name_and_where_it_is() -> None:
    stream = over(Recorder([]))
    assert repr(stream) == "<Stream 't'>"
    named = Stream(runner(Recorder([]).answer, "fjord://host:1"), stream_calls(), entry_calls())
    assert repr(named) == "<Stream 't' at fjord://host:1>"


# -- declaring ------------------------------------------------------------------------------------

USES: list[tuple[Callable[[Stream], object], Reply]] = [
    (lambda stream: stream.append(b"v"), TOKEN),
    (lambda stream: stream.append_many([b"v"]), TOKEN),
    (lambda stream: stream.read(), TWO),
    (lambda stream: stream.subscriber("s"), POSITION),
    (lambda stream: stream.reader(start="end"), LAST),
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
    assert recorder.sent[0] == CREATED
    assert recorder.sent[1] == recorder.sent[2] != CREATED


def test_a_declaration_that_is_refused_is_made_again_by_the_next_call() -> None:
    refusal = Refusal(code=Code.DISK_FULL, text="full")
    recorder = Recorder([refusal, TOKEN, TOKEN])
    stream = over(recorder, {"mode": "latest"})
    with pytest.raises(DiskFullError):
        stream.append(b"v")
    stream.append(b"v")
    assert recorder.sent == [CREATED, CREATED, append_of(b"v")]


# -- many -----------------------------------------------------------------------------------------


def test_what_is_too_much_for_one_commit_goes_in_several() -> None:
    recorder = Recorder([TOKEN, TOKEN])
    assert over(recorder).append_many([b""] * (limits.BATCH_ROWS_MAX + 1)) == 5
    sizes = [len(one.types) for one in recorder.sent if isinstance(one, Append)]
    assert sizes == [limits.BATCH_ROWS_MAX, 1]


def test_the_first_commits_stay_if_a_later_one_is_refused() -> None:
    recorder = Recorder([TOKEN, Refusal(code=Code.DISK_FULL, text="full")])
    with pytest.raises(Exception, match="full"):
        over(recorder).append_many([b""] * (2 * limits.BATCH_ROWS_MAX + 1))
    assert len(recorder.sent) == 2


# -- readers --------------------------------------------------------------------------------------


def test_a_subscriber_is_made_where_it_is_to_begin() -> None:
    recorder = Recorder([POSITION, messages(b"a")])
    subscriber = over(recorder).subscriber("s", start=7)
    assert repr(subscriber) == "<Subscriber 's' of 't'>"
    assert list(subscriber.read()) == [message(6, b"a")]
    assert recorder.sent == [Subscribe(table="t", name="s", start=Start.SEQ, at=7), read_of(5)]


def test_a_reader_keeps_its_place() -> None:
    recorder = Recorder(
        [LAST, messages(b"a", after=9), messages(b"b", first=10), messages(after=10)]
    )
    reader = over(recorder).reader(start="end")
    assert repr(reader) == "<Reader of 't' after seq 5>"
    assert [list(batch.values) for batch in reader.batches(10, wait=1)] == [[b"a"], [b"b"]]
    assert reader.position == 10
    asked = {"count": 10, "wait_us": 1_000_000, "subscriber": ""}
    assert recorder.sent == [
        Stats(),
        read_of(5, **asked),
        read_of(9, **asked),
        read_of(10, **asked),
    ]


def test_a_read_goes_on_behind_what_was_read() -> None:
    recorder = Recorder([messages(b"a", until=20, ended=False), messages(b"b", first=7, after=20)])
    stream = over(recorder)
    begun = stream.read(1)
    stream.read(1, after=begun)
    assert recorder.sent == [
        read_of(0, count=1, subscriber=""),
        read_of(6, until=20, count=1, subscriber=""),
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
    recorder = Recorder([page(b"k", b"l"), acted(), acted(0)])
    stream = over(recorder)
    assert list(stream) == ["k", "l"]
    del stream["k"]
    with pytest.raises(KeyError, match="k"):
        del stream["k"]
    assert recorder.sent == [range_of(with_data=False), erase_of(b"k"), erase_of(b"k")]


def test_wrong_names_are_refused_before_anything_is_sent() -> None:
    recorder = Recorder([])
    for name in ("", "a/b", "-a", "a" * 129):
        with pytest.raises(RefusedError, match="BAD_NAME: a name is"):
            StreamCalls(name)
        with pytest.raises(RefusedError, match="BAD_NAME: a name is"):
            over(recorder, {"mode": "latest"}).subscriber(name)
    assert recorder.sent == []
