"""Streams: rates beside Redis and a plain file, latest of each key, cold blocks, subscribers."""

from __future__ import annotations

from benchmarks import stream_latest, stream_rates, stream_sealing, stream_subscribers
from benchmarks.scale import Scale


def run(scale: Scale) -> None:
    stream_rates.run(scale)
    stream_latest.run(scale)
    stream_sealing.run(scale)
    stream_subscribers.run(scale)
