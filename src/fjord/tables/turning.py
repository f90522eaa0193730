"""Turning generations: when one begins, when one has drained, and what is left of it then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fjord import jobs, kinds, limits
from fjord.jobs import Drained, Period
from fjord.ops import Op
from fjord.tables import catalog, generations
from fjord.tables.generations import Turn
from fjord.tables.state import Decision, Generation, JobCounts, State, Table, decides

Counts = Callable[[int], JobCounts]


@decides(generations.Turn)
def decide_turn(command: Turn, state: State, now_us: int) -> Decision:
    """Turns one table, if there is one to turn; each takes ids that the next one must know of."""
    wanted = periods(state.tables)
    for table in state.tables.values():
        made = _turned(state, table, now_us) if table.id in wanted else ()
        if made:
            return catalog.decision(state, made)
    return catalog.decision(state, ())


def periods(tables: Mapping[str, Table]) -> dict[int, Period]:
    """Returns the periods of tables that have one, by id."""
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
    """Returns when there is something to turn, 0 = now, whatever becomes of the clock.

    None: there is nothing, until jobs come or go.
    """
    found: list[int] = []
    for table_id, period in periods.items():
        listed = known.get(table_id)
        if not listed or _drained(listed, counts):
            return 0
        if _may_turn(listed, counts):
            if generations.is_over(period, listed[-1].began_us, now_us):
                return 0
            found.append(generations.ends_us(period, listed[-1].began_us))
    return min(found, default=None)


def history_begins(table: Table, listed: Sequence[Generation]) -> int:
    """Returns the seq before which a table wants no history; 0 = it wants all of it."""
    is_short = jobs.decode_settings(table.settings).drained is Drained.DELETE
    return _drained_seq(listed) if is_short else 0


def given_back_seq(tables: Mapping[str, Table], known: Mapping[int, Sequence[Generation]]) -> int:
    """Returns the seq before which the space goes back to the disk; 0 = as usual."""
    seqs = [
        _drained_seq(known[table.id])
        for table in tables.values()
        if known.get(table.id) and jobs.decode_settings(table.settings).drained is not Drained.RESET
    ]
    return max(seqs, default=0)


def _drained_seq(listed: Sequence[Generation]) -> int:
    """Returns the seq up to which all generations of a table have drained, 0 = none has."""
    return listed[0].first_row if listed and listed[0].number > 1 else 0


def _turned(state: State, table: Table, now_us: int) -> list[Op]:
    settings = jobs.decode_settings(table.settings)
    listed = state.generations.get(table.id, ())
    if not listed:  # they were lost to damage
        return [catalog.next_generation(state, table, now_us, ops_before=0)]
    made: list[Op] = []
    rows = 0
    drained = _drained(listed, state.job_counts)
    if drained:
        made.append(generations.end(table.id, drained))
        rows = len(drained)
    is_over = generations.is_over(settings.period, listed[-1].began_us, now_us)
    if is_over and _may_turn(listed, state.job_counts):
        made.append(catalog.next_generation(state, table, now_us, ops_before=rows))
    return made


def _drained(listed: Sequence[Generation], counts: Counts) -> list[Generation]:
    """Returns the generations without jobs, but for the current one."""
    return [one for one in listed[:-1] if not counts(-one.id).waiting]


def _may_turn(listed: Sequence[Generation], counts: Counts) -> bool:
    """Says whether the current generation has had jobs, and there may be one more."""
    return any(counts(-listed[-1].id)) and len(listed) < limits.GENERATIONS_MAX
