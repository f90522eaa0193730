"""Numbers in the text format of Prometheus.  No other module knows its library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import Metric, core, generate_latest
from prometheus_client.registry import Collector

from fjord.errors import Code
from fjord.server.http import Answer

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

__all__ = ["Metric", "by_labels", "count", "count_by", "gauge", "histogram", "page", "text_of"]


def gauge(name: str, text: str, value: float) -> Metric:
    """Returns a number that may increase and decrease."""
    return core.GaugeMetricFamily(name, text, value=value)


def count(name: str, text: str, value: float) -> Metric:
    """Returns a number that only increases; its name gets _total."""
    return core.CounterMetricFamily(name, text, value)


def count_by(
    name: str, text: str, label: str, counts: Mapping[str, int] | Mapping[Code, int]
) -> Metric:
    """Returns numbers that only increase, one for each value of a label."""
    family = core.CounterMetricFamily(name, text, labels=[label])
    for value, number in counts.items():
        if number:
            family.add_metric([value], number)
    return family


def by_labels(
    name: str, text: str, labels: Iterable[str], numbers: Iterable[tuple[Iterable[str], float]]
) -> Metric:
    """Returns numbers that may increase and decrease, each with values of these labels."""
    family = core.GaugeMetricFamily(name, text, labels=[*labels])
    for values, number in numbers:
        family.add_metric([*values], number)
    return family


def histogram(
    name: str, text: str, steps: Iterable[float], counts: Iterable[int], total: float
) -> Metric:
    """Returns a histogram of durations.

    Args:
        name: of the operation, without its unit.
        text: its description.
        steps: upper bounds, in seconds; there is one more count for longer durations.
        counts: one for each step.
        total: the sum of all durations, in seconds.
    """
    buckets: list[tuple[str, float]] = []
    so_far = 0
    for end, number in zip([*map(str, steps), "+Inf"], counts, strict=True):
        so_far += number
        buckets.append((end, so_far))
    return core.HistogramMetricFamily(f"{name}_seconds", text, buckets=buckets, sum_value=total)


def text_of(metrics: Iterable[Metric]) -> bytes:
    return generate_latest(_Once(metrics))


def page(metrics: Iterable[Metric]) -> Answer:
    """Returns metrics as an HTTP page."""
    return Answer(status=200, body=text_of(metrics), content_type=_CONTENT_TYPE)


class _Once(Collector):
    """Hands numbers to the library when it asks for them."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
