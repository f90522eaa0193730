"""The same crashes as in test_simulated.py, with new scripts for as long as one likes."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.crash.test_simulated import survive_every_crash


@pytest.mark.soak
@pytest.mark.parametrize("power", [True, False], ids=["power-cut", "process-crash"])
def test_scripts_without_end_lose_nothing(power: bool, soak_seconds: float) -> None:
    deadline = time.monotonic() + soak_seconds
    points = 0
    for seed in itertools.count(1_000):
        points += survive_every_crash(seed, power=power)
        print(f"seed {seed}: {points} crash points so far")
        if time.monotonic() > deadline:
            break
    assert points > 0
