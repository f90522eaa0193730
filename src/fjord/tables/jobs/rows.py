"""Ops on jobs, built from the rows that they change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from fjord import jobs, limits, ops
from fjord.errors import Code, RefusedError
from fjord.jobs import How, State
from fjord.layouts import PREFIX_BYTES
from fjord.ops import Op, Opcode
from fjord.tables.jobs import layout
from fjord.tables.jobs.layout import DEATH, LEASE, OVERTAKEN_US, XID, Death, JobRow, Lease
from fjord.tables.state import Table, Tree

DOMAIN_TOO_LONG: Final = f"a domain has at most {limits.DOMAIN_BYTES_MAX} bytes"
_NO_LEASE: Final = Lease(0, 0, 0, 0)
_ALIVE: Final = Death(0, 0, b"")


class Held(NamedTuple):
    """A job and its state."""

    state: State
    at: int  # xid of a taken job, row of a dead one, else 0
    row: JobRow
    lease: Lease = _NO_LEASE
    death: Death = _ALIVE

    @property
    def note(self) -> int:
        """The deadline whose note is deleted with this job, 0 if there is none."""
        return self.lease.deadline_us if self.lease.is_alone else 0


def held_in(tree: Tree, key: bytes, data: bytes) -> Held:
    """Decodes an item of one of the jobs trees."""
    if tree is Tree.JOBS_READY:
        return waiting(layout.decode_ready(key, data))
    number = XID.unpack_from(key, PREFIX_BYTES)[0]
    if tree is Tree.JOBS_TAKEN:
        return taken(number, data)
    return dead(number, data)


def taken(xid: int, data: bytes) -> Held:
    lease = Lease._make(LEASE.unpack_from(data))
    return Held(State.TAKEN, xid, layout.decode(data[LEASE.size :]), lease)


def dead(number: int, data: bytes) -> Held:
    died_us, how, size = DEATH.unpack_from(data)
    end = DEATH.size + size
    death = Death(died_us, how, data[DEATH.size : end])
    return Held(State.DEAD, number, layout.decode(data[end:]), death=death)


def waiting(row: JobRow) -> Held:
    return Held(State.WAITING, 0, row)


def remove_waiting(table: int, rows: Iterable[JobRow], how: How) -> list[Op]:
    return remove(table, list(map(waiting, rows)), how)


def remove(table: int, gone: Sequence[Held], how: How) -> list[Op]:
    """Returns the op that removes jobs, whatever their state."""
    rows = []
    for one in gone:
        waits, row = one.state is State.WAITING, one.row
        expiry, slot = (row.expires_at_us, row.slot) if waits else (0, b"")
        numbers = (one.at, one.note, row.row, expiry, row.held, row.live_bytes)
        rows.append((*numbers, one.state, how, row.place, slot))
    return ops.of_rows(Opcode.JOB_REMOVE, table, rows)


def wait(table: int, back: Sequence[tuple[Held, JobRow]], how: How) -> list[Op]:
    """Returns the op that makes jobs wait, with the second row of each pair."""
    rows = []
    for one, row in back:
        numbers = (one.at, one.note, row.row, row.process_at_us, one.state, how)
        place = one.row.place if one.state is State.WAITING else b""
        rows.append((*numbers, row.priority, row.timeouts, place, row.image))
    return ops.of_rows(Opcode.JOB_WAIT, table, rows)


def overtake(table: int, older: Sequence[Held], newer: Sequence[Held]) -> list[Op]:
    """Returns the op after which older jobs that are taken end with their leases (FJ-32).

    The newer jobs of the same keys follow them in the op if they were taken first.  Leases are
    unchanged, except for a microsecond where one note covers several jobs: from then on each has
    its own note.
    """
    marked = [one._replace(row=one.row._replace(expires_at_us=OVERTAKEN_US)) for one in older]
    rows = []
    for one in (*marked, *newer):
        deadline_us, lease_us, started_us, is_alone = one.lease
        dates = (deadline_us + 1 - is_alone, lease_us, started_us)
        rows.append((one.at, one.note, *dates, one.row.image))
    return ops.of_rows(Opcode.JOB_TOUCH, table, rows)


def bury(
    table: int, dead: Sequence[Held], reasons: Sequence[bytes], *, died_us: int, how: How
) -> list[Op]:
    """Returns the op that sends jobs to the dead letters."""
    rows = []
    for one, reason in zip(dead, reasons, strict=True):
        row = one.row
        numbers = (one.at, one.note, row.row, died_us, one.state, how, row.timeouts)
        rows.append((*numbers, row.image, reason))
    return ops.of_rows(Opcode.JOB_BURY, table, rows)


# -- checks of leases and domains that several commands share -------------------------------------


def check_lease(lease_us: int) -> None:
    if lease_us and not limits.LEASE_US_MIN <= lease_us <= limits.LEASE_US_MAX:
        raise RefusedError(Code.BAD_TIMEOUT, "a lease is from 1 ms to 30 days long")


def check_domain(domain: bytes) -> None:
    if len(domain) > limits.DOMAIN_BYTES_MAX:
        raise RefusedError(Code.BAD_DOMAIN, DOMAIN_TOO_LONG)


def check_fairness(domain: bytes, table: Table) -> None:
    """Refuses a domain where jobs are not kept by domain."""
    if domain and jobs.decode_settings(table.settings).fairness is not jobs.Fairness.DOMAIN:
        text = f"table {table.name} has fairness=none; taking by domain needs fairness=domain"
        raise RefusedError(Code.BAD_DOMAIN, text)
