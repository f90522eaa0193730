"""Tables as of a snapshot, for asyncio: they do what the blocking ones do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from fjord.client import snapshots as async_snapshots
from fjord.client.blocking import snapshots
from fjord.client.runner import AsyncSnapshotRunner
from fjord.client.snapshots import AsyncSnapshot
from fjord.clock import Stamps
from fjord.testing import SimClock
from tests.unit.client.runners import async_runner
from tests.unit.client.scripted import NOW_US
from tests.unit.client.shell_calls import Recorder, Sample
from tests.unit.client.snapshot_samples import OPENED, SAMPLES
from tests.unit.client.stream_samples import NOW, shown


def over(recorder: Recorder, name: str = "") -> AsyncSnapshot:
    reader = AsyncSnapshotRunner(async_runner(recorder.answer, name), OPENED.snapshot)
    return AsyncSnapshot(reader, OPENED, Stamps(SimClock(NOW_US)))


async def finished(result: Any) -> Any:
    if isinstance(result, AsyncIterator):
        return [shown(row) async for row in result]
    return shown(await result)


@pytest.mark.parametrize(
    ("kind", "sample"), SAMPLES, ids=[f"{kind} {sample.name}" for kind, sample in SAMPLES]
)
def test_a_call_sends_its_command_and_reads_the_answer(kind: str, sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    table = getattr(over(recorder), kind)("t")
    result = asyncio.run(finished(sample.call(table)))
    assert recorder.sent == sample.sent
    assert result == sample.result


@pytest.mark.parametrize("name", ["", "Kv", "Stream"])
def test_both_shells_have_the_same_methods_with_the_same_parameters(name: str) -> None:
    def described(kind: type) -> dict[str, Any]:
        return {
            name: None
            if isinstance(found, property)
            else [str(one) for one in inspect.signature(found).parameters.values()]
            for name, found in vars(kind).items()
            if not name.startswith("_")
        }

    blocking = described(getattr(snapshots, f"Snapshot{name}"))
    assert blocking
    assert described(getattr(async_snapshots, f"AsyncSnapshot{name}")) == blocking


def test_a_snapshot_says_what_it_is() -> None:
    snapshot = over(Recorder([]), "fjord://host:1")
    assert repr(snapshot) == "<AsyncSnapshot of seq 40 at fjord://host:1>"
    assert (snapshot.at, snapshot.expires_at) == (NOW, NOW + timedelta(minutes=15))
    assert repr(snapshot.kv()) == "<AsyncSnapshotKv 'default'>"
