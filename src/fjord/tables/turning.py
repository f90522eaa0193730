"""Turning generations: when one begins, when one has drained, and what is left of it then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fjord import jobs, limits
from fjord.jobs import Drained
from fjord.ops import Op
from fjord.tables import catalog, generations
from fjord.tables.generations import Turn
from fjord.tables.state import Decision, Generation, JobCounts, Kind, State, Table

Counts = Callable[[int], JobCounts]


def decide_turn(command: Turn, state: State, now_us: int) -> Decision:
    """Turns one table, if there is one to turn; each takes ids that the next one must know of."""
    for table in state.tables.values():
        if table.kind is Kind.JOBS and jobs.decode_settings(table.settings).period:
            made = _turned(state, table, now_us)
            if made:
                return catalog.decision(state, made)
    return catalog.decision(state, ())


def due_us(
    tables: Mapping[str, Table],
    known: Mapping[int, Sequence[Generation]],
    counts: Counts,
    now_us: int,
) -> int | None:
    """Returns when there is something to turn; None if there is not, until jobs come or go."""
    found: list[int] = []
    for table in tables.values() if known else ():
        listed = known.get(table.id)
        if not listed:
            continue
        if _drained(listed, counts):
            return now_us
        period = jobs.decode_settings(table.settings).period
        if _may_turn(listed, counts):
            if generations.is_over(period, listed[-1].began_us, now_us):
                return now_us
            found.append(generations.ends_us(period, listed[-1].began_us))
    return min(found, default=None)


def history_begins(table: Table, listed: Sequence[Generation]) -> int:
    """Returns the seq before which a table wants no history; 0 = it wants all of it."""
    settings = jobs.decode_settings(table.settings)
    is_short = listed and settings.period and settings.drained is Drained.DELETE
    return listed[0].first_row if is_short and listed[0].number > 1 else 0


def _turned(state: State, table: Table, now_us: int) -> list[Op]:
    settings = jobs.decode_settings(table.settings)
    listed = state.generations.get(table.id, ())
    if not listed:  # they were lost to damage
        return [catalog.next_generation(state, table, now_us, ops_before=0)]
    made: list[Op] = []
    rows = 0
    drained = _drained(listed, state.job_counts)
    if drained:
        left = [one for one in listed if one not in drained]
        before = 0 if settings.drained is Drained.RESET else left[0].first_row
        made.append(generations.end(table.id, drained, before))
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
