"""The metrics of a daemon: for Prometheus, and for the STATS request.

Labels are functions and codes of the protocol, states of jobs, and names of tables, which have
been checked; no other user data gets into a name or a label.  Every metric is explained in
docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fjord.commands import FUNCTIONS, Numbers
from fjord.engine.embedded import numbers
from fjord.engine.waits import Listeners
from fjord.server import exposition
from fjord.server.bounds import Memory
from fjord.server.counters import STEPS_US, Counters, Histogram
from fjord.server.exposition import Metric, count, count_by, gauge
from fjord.server.origin import Origin
from fjord.server.session import Sessions
from fjord.wire import Function

# Metrics of the engine: name -> description.  A name with _total only ever increases.
ENGINE: Final[dict[str, str]] = {
    "applied_seq": "Last seq in the index.",
    "durable_seq": "Last seq that survives a power cut.",
    "first_seq": "First seq in the journal.",
    "segments": "Files of the journal.",
    "journal_bytes": "Written bytes of the journal.",
    "live_bytes": "Live bytes of the journal; packing frees the rest.",
    "packed_segments": "Segments removed by packing since the start.",
    "packing_blocked": "1 if packing has stopped because of damage.",
    "tables": "Tables.",
    "volatile_values": "Values kept in memory only.",
    "volatile_bytes": "Memory used by these values.",
    "locks": "Locked keys.",
    "disk_full": "1 while writes are refused because the disk is full.",
    "free_bytes": "Free bytes of the file system of the data directory.",
    "jobs_waiting": "Waiting jobs in all tables.",
    "jobs_taken": "Taken jobs in all tables.",
    "jobs_dead": "Dead jobs in all tables.",
    "subscribers": "Subscribers of streams.",
    "snapshots": "Open snapshots.",
    "versions": "Replaced values kept for snapshots.",
    "appends": "Appends to streams not yet in blocks.",
    "blocks": "Cold blocks.",
}

# Metrics of sealing, and of reading blocks.
BLOCK_COUNTS: Final[dict[str, str]] = {
    "sealed_blocks": "Written blocks.",
    "seal_failures": "Failed rounds of sealing.",
    "cold_loads": "Parts of blocks read into memory.",
    "cold_prefetches": "Parts of blocks read ahead.",
}
BLOCK_GAUGES: Final[dict[str, str]] = {
    "cold_parts": "Parts of blocks in memory.",
    "cold_bytes": "Memory used by these parts.",
}
_NO_BLOCKS: Final = dict.fromkeys([*BLOCK_COUNTS, *BLOCK_GAUGES], 0)

# Numbers that increase and decrease, and numbers that only increase: of engine and daemon.
_GAUGES: Final[dict[str, str]] = {
    **ENGINE,
    **BLOCK_GAUGES,
    "connections": "Open connections.",
    "listened_keys": "Keys that connections listen to.",
    "parked_waits": "Requests that wait for jobs or messages.",
    "memory_bytes": "Memory of running requests, unread replies and incomplete messages.",
}
_COUNTS: Final[dict[str, str]] = {
    **BLOCK_COUNTS,
    "connections_accepted": "Accepted connections.",
    "received_bytes": "Bytes received from clients.",
    "sent_bytes": "Bytes sent to clients.",
    "changes": "Changes sent to listeners.",
    "wakeups": "Sent wake-ups.",
    "wakeups_lost": "Wake-ups that could not be sent.",
}


# Jobs of each table: waiting, taken, dead.
Counts = Mapping[str, tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Reads the numbers when they are requested; otherwise they cost nothing."""

    engine: Callable[[], Mapping[str, int]]
    blocks: Callable[[], Mapping[str, int]]  # of sealing, and of reading blocks
    job_counts: Callable[[], Counts]
    counters: Counters
    memory: Memory
    listeners: Listeners[Origin]
    sessions: Sessions
    uptime_us: Callable[[], int]

    def numbers(self) -> Numbers:
        """Returns the answer to STATS."""
        return numbers(self._all())

    def collect(self) -> Iterator[Metric]:
        counters, found = self.counters, self._all()
        for name, text in _GAUGES.items():
            yield gauge(f"fjord_{name}", text, found[name])
        for name, text in _COUNTS.items():
            yield count(f"fjord_{name}", text, found[name])
        yield gauge("fjord_uptime_seconds", "Since the start.", found["uptime_us"] / 1e6)
        text = "Above this, requests are answered with BUSY."
        yield gauge("fjord_memory_max_bytes", text, self.memory.bytes_max)
        yield _jobs(self.job_counts())
        requests = {
            **{one.name: counters.requests[one] for one in Function},
            **{row.name: counters.requests[row.number] for row in FUNCTIONS.values()},
        }
        yield count_by("fjord_requests", "Requests.", "function", requests)
        yield count_by("fjord_jobs_died", "Jobs that died.", "table", counters.jobs_died_by_table)
        yield count_by("fjord_refusals", "Requests refused.", "code", counters.refusals)
        text = "Connections closed with an error."
        yield count_by("fjord_connections_closed", text, "code", counters.closed)
        text = "From a group's first command to its last reply."
        yield _histogram("fjord_group", text, counters.groups)
        yield _histogram("fjord_sync", "One fdatasync.", counters.syncs)
        yield _histogram("fjord_upkeep_step", "One step of upkeep.", counters.upkeep)

    def _all(self) -> dict[str, int]:
        counters = self.counters
        self.memory.recount()
        return {
            **self.engine(),
            **_NO_BLOCKS,
            **self.blocks(),
            # All plain numbers under their own names, and then those that have another one.
            **{name: value for name, value in vars(counters).items() if isinstance(value, int)},
            "connections": len(self.sessions),
            "connections_accepted": counters.connections,
            "connections_closed": counters.closed.total(),
            "groups": counters.groups.count,
            "listened_keys": self.listeners.keys,
            "memory_bytes": self.memory.used_bytes,
            "refusals": counters.refusals.total(),
            "requests": sum(counters.requests),
            "syncs": counters.syncs.count,
            "syncs_us": counters.syncs.sum_us,
            "upkeep_steps": counters.upkeep.count,
            "uptime_us": self.uptime_us(),
        }


def _jobs(counts: Counts) -> Metric:
    states = ("waiting", "taken", "dead")
    return exposition.by_labels(
        "fjord_jobs",
        "Jobs.",
        ["table", "state"],
        [
            ((table, state), number)
            for table, found in counts.items()
            for state, number in zip(states, found, strict=True)
        ],
    )


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    steps = [step_us / 1e6 for step_us in STEPS_US]
    return exposition.histogram(name, text, steps, histogram.counts, histogram.sum_us / 1e6)
