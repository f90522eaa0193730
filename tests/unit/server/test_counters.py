"""Histograms: every duration falls into one step."""

from __future__ import annotations

import pytest

from fjord.commands import FUNCTIONS
from fjord.server.counters import STEPS_US, Counters, Histogram
from fjord.wire import Function


@pytest.mark.parametrize(
    ("took_us", "step"),
    [
        (0, 0),
        (STEPS_US[0], 0),
        (STEPS_US[0] + 1, 1),
        (STEPS_US[-1], len(STEPS_US) - 1),
        (STEPS_US[-1] + 1, len(STEPS_US)),
        (10**12, len(STEPS_US)),
    ],
)
def test_a_duration_falls_into_the_first_step_that_holds_it(took_us: int, step: int) -> None:
    histogram = Histogram()
    histogram.observe(took_us)
    assert histogram.counts[step] == 1
    assert (histogram.count, histogram.sum_us) == (1, took_us)


def test_every_function_has_a_place() -> None:
    counters = Counters()
    functions = {*Function, *FUNCTIONS}
    for function in functions:
        counters.requests[function] += 1
    assert sum(counters.requests) == len(functions)
