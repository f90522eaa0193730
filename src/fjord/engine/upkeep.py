"""Upkeep: what an engine does by itself, in small steps between the commands of users.

    spare       a segment is allocated before it is needed
    expiry      values whose time is over become tombstones
    sweeping    rows of dropped tables are purged
    clients     answers for clients that were not heard of for a day are forgotten
    packing     see `packing`

Nothing polls: `due_us` says when the next step is due, and `step` does one.  After each step there
is a rest, so that upkeep takes a quarter of the time at most, or half when packing falls behind.
"""

from __future__ import annotations

from typing import Final, Protocol

from fjord import limits
from fjord.clock import Clock
from fjord.commands import Refusal, Reply
from fjord.engine.packing import Packer
from fjord.journal.writer import Writer
from fjord.tables import catalog, clients, kv_expiry
from fjord.tables.state import Tree

_RETRY_US: Final = 1_000_000
_CLIENTS_US: Final = 3600 * 1_000_000
_BEHIND_RATIO: Final = 1.5
_REST, _REST_BEHIND = 3, 1  # in units of what a step took


class Host(Protocol):
    """What upkeep needs of the engine."""

    live_bytes: int

    @property
    def applied_seq(self) -> int: ...

    def run_internal(self, command: object, /) -> Reply: ...

    def scan_index(
        self, tree: int, start: bytes, stop: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]: ...


class Upkeep:
    """Decides what is due."""

    def __init__(self, host: Host, clock: Clock, packer: Packer, writer: Writer) -> None:
        self._host = host
        self._clock = clock
        self._packer = packer
        self._writer = writer
        self._no_spare_before_us = 0  # monotonic: there was no space for one
        self._not_before_us = 0  # monotonic: the disk was full, or upkeep has had its share
        self._clients_us = clock.monotonic_us() + _CLIENTS_US
        self._next_expiry_us: int | None = None
        self._expiries_known = False
        self._rows = limits.UPKEEP_ROWS  # of one step; fewer where space is short
        self._is_sweeping = True  # a crash may have left a dropped table half swept

    def note(self, *, schedules: bool, drops: bool) -> None:
        """Takes note of what a frame did."""
        if schedules:
            self._expiries_known = False
        if drops:
            self._is_sweeping = True

    def due_us(self) -> int:
        """Returns the wall time when the next step is due."""
        now_us, monotonic_us = self._clock.wall_us(), self._clock.monotonic_us()
        moments = [now_us + max(0, self._clients_us - monotonic_us)]
        expiry_us = self._expiry_us()
        if expiry_us is not None:
            moments.append(expiry_us)
        if self._is_sweeping or self._packer.is_wanted(self._host.live_bytes):
            moments.append(now_us)
        pause_us = max(0, self._not_before_us - monotonic_us)
        due_us = max(min(moments), now_us + pause_us)
        if self._writer.wants_spare:
            spare_us = now_us + max(0, self._no_spare_before_us - monotonic_us)
            due_us = min(due_us, spare_us)
        return due_us

    def step(self) -> bool:
        """Does one step of what is due; says whether there is more to do at once."""
        if self.due_us() > self._clock.wall_us():
            return False
        began_us = self._clock.monotonic_us()
        self._do_one(began_us)
        took_us = self._clock.monotonic_us() - began_us
        rest_us = took_us * (_REST_BEHIND if self._is_behind() else _REST)
        self._not_before_us = max(self._not_before_us, began_us + took_us + rest_us)
        return self.due_us() <= self._clock.wall_us()

    def _do_one(self, monotonic_us: int) -> None:
        expiry_us = self._expiry_us()
        if self._writer.wants_spare and self._no_spare_before_us <= monotonic_us:
            if not self._writer.ensure_spare():
                self._no_spare_before_us = monotonic_us + _RETRY_US
        elif expiry_us is not None and expiry_us <= self._clock.wall_us():
            self._expiries_known = False
            self._run(kv_expiry.Expire(limit=self._rows))
        elif self._is_sweeping:
            self._is_sweeping = self._run(catalog.Sweep(limit=self._rows))
        elif self._clients_us <= monotonic_us:
            if not self._run(clients.ForgetClients(limit=self._rows)):
                self._clients_us = monotonic_us + _CLIENTS_US
        elif self._packer.is_wanted(self._host.live_bytes) and not self._packer.step():
            self._not_before_us = monotonic_us + _RETRY_US

    def _is_behind(self) -> bool:
        allowed = _BEHIND_RATIO * limits.PACK_RATIO * self._host.live_bytes
        return self._packer.is_wanted(self._host.live_bytes) and (
            self._packer.used_bytes() > allowed
        )

    def _run(self, command: object) -> bool:
        """Runs a command of upkeep; says whether it found something to do, or could not tell."""
        applied_seq = self._host.applied_seq
        if isinstance(self._host.run_internal(command), Refusal):
            self._not_before_us = self._clock.monotonic_us() + _RETRY_US
            self._rows = max(1, self._rows // 2)
            return True
        self._rows = min(2 * self._rows, limits.UPKEEP_ROWS)
        return self._host.applied_seq > applied_seq

    def _expiry_us(self) -> int | None:
        if not self._expiries_known:
            first = self._host.scan_index(Tree.KV_EXPIRY, b"", None, 1)
            self._next_expiry_us = int.from_bytes(first[0][0][:8], "big") if first else None
            self._expiries_known = True
        return self._next_expiry_us
