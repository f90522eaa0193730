"""The text format of Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from fjord.server import exposition


def samples(*metrics: exposition.Metric) -> dict[tuple[str, ...], float]:
    text = exposition.text_of(metrics).decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_numbers_have_their_names_and_labels() -> None:
    assert samples(
        exposition.gauge("up", "Goes both ways.", 1.5),
        exposition.count("seen", "Only grows.", 3),
        exposition.count_by("refused", "By why.", "code", {"BUSY": 2, "QUOTA": 0}),
        exposition.by_labels("jobs", "By table.", ["table", "state"], [(("a", "dead"), 0)]),
    ) == {("up",): 1.5, ("seen_total",): 3, ("refused_total", "BUSY"): 2, ("jobs", "a", "dead"): 0}


def test_steps_of_a_histogram_are_summed_up() -> None:
    assert samples(exposition.histogram("took", "How long.", [0.1, 1.0], [2, 3, 1], 4.5)) == {
        ("took_seconds_bucket", "0.1"): 2,
        ("took_seconds_bucket", "1.0"): 5,
        ("took_seconds_bucket", "+Inf"): 6,
        ("took_seconds_count",): 6,
        ("took_seconds_sum",): 4.5,
    }


def test_a_page_says_what_it_is() -> None:
    answer = exposition.page([exposition.gauge("up", "Up.", 1)])
    assert answer.status == 200
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    assert b"up 1.0" in answer.body
