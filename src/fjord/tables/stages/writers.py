"""Writers: who numbers its batches, so that each of them counts once.

    a writer of a table    commits stages, see `staging`
    a writer of no table   says how far it is, in a batch with what it writes: ADVANCE

Only the last number of each is kept.  A writer of no table moves from the number at which it is to
a larger one: so whoever does not know whether a batch was applied sends it again, or asks where it
is and goes on from there.

A writer that is over stays for a day, at a number that nobody expects: a batch of it that was given
up for lost, and comes late, must not find it new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fjord import commands, layouts, limits
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.errors import Code
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.stages import layout
from fjord.tables.stages.layout import Writer
from fjord.tables.state import Decision, State, Tree, decides

UNKNOWN: Final = -1  # where a writer is that is not known
OVER: Final = 2**63 - 1  # where a writer is that has no more batches
NUMBERS: Final = range(OVER)  # of batches


@decides(commands.Advance)
def decide_advance(command: commands.Advance, state: State, now_us: int) -> Decision:
    problem = name_problem(command.writer) or _numbers_problem(command)
    if problem is not None:
        return Decision(problem)
    known = find(state, layouts.prefix_of(catalog.NO_TABLE), command.writer.encode())
    at = known.batch if known else UNKNOWN
    if at != command.expected:
        text = f"writer {command.writer} is {_place(at)}, not {_place(command.expected)}"
        return Decision(Refusal(code=Code.STALE_NUMBER, text=text))
    problem = None if known else room_problem(state)
    if problem is not None:
        return Decision(problem)
    number = command.batch or OVER
    return catalog.decision(state, [op_of(catalog.NO_TABLE, command.writer, number, now_us)])


def _numbers_problem(command: commands.Advance) -> Refusal | None:
    if command.expected != UNKNOWN and command.expected not in NUMBERS:
        text = "a writer is expected at 0 to 2^63 - 2, or at -1 if it is not known"
        return Refusal(code=Code.BAD_RANGE, text=text)
    if command.batch and (command.batch not in NUMBERS or command.batch <= command.expected):
        text = "a writer goes forward, up to 2^63 - 2, or to 0 if it is over"
        return Refusal(code=Code.BAD_RANGE, text=text)
    return None


def _place(number: int) -> str:
    return {UNKNOWN: "new here", OVER: "over"}.get(number, f"at {number}")


# -- what all writers have ------------------------------------------------------------------------


def find(state: State, prefix: bytes, name: bytes) -> Writer | None:
    (data,) = state.get_many(Tree.WRITERS, [prefix + name])
    return layout.decode_writer(data) if data else None


def name_problem(name: str) -> Refusal | None:
    if 0 < len(name.encode()) <= limits.WRITER_BYTES_MAX:
        return None
    text = f"the name of a writer has 1 to {limits.WRITER_BYTES_MAX} bytes"
    return Refusal(code=Code.BAD_NAME, text=text)


def room_problem(state: State) -> Refusal | None:
    """Says why there may be no further writer, or None."""
    if state.size_of(Tree.WRITERS) < limits.WRITERS_MAX:
        return None
    text = f"there are {limits.WRITERS_MAX} writers; use the same name again for each run"
    return Refusal(code=Code.QUOTA, text=text)


def op_of(table_id: int, name: str, batch: int, now_us: int, stages: Sequence[int] = ()) -> Op:
    """Returns the op that says at which batch a writer is, and what that is written from."""
    kept = Strings.of([layout.encode_seqs(tuple(stages))])
    return Op(Opcode.WRITER, table_id, 1, ((batch,), (now_us,), Strings.of([name.encode()]), kept))
