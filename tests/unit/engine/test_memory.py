from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Batch, Command, Refusal, Rename, Set
from fjord.testing import SimClock
from tests.unit.engine.world import TABLE, open_at, read, set_command, write

CACHE_BYTES = 64 * 1024


@pytest.mark.req("FJ-31")
@pytest.mark.parametrize("links_max", [1, 100])
@pytest.mark.parametrize("what", ["refused batch", "restart", "nothing"])
def test_further_keys_are_known_whatever_happened_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, links_max: int
) -> None:
    monkeypatch.setattr(limits, "LINKS_MAX", links_max)
    clock = SimClock()
    engine = open_at(tmp_path, clock)

    def link(key: bytes, *also: bytes) -> Set:
        command = set_command({key: b"value"}, timestamp_us=clock.wall_us())
        return replace(command, also=Strings.of(also))

    def rename(key: bytes, to: bytes) -> Rename:
        clock.advance(1)
        return Rename(table=TABLE, key=key, to=to, timestamp_us=clock.wall_us())

    engine.run([link(b"other", b"another"), rename(b"other", b"x")])  # from here on they are known
    if what == "refused batch":
        batch: list[Command] = [link(b"a", b"b"), rename(b"a", b"y"), rename(b"nothing", b"z")]
        (refused,) = engine.run([Batch(commands=batch)])
        assert isinstance(refused, Refusal)
    engine.run([link(b"a", b"b", b"c")])
    if what == "restart":
        engine.sync()
        engine.close()
        engine = open_at(tmp_path, clock)
    engine.run([rename(b"a", b"d"), rename(b"b", b"e"), rename(b"d", b"f")])
    engine.sync()
    assert read(engine, b"f", b"c", b"e", b"x", b"another") == [b"value"] * 5
    assert read(engine, b"a", b"b", b"d", b"other") == [None] * 4
    engine.close()


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
            assert engine.journal._values.size <= CACHE_BYTES
    assert len(engine.journal._values) > 10  # it is in use
    assert read(engine, *model) == list(model.values())
