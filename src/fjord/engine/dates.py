"""What an op says of dates to come: when something expires, when leases end, when jobs are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from fjord import ops
from fjord.columns import Strings
from fjord.jobs import SLOW_FROM
from fjord.ops import Op, Opcode
from fjord.tables import job_row
from fjord.tables.state import Lane, Tree


def _position(opcode: Opcode, name: str) -> int:
    return [column for column, _ in ops.COLUMNS[opcode]].index(name)


# Where ops say when something is due: the tree that holds it, and the column.
_COLUMNS: Final[dict[Opcode, tuple[Tree, int]]] = {
    **{
        opcode: (Tree.KV_EXPIRY, _position(opcode, "expires_at_us"))
        for opcode in (Opcode.KV_SET, Opcode.KV_MOVE, Opcode.KV_MARK, Opcode.KV_EXPIRE)
    },
    **{
        opcode: (Tree.JOBS_EXPIRY, _position(opcode, "expires_at_us"))
        for opcode in (Opcode.JOB_ADD, Opcode.JOB_REPLACE)
    },
    **{
        opcode: (Tree.JOBS_LEASES, _position(opcode, "deadline_us"))
        for opcode in (Opcode.JOB_TAKE, Opcode.JOB_TOUCH, Opcode.JOB_LEASE)
    },
    Opcode.SNAPSHOT: (Tree.SNAPSHOTS, _position(Opcode.SNAPSHOT, "deadline_us")),
}
_IMAGES: Final = {
    opcode: _position(opcode, "image") for opcode in (Opcode.JOB_WAIT, Opcode.JOB_MOVE)
}
_ARRIVALS: Final = frozenset({Opcode.JOB_ADD, Opcode.JOB_REPLACE, Opcode.JOB_WAIT})
_ADDED: Final = {
    opcode: tuple(_position(opcode, name) for name in ("lane", "priority", "process_at_us"))
    for opcode in (Opcode.JOB_ADD, Opcode.JOB_REPLACE)
}


def schedule_of(op: Op) -> tuple[Tree, int] | None:
    """Returns in which tree an op has put a date, and the earliest one; None if in none."""
    if op.opcode in _COLUMNS:
        tree, position = _COLUMNS[op.opcode]
        dates = op.columns[position]
    elif op.opcode in _IMAGES:
        images = op.columns[_IMAGES[op.opcode]]
        assert isinstance(images, Strings)
        tree, dates = Tree.JOBS_EXPIRY, [job_row.expiry_of(image) for image in images.rows()]
    else:
        return None
    assert not isinstance(dates, Strings)
    earliest = _earliest(dates)
    return None if earliest is None else (tree, earliest)


def _earliest(dates: Sequence[int]) -> int | None:
    if len(dates) == 1:
        return dates[0] or None
    return min((date for date in dates if date), default=None) if any(dates) else None


class Arrival(NamedTuple):
    """Jobs that began to wait, or wait otherwise."""

    rows: int
    first_us: int  # the earliest process date

    def joined(self, other: Arrival) -> Arrival:
        return Arrival(self.rows + other.rows, min(self.first_us, other.first_us))


def arrival_of(op: Op) -> Arrival | None:
    """Returns what an op lets wait, None if nothing."""
    if op.opcode not in _ARRIVALS:
        return None
    if op.opcode in _ADDED:
        dates = op.columns[_ADDED[op.opcode][2]]
        assert not isinstance(dates, Strings)
        return Arrival(op.rows, dates[0] if op.rows == 1 else min(dates))
    return Arrival(op.rows, min(date for _, date in lanes_of(op)))


def lanes_of(op: Op) -> Iterator[tuple[Lane, int]]:
    """Yields lane and process date of the jobs that an op lets wait."""
    places: Iterator[tuple[int, int, int]]
    if op.opcode in _ADDED:
        places = zip(*(op.columns[at] for at in _ADDED[op.opcode]), strict=True)
    else:
        images = op.columns[_IMAGES[op.opcode]]
        assert isinstance(images, Strings)
        places = (job_row.PLACE.unpack_from(image)[:3] for image in images.rows())
    for lane, priority, date_us in places:
        yield (lane, priority >= SLOW_FROM), date_us
