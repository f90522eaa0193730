"""The life of a job as data: every change of state, and the picture drawn from them.

Nothing is decided here.  The rules are in the decide functions; this table lists their effects, and
a test compares both: a long life of jobs makes each of these changes, and no others.  The picture
is in docs/tables.md, written there by `scripts/lifecycle`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fjord.jobs import How, State
from fjord.ops import Opcode

_W, _T, _D = State
_ADD, _REPLACE, _TAKE = Opcode.JOB_ADD, Opcode.JOB_REPLACE, Opcode.JOB_TAKE
_TOUCH, _DONE, _WAIT = Opcode.JOB_TOUCH, Opcode.JOB_DONE, Opcode.JOB_WAIT
_BURY, _REMOVE = Opcode.JOB_BURY, Opcode.JOB_REMOVE


class StateChange(NamedTuple):
    """One transition from a state to another, or to itself."""

    before: State | None  # None: it did not exist
    after: State | None  # None: it is gone
    opcode: Opcode
    how: How | None  # if the op has it
    words: str  # the cause
    numbers: tuple[str, ...] = ()  # of the promises that require it


CHANGES: Final = (
    StateChange(None, _W, _ADD, None, "pushed; no job of its key was waiting", ("FJ-02", "SJ-16")),
    StateChange(_W, _W, _REPLACE, None, "pushed again, and merged", ("FJ-04", "SJ-16", "SJ-27")),
    StateChange(_W, _W, _WAIT, How.RESCHEDULE, "rescheduled: another date or priority"),
    StateChange(_W, _T, _TAKE, None, "due, and taken by a worker", ("FJ-13", "SJ-28")),
    StateChange(
        _T, _T, _TOUCH, None, "lease renewed; or a newer job was pushed", ("FJ-32", "SJ-13")
    ),
    StateChange(_T, None, _DONE, None, "done by its worker", ("SJ-11",)),
    StateChange(_T, _W, _WAIT, How.TIMEOUT, "its lease expired", ("SJ-12", "SJ-14")),
    StateChange(_T, _W, _WAIT, How.FAIL, "failed by its worker", ("SJ-14",)),
    StateChange(_T, _W, _WAIT, How.GIVEN_BACK, "given back by its worker, not counted"),
    StateChange(_T, _D, _BURY, How.TIMEOUT, "its lease expired too often", ("SJ-15",)),
    StateChange(_T, _D, _BURY, How.FAIL, "failed too often, or for good", ("SJ-15",)),
    StateChange(
        _T, None, _REMOVE, How.SUPERSEDED, "given back, but a newer job replaces it", ("FJ-32",)
    ),
    StateChange(_T, None, _REMOVE, How.EXPIRE, "given back, but it has expired", ("SJ-06",)),
    StateChange(_W, None, _REMOVE, How.DONE, "taken and done at once", ("FJ-28",)),
    StateChange(_W, None, _REMOVE, How.EXPIRE, "expired", ("SJ-06", "SJ-25")),
    StateChange(_W, None, _REMOVE, How.CANCEL, "cancelled by key"),
    StateChange(_W, None, _REMOVE, How.SUPERSEDED, "a newer job of its key came back", ("FJ-32",)),
    StateChange(_W, _D, _BURY, How.FAIL, "buried by key, or its value is damaged", ("SJ-15",)),
    StateChange(_D, _W, _WAIT, How.REVIVE, "revived, as if it had never failed", ("SJ-15",)),
    StateChange(_D, None, _REMOVE, How.SUPERSEDED, "revived, but its key is waiting", ("SJ-16",)),
    StateChange(_D, None, _REMOVE, How.EXPIRE, "revived, but it has expired", ("SJ-06",)),
    StateChange(_D, None, _REMOVE, How.DISCARD, "discarded"),
    StateChange(_W, None, _REMOVE, How.PURGE, "its table was dropped"),
    StateChange(_T, None, _REMOVE, How.PURGE, "its table was dropped"),
    StateChange(_D, None, _REMOVE, How.PURGE, "its table was dropped"),
)

# -- the picture ----------------------------------------------------------------------------------

_NEW, _GONE = "new", "gone"
# The column of each state's line.
_LINES: Final = {_NEW: 1, "waiting": 10, "taken": 19, "dead": 28, _GONE: 37}
_WIDTH: Final = 41


def picture() -> str:
    """Draws one line down for each state, and one arrow across for each change."""
    rows = [(_arrow(change), _cause(change)) for change in CHANGES]
    return "\n".join([_names(), *(f"{arrow:{_WIDTH}}{cause}" for arrow, cause in rows)]) + "\n"


def _names() -> str:
    line = ""
    for name, position in _LINES.items():
        line = line.ljust(position - len(name) // 2) + name
    return line


def _arrow(change: StateChange) -> str:
    start = _LINES[_name(change.before) or _NEW]
    end = _LINES[_name(change.after) or _GONE]
    drawn = [" "] * _WIDTH
    for state in State:
        drawn[_LINES[state.name.lower()]] = "|"
    if start == end:
        drawn[start] = "@"
        return "".join(drawn).rstrip()
    step = 1 if start < end else -1
    for position in range(start + step, end, step):
        drawn[position] = "-"
    drawn[start] = "+"
    drawn[end - step] = ">" if step > 0 else "<"
    return "".join(drawn).rstrip()


def _name(state: State | None) -> str:
    return "" if state is None else state.name.lower()


def _cause(change: StateChange) -> str:
    op = change.opcode.name if change.how is None else f"{change.opcode.name} {change.how.name}"
    numbers = f" ({', '.join(change.numbers)})" if change.numbers else ""
    return f"{op:23}{change.words}{numbers}"
