"""The numbers by which a daemon is watched: for Prometheus, and for the STATS request.

Labels are functions and codes of the protocol, states of jobs, and names of tables, which have
been checked; nothing else that a user has sent gets into a name or a label.
Every number is explained in docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fjord.columns import Strings
from fjord.commands import FUNCTIONS, Numbers
from fjord.engine.waits import Listeners
from fjord.server import exposition
from fjord.server.counters import STEPS_US, Counters, Histogram
from fjord.server.exposition import Metric, count, count_by, gauge
from fjord.server.session import Sessions
from fjord.server.sessions import Memory, Origin
from fjord.wire import Function

# What the engine says of itself: name -> meaning.  A name with _total only ever grows.
ENGINE: Final[dict[str, str]] = {
    "applied_seq": "Last seq that is in the index.",
    "durable_seq": "Last seq that survives a power cut.",
    "first_seq": "First seq that the journal still holds.",
    "segments": "Files of the journal.",
    "journal_bytes": "Bytes of the journal that are in use.",
    "live_bytes": "Bytes of the journal that still count; the rest goes with packing.",
    "packed_segments": "Segments that packing has removed since the start.",
    "packing_blocked": "1 if packing has met damage and stopped.",
    "tables": "Tables.",
    "volatile_values": "Values that are kept in memory only.",
    "volatile_bytes": "Memory that these values take.",
    "locks": "Keys that are locked.",
    "disk_full": "1 while writes are refused for want of space.",
    "free_bytes": "Bytes that the file system of the data directory has left.",
    "jobs_waiting": "Jobs that wait, of all tables.",
    "jobs_taken": "Jobs that workers have, of all tables.",
    "jobs_dead": "Jobs that are dead, of all tables.",
    "subscribers": "Subscribers of streams.",
    "snapshots": "Snapshots that are open.",
    "versions": "Replaced values that are kept for snapshots.",
    "appends": "Appends to streams that are not in blocks yet.",
    "blocks": "Cold blocks.",
}

# What sealing, and who reads blocks, say of themselves.
BLOCK_COUNTS: Final[dict[str, str]] = {
    "sealed_blocks": "Blocks that were written.",
    "seal_failures": "Rounds of sealing that failed.",
    "cold_loads": "Parts of blocks that were read into memory.",
    "cold_prefetches": "Those of them that were read ahead.",
}
BLOCK_GAUGES: Final[dict[str, str]] = {
    "cold_parts": "Parts of blocks that are in memory.",
    "cold_bytes": "Memory that these parts take.",
}
_NO_BLOCKS: Final = dict.fromkeys([*BLOCK_COUNTS, *BLOCK_GAUGES], 0)


# Jobs of each table: waiting, taken, dead.
Counts = Mapping[str, tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Reads the numbers when they are asked for; between that it costs nothing."""

    engine: Callable[[], Mapping[str, int]]
    blocks: Callable[[], Mapping[str, int]]  # of sealing, and of what is read from blocks
    job_counts: Callable[[], Counts]
    counters: Counters
    memory: Memory
    listeners: Listeners[Origin]
    sessions: Sessions
    uptime_us: Callable[[], int]

    def exposition(self) -> bytes:
        """Returns everything in the text format of Prometheus."""
        return exposition.text_of(self.collect())

    def numbers(self) -> Numbers:
        """Returns the answer to STATS."""
        found = {**self.engine(), **_NO_BLOCKS, **self.blocks(), **self._own()}
        names = sorted(found)
        return Numbers(
            names=Strings.of([name.encode() for name in names]),
            values=[found[name] for name in names],
        )

    def collect(self) -> Iterator[Metric]:
        self.memory.recount()
        for name, value in self.engine().items():
            yield gauge(f"fjord_{name}", ENGINE.get(name, name), value)
        yield from self._blocks()
        yield from self._gauges()
        yield from self._counts()
        yield _histogram(
            "fjord_group", "From a group's first command to its last reply.", self.counters.groups
        )
        yield _histogram("fjord_sync", "One fdatasync.", self.counters.syncs)
        yield _histogram("fjord_upkeep_step", "One step of upkeep.", self.counters.upkeep)

    def _own(self) -> dict[str, int]:
        counters = self.counters
        self.memory.recount()
        return {
            "changes": counters.changes,
            "connections": len(self.sessions),
            "connections_accepted": counters.connections,
            "connections_closed": counters.closed.total(),
            "jobs_died": counters.jobs_died,
            "groups": counters.groups.count,
            "listened_keys": self.listeners.keys,
            "memory_bytes": self.memory.used_bytes,
            "parked_waits": counters.parked_waits,
            "received_bytes": counters.received_bytes,
            "refusals": counters.refusals.total(),
            "requests": sum(counters.requests),
            "sent_bytes": counters.sent_bytes,
            "syncs": counters.syncs.count,
            "syncs_us": counters.syncs.sum_us,
            "upkeep_steps": counters.upkeep.count,
            "uptime_us": self.uptime_us(),
            "wakeups": counters.wakeups,
            "wakeups_lost": counters.wakeups_lost,
        }

    def _blocks(self) -> Iterator[Metric]:
        found = {**_NO_BLOCKS, **self.blocks()}
        for name, text in BLOCK_COUNTS.items():
            yield count(f"fjord_{name}", text, found[name])
        for name, text in BLOCK_GAUGES.items():
            yield gauge(f"fjord_{name}", text, found[name])

    def _gauges(self) -> Iterator[Metric]:
        yield gauge("fjord_uptime_seconds", "Since the start.", self.uptime_us() / 1e6)
        yield gauge("fjord_connections", "Connections that are open.", len(self.sessions))
        yield gauge("fjord_listened_keys", "Keys that connections listen to.", self.listeners.keys)
        yield gauge(
            "fjord_parked_waits",
            "Requests that wait for jobs or messages.",
            self.counters.parked_waits,
        )
        yield _jobs(self.job_counts())
        yield gauge(
            "fjord_memory_bytes",
            "Requests under way, replies not taken and half messages.",
            self.memory.used_bytes,
        )
        yield gauge(
            "fjord_memory_max_bytes",
            "Above this, requests are answered with BUSY.",
            self.memory.bytes_max,
        )

    def _counts(self) -> Iterator[Metric]:
        counters = self.counters
        yield count(
            "fjord_connections_accepted", "Connections that were served.", counters.connections
        )
        yield count("fjord_received_bytes", "Bytes from clients.", counters.received_bytes)
        yield count("fjord_sent_bytes", "Bytes to clients.", counters.sent_bytes)
        yield count("fjord_changes", "Changes told to listeners.", counters.changes)
        yield count("fjord_wakeups", "Wake-ups that were sent.", counters.wakeups)
        yield count("fjord_wakeups_lost", "Wake-ups that could not be sent.", counters.wakeups_lost)
        yield count_by(
            "fjord_requests",
            "Requests.",
            "function",
            {
                **{one.name: counters.requests[one] for one in Function},
                **{row.name: counters.requests[row.number] for row in FUNCTIONS.values()},
            },
        )
        yield count_by("fjord_jobs_died", "Jobs that died.", "table", counters.jobs_died_by_table)
        yield count_by("fjord_refusals", "Requests refused.", "code", counters.refusals)
        yield count_by(
            "fjord_connections_closed", "Connections closed with an error.", "code", counters.closed
        )


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
