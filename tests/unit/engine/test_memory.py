from __future__ import annotations

import random
from pathlib import Path

import pytest

from fjord import limits
from fjord.testing import SimClock
from tests.unit.engine.world import open_at, read, write

CACHE_BYTES = 64 * 1024


@pytest.mark.req("FJ-29")
def test_data_larger_than_the_cache_is_served_and_the_cache_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "VALUE_CACHE_BYTES", CACHE_BYTES)
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    dice = random.Random(1)
    model = {b"key-%04d" % number: dice.randbytes(1000) for number in range(1000)}
    write(engine, clock, model)
    for _ in range(3):
        for key in dice.sample(list(model), 500):
            assert read(engine, key) == [model[key]]
            assert engine._journal._values.size <= CACHE_BYTES
    assert len(engine._journal._values) > 10  # it is in use
    assert read(engine, *model) == list(model.values())
