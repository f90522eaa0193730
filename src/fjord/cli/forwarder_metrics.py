"""The numbers by which a forwarder is watched; docs/operations.md explains each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fjord.client.forwarder import Progress
from fjord.client.spool import alerts
from fjord.server import exposition
from fjord.server.exposition import Metric, count, count_by, gauge
from fjord.server.http import Answer


def page(progress: Progress, uptime_us: int, now_us: int) -> Answer:
    """Returns the page for Prometheus."""
    return exposition.page(_metrics(progress, uptime_us, now_us))


def _metrics(progress: Progress, uptime_us: int, now_us: int) -> Iterator[Metric]:
    def name(last: str) -> str:
        return f"fjord_forwarder_{last}"

    yield gauge(name("uptime_seconds"), "Since the start.", uptime_us / 1e6)
    yield count(name("records"), "Records that arrived.", progress.records)
    yield count(name("bytes"), "Bytes of spool files that arrived.", progress.bytes)
    yield count(name("batches"), "Batches that arrived.", progress.batches)
    yield count(name("retries"), "Pauses since nothing could be sent.", progress.retries)
    yield count(name("files_deleted"), "Files sent whole, and deleted.", progress.files_deleted)
    yield count_by(name("set_aside"), "Records that were set aside.", "why", _reasons(progress))
    yield gauge(name("waiting_bytes"), "Bytes that wait.", progress.waiting_bytes)
    yield gauge(name("waiting_files"), "Files in which something waits.", progress.waiting_files)
    age_us = max(0, now_us - progress.oldest_us) if progress.oldest_us else 0
    yield gauge(name("oldest_seconds"), "Age of the oldest record that waits.", age_us / 1e6)
    yield gauge(name("problem"), "1 while nothing can be sent.", bool(progress.problem))
    found = Counter(alert.rule for alert in progress.alerts)
    yield exposition.by_labels(
        name("alerts"),
        "What somebody has to look at.",
        ["rule"],
        [((rule,), found[rule]) for rule in alerts.RULES],
    )


def _reasons(progress: Progress) -> dict[str, int]:
    """Returns how many records were set aside: torn and damaged ones, and refused ones by code."""
    found = {fate.value: number for fate, number in progress.set_aside.items()}
    return found | {code.value: number for code, number in progress.refused.items()}
