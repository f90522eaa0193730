"""Ops on jobs, made of the rows that they are about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fjord.columns import Strings, repeat
from fjord.jobs import How, State
from fjord.ops import Op, Opcode
from fjord.tables.jobs.layout import OVERTAKEN_US, Lease, Row

_NO_LEASE = Lease(0, 0, 0, 0)


class Held(NamedTuple):
    """A job, and where it is."""

    state: State
    at: int  # xid of a taken one, row of a dead one, else 0
    row: Row
    lease: Lease = _NO_LEASE

    @property
    def note(self) -> int:
        """The deadline whose note goes with this job, 0 if there is none."""
        return self.lease.deadline_us if self.lease.is_alone else 0


def waiting(row: Row) -> Held:
    return Held(State.WAITING, 0, row)


def remove_waiting(table: int, rows: Iterable[Row], how: How) -> list[Op]:
    return remove(table, list(map(waiting, rows)), how)


def remove(table: int, gone: Sequence[Held], how: How) -> list[Op]:
    """Returns the op that takes jobs away, whatever their state."""
    if not gone:
        return []
    waits = [one.state is State.WAITING for one in gone]
    columns = (
        [one.at for one in gone],
        [one.note for one in gone],
        [one.row.row for one in gone],
        [one.row.expires_at_us if wait else 0 for one, wait in zip(gone, waits, strict=True)],
        [one.row.held for one in gone],
        [one.row.live_bytes for one in gone],
        bytes([one.state for one in gone]),
        bytes([how]) * len(gone),
        Strings.of([one.row.place for one in gone]),
        Strings.of([one.row.slot if wait else b"" for one, wait in zip(gone, waits, strict=True)]),
    )
    return [Op(Opcode.JOB_REMOVE, table, len(gone), columns)]


def wait(table: int, back: Sequence[tuple[Held, Row]], how: How) -> list[Op]:
    """Returns the op after which jobs wait, as their second row says."""
    if not back:
        return []
    places = [one.row.place if one.state is State.WAITING else b"" for one, _ in back]
    columns = (
        [one.at for one, _ in back],
        [one.note for one, _ in back],
        [row.row for _, row in back],
        [row.process_at_us for _, row in back],
        bytes([one.state for one, _ in back]),
        bytes([how]) * len(back),
        bytes([row.priority for _, row in back]),
        bytes([row.timeouts for _, row in back]),
        Strings.of(places),
        Strings.of([row.image for _, row in back]),
    )
    return [Op(Opcode.JOB_WAIT, table, len(back), columns)]


def overtake(table: int, older: Sequence[Held], newer: Sequence[Held]) -> list[Op]:
    """Returns the op after which older jobs that are taken end with their leases (FJ-32).

    The newer ones of their keys are said again behind them where they were taken before them.
    Leases stay as long as they are, but for a microsecond where the note of one stands for several
    jobs: from now on each has its own.
    """
    if not older:
        return []
    marked = [one.row._replace(expires_at_us=OVERTAKEN_US) for one in older]
    held = [*older, *newer]
    columns = (
        [one.at for one in held],
        [one.note for one in held],
        [one.lease.deadline_us + 1 - one.lease.is_alone for one in held],
        [one.lease.lease_us for one in held],
        [one.lease.started_us for one in held],
        Strings.of([row.image for row in (*marked, *(one.row for one in newer))]),
    )
    return [Op(Opcode.JOB_TOUCH, table, len(held), columns)]


def bury(
    table: int, dead: Sequence[Held], reasons: Sequence[bytes], *, died_us: int, how: How
) -> list[Op]:
    """Returns the op that sends jobs to the dead letters."""
    if not dead:
        return []
    columns = (
        [one.at for one in dead],
        [one.note for one in dead],
        [one.row.row for one in dead],
        repeat(died_us, len(dead)),
        bytes([one.state for one in dead]),
        bytes([how]) * len(dead),
        bytes([one.row.timeouts for one in dead]),
        Strings.of([one.row.image for one in dead]),
        Strings.of(reasons),
    )
    return [Op(Opcode.JOB_BURY, table, len(dead), columns)]
