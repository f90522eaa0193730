"""Generations: a jobs table with a period is a series of tables, one per hour, day or month.

    GENERATION --> current --the next one begins--> draining --no job is left--> GENERATION_GONE

Jobs are pushed to the current generation.  The others only drain: their jobs are handed out as
before, in one order with all others, and a job that is pushed again moves to the current
generation (decision 21).

    META  "generation" | table id u32 | id u32  -> number, began, first row, schema: u64 each

A generation is a range of rows, from its first row to the first one of the next.  So nothing that
is done to a job has to know of generations, and a job's generation is stored nowhere.  Each has an
id of its own, larger than those of all tables, under which its jobs are counted.

A new one begins when the wall clock has left the period in which the last one began, if that one
has or had jobs; or when somebody declares the table again with other columns.  Each keeps the
columns with which it began, and a row names them by number (SJ-04).
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from fjord import jobs, kinds, limits, ops
from fjord.columns import Strings
from fjord.commands.layout import Command, internal
from fjord.declared import schema
from fjord.errors import Code, RefusedError
from fjord.jobs import Drained, Period
from fjord.ops import Op, Opcode, Place
from fjord.settings import Triples
from fjord.tables.state import Generation, JobCounts, Table, Tree, View, Writes

_KEY: Final = b"generation"
_IDS = struct.Struct(">II")
_NUMBERS = struct.Struct(">QQQQ")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
EARLIER_MAX: Final = 64  # schemas that are kept

Earlier = tuple[tuple[int, Triples], ...]  # schemas: a number and columns


# The generations of tables, by id; the current one is the last.
Generations = Mapping[int, tuple[Generation, ...]]


@internal(frees=True)
class Turn(Command):
    """Begins the next generation of a table when it is due, or ends those that have drained."""


# -- time -----------------------------------------------------------------------------------------


def began_us(period: Period, now_us: int) -> int:
    """Returns when the period that contains a moment began, in UTC."""
    moment = (_EPOCH + now_us * _US).replace(minute=0, second=0, microsecond=0)
    if period is not Period.HOUR:
        moment = moment.replace(hour=0)
    if period is Period.MONTH:
        moment = moment.replace(day=1)
    return (moment - _EPOCH) // _US


def ends_us(period: Period, now_us: int) -> int:
    """Returns when the period that contains a moment ends."""
    steps = {Period.HOUR: timedelta(hours=1), Period.DAY: timedelta(days=1)}
    longest = timedelta(days=31)
    first = _EPOCH + began_us(period, now_us) * _US
    return began_us(period, (first + steps.get(period, longest) - _EPOCH) // _US)


def is_over(period: Period, generation_us: int, now_us: int) -> bool:
    """Returns whether the period in which a generation began is over.

    A clock that was set back a little is waited for; one that was far ahead is not.
    """
    began = began_us(period, generation_us)
    return began_us(period, now_us) > began or ends_us(period, now_us) < began


# -- ops ------------------------------------------------------------------------------------------


def begin(table: Table, id_: int, number: int, now_us: int, first_row: int) -> Op:
    """Returns the op that begins a generation."""
    columns_number = jobs.decode_settings(table.settings).schema
    columns = ((id_,), (number,), (now_us,), (first_row,), (columns_number,))
    return Op(Opcode.GENERATION, table.id, 1, columns)


def end(table: int, listed: Sequence[Generation]) -> Op:
    """Returns the op that ends generations."""
    return Op(Opcode.GENERATION_GONE, table, len(listed), ([one.id for one in listed],))


def keep_generation(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    known = set(state.generations.get(op.table, ()))
    rows = [row for row in zip(*op.columns, strict=True) if row in known]
    return ops.of_rows(Opcode.GENERATION, op.table, rows)


def apply_generation(writes: Writes, op: Op, place: Place) -> None:
    ids, *numbers = op.columns
    keys = (_KEY + _IDS.pack(op.table, id_) for id_ in ids)
    writes.put_many(Tree.META, list(zip(keys, map(_NUMBERS.pack, *numbers), strict=True)))


def apply_gone(writes: Writes, op: Op, place: Place) -> None:
    writes.delete_many(Tree.META, [_KEY + _IDS.pack(op.table, id_) for id_ in gone(op)])


def key_range() -> tuple[bytes, bytes]:
    """Returns the range of META keys that hold generations."""
    return _KEY, _KEY + b"\xff" * 9


def read(items: Iterable[tuple[bytes, bytes]]) -> Generations:
    found: dict[int, list[Generation]] = {}
    for key, data in items:
        table, id_ = _IDS.unpack(key[len(_KEY) :])
        found.setdefault(table, []).append(Generation(id_, *_NUMBERS.unpack(data)))
    return {table: _in_order(listed) for table, listed in found.items()}


def after(known: Generations, op: Op) -> Generations:
    """Returns the generations after an op that changes them."""
    listed = known.get(op.table, ())
    if op.opcode is Opcode.GENERATION:
        more = [Generation._make(row) for row in zip(*op.columns, strict=True)]
        ids = {one.id for one in more}
        kept = [one for one in listed if one.id not in ids]
        return {**known, op.table: _in_order([*kept, *more])}
    left = tuple(one for one in listed if one.id not in gone(op))
    return {**known, op.table: left}


def gone(op: Op) -> Sequence[int]:
    """Returns the ids of the generations that an op ends."""
    ids: Sequence[int] = op.columns[0] if op.opcode is Opcode.GENERATION_GONE else ()
    return ids


def _in_order(listed: Iterable[Generation]) -> tuple[Generation, ...]:
    return tuple(sorted(listed, key=lambda one: one.number))


def count_by_id(listed: Sequence[Generation], rows: Sequence[int]) -> dict[int, int]:
    """Returns how many of these rows are in each generation."""
    if not rows:
        return {}
    current = listed[-1]
    if min(rows) >= current.first_row:
        return {current.id: len(rows)}
    counts: dict[int, int] = {}
    for row in rows:
        at = bisect.bisect_right(listed, row, key=lambda one: one.first_row) - 1
        id_ = listed[max(at, 0)].id
        counts[id_] = counts.get(id_, 0) + 1
    return counts


# -- declaring a table again ----------------------------------------------------------------------


def changed(table: Table, settings: jobs.Settings, listed: Sequence[Generation]) -> Table:
    """Returns the table as redeclared with other settings."""
    old = jobs.decode_settings(table.settings)
    if not old.period:
        text = (
            f"table {table.name} already exists with other settings and has no period; only a "
            "table with a period gets new settings, with its next generation"
        )
        raise RefusedError(Code.EXISTS, text)
    if not settings.period:
        text = f"table {table.name} has a period, which can be changed but not removed"
        raise RefusedError(Code.EXISTS, text)
    for name in jobs.FIXED:
        if getattr(old, name) != getattr(settings, name):
            text = f"{name} of table {table.name} cannot be changed; make another table"
            raise RefusedError(Code.EXISTS, text)
    number, earlier = old.schema, old.earlier
    if (old.columns, old.key) != (settings.columns, settings.key):
        number, earlier = _next_schema(table, old)
        earlier = _remembered(earlier, {one.schema for one in listed})
        if len(earlier) > EARLIER_MAX:
            text = f"jobs in table {table.name} have {EARLIER_MAX} schemas; let some of them drain"
            raise RefusedError(Code.QUOTA, f"{text} first")
    made = replace(settings, schema=number, earlier=earlier)
    return replace(table, settings=made.encode())


def _next_schema(table: Table, old: jobs.Settings) -> tuple[int, Earlier]:
    """Returns the number of a table's next schema, and all its earlier schemas."""
    if not old.columns and not old.earlier:
        return schema.first_number(table.id), ()
    earlier = (*old.earlier, (old.schema, old.columns))
    return schema.next_number(old.schema, {number for number, _ in earlier}), earlier


def _remembered(earlier: Earlier, needed: Set[int]) -> Earlier:
    """Returns the latest schemas, and older ones that are still needed."""
    gone = [number for number, _ in earlier if number not in needed]
    del gone[max(0, len(earlier) - EARLIER_MAX) :]
    return tuple(one for one in earlier if one[0] not in gone)


def creation(table: Table) -> Op:
    name, settings = (Strings.of([one]) for one in (table.name.encode(), table.settings))
    return Op(Opcode.CREATE_TABLE, table.id, 1, (bytes([table.kind.number]), name, settings))


# -- when a generation begins and has drained, and what is left of it -----------------------------


Counts = Callable[[int], JobCounts]


def periods(tables: Mapping[str, Table]) -> dict[int, Period]:
    """Returns the periods of tables that have one, by table id."""
    found = {
        table.id: jobs.decode_settings(table.settings).period
        for table in tables.values()
        if table.kind is kinds.Kind.JOBS
    }
    return {id_: period for id_, period in found.items() if period}


def due_us(
    periods: Mapping[int, Period],
    known: Mapping[int, Sequence[Generation]],
    counts: Counts,
    now_us: int,
) -> int | None:
    """Returns when there is something to turn, 0 = now, whatever happens to the clock.

    None: nothing, until jobs come or go.
    """
    found: list[int] = []
    for table_id, period in periods.items():
        listed = known.get(table_id)
        if not listed or drained(listed, counts):
            return 0
        if may_turn(listed, counts):
            if is_over(period, listed[-1].began_us, now_us):
                return 0
            found.append(ends_us(period, listed[-1].began_us))
    return min(found, default=None)


def history_begins(table: Table, listed: Sequence[Generation]) -> int:
    """Returns the seq before which a table needs no history; 0 = it needs all of it."""
    is_short = jobs.decode_settings(table.settings).drained is Drained.DELETE
    return _drained_seq(listed) if is_short else 0


def given_back_seq(tables: Mapping[str, Table], known: Mapping[int, Sequence[Generation]]) -> int:
    """Returns the seq before which space is returned to the disk; 0 = as usual."""
    seqs = [
        _drained_seq(known[table.id])
        for table in tables.values()
        if known.get(table.id) and jobs.decode_settings(table.settings).drained is not Drained.RESET
    ]
    return max(seqs, default=0)


def _drained_seq(listed: Sequence[Generation]) -> int:
    """Returns the seq up to which all generations of a table have drained, 0 = none has."""
    return listed[0].first_row if listed and listed[0].number > 1 else 0


def drained(listed: Sequence[Generation], counts: Counts) -> list[Generation]:
    """Returns the generations without jobs, except the current one."""
    return [one for one in listed[:-1] if not counts(-one.id).waiting]


def may_turn(listed: Sequence[Generation], counts: Counts) -> bool:
    """Returns whether the current generation has had jobs, and another one may begin."""
    return any(counts(-listed[-1].id)) and len(listed) < limits.GENERATIONS_MAX
