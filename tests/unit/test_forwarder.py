"""The numbers of a forwarder, and that each is explained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fjord import forwarder
from fjord.client.spool.files import Fate
from fjord.client.spool.survey import RULES, Alert
from fjord.errors import Code
from fjord.forwarder import Progress
from fjord.server import exposition

NOW_US = 1_700_000_000_000_000
OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def samples(progress: Progress) -> dict[tuple[str, ...], float]:
    text = exposition.text_of(forwarder.metrics(progress, 2_000_000, NOW_US)).decode()
    return {
        (sample.name.removeprefix("fjord_forwarder_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_they_say_what_was_done_and_what_is_wrong() -> None:
    progress = Progress(
        records=1,
        batches=2,
        bytes=3,
        retries=4,
        files_deleted=5,
        set_aside=Counter({Fate.TORN: 6, Fate.DAMAGED: 7}),
        refused=Counter({Code.WRONG_KIND: 8}),
        waiting_bytes=9,
        waiting_files=10,
        oldest_us=NOW_US - 11_500_000,
        problem="away",
        alerts=[Alert(73, "owner", "07.spool", "one"), Alert(73, "owner", "08.spool", "two")],
    )
    found = samples(progress)
    assert {name: found[name] for name in found if name[0] != "alerts"} == {
        ("uptime_seconds",): 2,
        ("records_total",): 1,
        ("batches_total",): 2,
        ("bytes_total",): 3,
        ("retries_total",): 4,
        ("files_deleted_total",): 5,
        ("set_aside_total", "torn"): 6,
        ("set_aside_total", "damaged"): 7,
        ("set_aside_total", "WRONG_KIND"): 8,
        ("waiting_bytes",): 9,
        ("waiting_files",): 10,
        ("oldest_seconds",): 11.5,
        ("problem",): 1,
    }
    assert {rule: found["alerts", rule] for rule in RULES} == {
        rule: 2 * (rule == "owner") for rule in RULES
    }


@pytest.mark.parametrize("oldest_us", [0, NOW_US + 5_000_000])
def test_what_does_not_wait_or_is_ahead_of_the_clock_has_no_age(oldest_us: int) -> None:
    assert samples(Progress(oldest_us=oldest_us))["oldest_seconds",] == 0


def test_every_number_and_every_rule_is_explained() -> None:
    text = OPERATIONS.read_text()
    progress = Progress(set_aside=Counter({Fate.TORN: 1}))
    names = {f"fjord_forwarder_{name}" for name, *_ in samples(progress)}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
    assert [rule for rule in RULES if f"| `{rule}` |" not in text] == []
