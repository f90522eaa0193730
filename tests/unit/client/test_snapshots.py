"""Tables as of a snapshot: the blocking shell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from fjord.client.blocking.runner import SnapshotRunner
from fjord.client.blocking.snapshots import Snapshot
from fjord.clock import Stamps
from fjord.commands import Replies
from fjord.errors import RemoteProtocolError
from fjord.testing import SimClock
from tests.unit.client.runners import runner
from tests.unit.client.scripted import NOW_US, TOKEN
from tests.unit.client.shell_calls import Recorder, Sample
from tests.unit.client.snapshot_samples import OPENED, SAMPLES
from tests.unit.client.stream_samples import NOW, shown


def over(recorder: Recorder, name: str = "") -> Snapshot:
    reader = SnapshotRunner(runner(recorder.answer, name), OPENED.snapshot)
    return Snapshot(reader, OPENED, Stamps(SimClock(NOW_US)))


def read_all(result: Any) -> Any:
    return [shown(one) for one in result] if isinstance(result, Iterator) else shown(result)


@pytest.mark.parametrize(
    ("kind", "sample"), SAMPLES, ids=[f"{kind} {sample.name}" for kind, sample in SAMPLES]
)
def test_a_call_sends_its_command_and_reads_the_answer(kind: str, sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    table = getattr(over(recorder), kind)("t")
    result = read_all(sample.call(table))
    assert recorder.sent == sample.sent
    assert result == sample.result


def test_a_snapshot_says_what_it_is() -> None:
    snapshot = over(Recorder([]), "fjord://host:1")
    assert repr(snapshot) == "<Snapshot of seq 40 at fjord://host:1>"
    assert snapshot.seq == 40
    assert (snapshot.at, snapshot.expires_at) == (NOW, NOW + timedelta(minutes=15))
    assert repr(snapshot.kv()) == "<SnapshotKv 'default'>"
    assert repr(snapshot.stream("t")) == "<SnapshotStream 't'>"


@pytest.mark.parametrize("answer", [TOKEN, Replies(replies=[]), Replies(replies=[TOKEN, TOKEN])])
def test_an_answer_that_does_not_fit_is_the_peers_mistake(answer: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        over(Recorder([answer])).kv("t").get("k")
