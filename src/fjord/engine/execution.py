"""Filling a frame: commands are decided and applied one after the other until it is full.

Adjacent commands of the same kind on one table are merged and decided as one, and one op keeps
their answers; if the merged command is refused each is decided alone, so that nobody is refused
because of another.  The commands of a batch are decided against an overlay with the effects of the
previous ones; only when all of them are accepted is any applied.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from fjord import commands, limits, ops
from fjord.columns import joined
from fjord.commands import Command, Refusal, Reply
from fjord.commands.codec import data_bytes
from fjord.engine.group import Group, IndexView
from fjord.errors import Code, CorruptionError, RefusedError
from fjord.journal import frame as frames
from fjord.journal.writer import Claim
from fjord.tables import clients, snapshots
from fjord.tables.catalog import TakeOver
from fjord.tables.jobs.keep import MoveJobs
from fjord.tables.state import Decision
from fjord.tables.upkeep import Begin, Pack

# Returns whether a group has taken long enough, so that the rest waits for the next one.
IsLate = Callable[[], bool]
# Makes room for a frame of so many bytes, which may use the space that it claims.
MakeRoom = Callable[[int, Claim], None]
_BODY_BYTES_MAX: Final = limits.FRAME_BYTES_MAX - frames.FRAME_HEADER_BYTES


_TOO_LARGE: Final = Refusal(
    code=Code.TOO_LARGE,
    text=f"the result is larger than {_BODY_BYTES_MAX} bytes; ask for less at a time",
)


_IN_BLOCK: Final = Refusal(
    code=Code.BAD_BATCH,
    text="that moment is in a cold block; look up its seq, or send it alone and without a number",
)


class _NoRoomError(Exception):
    """The ops of a batch do not fit into the rest of the frame.

    Its argument is the size of the body with them.
    """


def fill(
    group: Group,
    wanted: Sequence[Command],
    clients_: Sequence[int],
    make_room: MakeRoom,
    is_late: IsLate,
) -> list[Reply]:
    """Runs the first commands, as many as fit the frame, at least one; returns their replies."""
    replies: list[Reply] = []
    answer_bytes = 0
    for run in (wanted,) if len(wanted) == 1 else _runs(wanted, group):
        if answer_bytes >= limits.ANSWER_BYTES_MAX or (replies and is_late()):
            break
        found = _run_merged(group, run, make_room) if len(run) > 1 else None
        if found is None:
            found = []
            for command in run:
                if found and is_late():
                    return replies + found
                if clients_:
                    group.client = clients_[len(replies) + len(found)]
                reply = _run_one(group, command, make_room)
                if reply is None:
                    return replies + found  # this frame is full; the rest goes into the next one
                found.append(reply)
        replies += found
        for reply in found:
            answer_bytes += type(reply).row.size(reply)
    return replies


def decide(command: Command, state: IndexView, now_us: int) -> Decision:
    """Decides a command; damage found by a read is its answer."""
    try:
        decision: Decision = type(command).row.decide(command, state, now_us)
        if state.snapshots and decision.ops:
            kept = snapshots.kept(decision.ops, state)
            return decision._replace(ops=[*decision.ops, *kept]) if kept else decision
        return decision
    except RefusedError as error:
        return Decision(Refusal.of(error))
    except CorruptionError as error:
        return Decision(Refusal(code=Code.CORRUPT, text=str(error)))
    except OSError as error:
        return Decision(Refusal(code=Code.FAILED, text=f"the journal cannot be read: {error}"))


def is_urgent(command: Command) -> bool:
    """Returns whether a command frees space, and therefore must work on a full disk."""
    return claim_of(command) is not Claim.ORDINARY


def claim_of(command: Command) -> Claim:
    """Returns the space that a command may use on a full disk."""
    if type(command) is commands.Numbered:
        command = command.command
    if type(command) is commands.Batch:
        frees = all(type(one).row.reads or is_urgent(one) for one in command.commands)
    elif isinstance(command, Begin | TakeOver):
        return Claim.VITAL
    elif isinstance(command, Pack | MoveJobs):
        return Claim.VITAL if command.is_measured else Claim.ORDINARY
    else:
        frees = type(command).row.frees
    return Claim.URGENT if frees else Claim.ORDINARY


def _run_one(group: Group, command: Command, make_room: MakeRoom) -> Reply | None:
    """Runs one command; None if the frame has no room for it."""
    numbered = None
    if type(command) is commands.Numbered:
        numbered, command = command, command.command
        known = clients.number_problem(numbered) or clients.find_answers(group, [numbered])[0]
        if known is not None:
            return known
    if type(command) is commands.Batch:
        return _run_batch(group, command, numbered, make_room)
    decision = decide(command, group, group.wall_us)
    if numbered is not None and type(decision.reply) is not Refusal:
        decision = _with_answers(decision, [numbered], [decision.reply], group.wall_us)
    return _write(group, decision, command, make_room)


def _with_answers(
    decision: Decision, asked: Sequence[commands.Numbered], replies: Sequence[Reply], now_us: int
) -> Decision:
    if commands.InBlock in map(type, replies):
        return Decision(_IN_BLOCK)
    answered = clients.answered_op(asked, replies, now_us)
    if isinstance(answered, Refusal):
        return Decision(answered)
    return decision._replace(ops=[*decision.ops, answered])


def _write(group: Group, decision: Decision, command: Command, make_room: MakeRoom) -> Reply | None:
    """Applies a decision and returns its reply; None if the rest of the frame is too small."""
    if decision.ops:
        encoded = list(map(ops.encode, decision.ops))
        size = 0
        for data, _ in encoded:
            size += len(data)
        if size > _BODY_BYTES_MAX:
            return _TOO_LARGE
        claim = claim_of(command)
        if not group.fits(size, claim):
            if group.rows:
                return None
            make_room(size, claim)
        group.add(decision.ops, encoded)
    if decision.volatile or decision.locks:
        _change_memory(group, decision)
    return decision.reply


def _change_memory(group: Group, decision: Decision) -> None:
    if decision.volatile:
        group.change_volatile(decision.volatile)
    if decision.locks:
        group.change_locks(decision.locks)


# -- batches --------------------------------------------------------------------------------------


def _run_batch(
    group: Group, batch: commands.Batch, numbered: commands.Numbered | None, make_room: MakeRoom
) -> Reply | None:
    problem = None if numbered else clients.batch_problem(batch, is_numbered=False)
    if problem is not None:
        return problem
    try:
        return _try_batch(group, batch, numbered)
    except _NoRoomError as error:
        (body_bytes,) = error.args
        if group.rows:
            return None
        if body_bytes > _BODY_BYTES_MAX:
            return _TOO_LARGE
        make_room(body_bytes, claim_of(batch))
    return _try_batch(group, batch, numbered)


def _try_batch(group: Group, batch: commands.Batch, numbered: commands.Numbered | None) -> Reply:
    """Runs all commands of a batch, or none of them.

    Raises:
        _NoRoomError: if the frame has no room for it; nothing has changed then.
    """
    group.begin_batch()
    try:
        reply = _gather_batch(group, batch, numbered)
    except BaseException:
        group.drop_batch()
        raise
    if isinstance(reply, Refusal):
        group.drop_batch()
    else:
        group.keep_batch()
    return reply


def _gather_batch(group: Group, batch: commands.Batch, numbered: commands.Numbered | None) -> Reply:
    replies: list[Reply] = []
    before, answer_bytes = group.body_bytes, 0
    for position, command in enumerate(batch.commands, start=1):
        decision = decide(command, group, group.wall_us)
        # A batch cannot wait for a block to be read.
        reply = _IN_BLOCK if isinstance(decision.reply, commands.InBlock) else decision.reply
        if isinstance(reply, Refusal):
            text = f"command {position} of the batch: {reply.text}"
            return Refusal(code=reply.code, text=text)
        _gather(group, decision)
        replies.append(reply)
        answer_bytes += data_bytes(reply)
        if answer_bytes > limits.ANSWER_BYTES_MAX:
            text = f"the answers of a batch have at most {limits.ANSWER_BYTES_MAX} bytes"
            return Refusal(code=Code.TOO_LARGE, text=text)
    answer = commands.Replies(replies=replies)
    if numbered is not None:
        answered = clients.answered_op([numbered], [answer], group.wall_us)
        if isinstance(answered, Refusal):
            return answered
        _gather(group, Decision(answer, [answered]))
    if group.body_bytes > before and not group.fits(0, claim_of(batch)):
        raise _NoRoomError(group.body_bytes)
    return answer


def _gather(group: Group, decision: Decision) -> None:
    encoded = list(map(ops.encode, decision.ops))
    body_bytes = group.body_bytes + sum(len(data) for data, _ in encoded)
    if body_bytes > _BODY_BYTES_MAX:
        raise _NoRoomError(body_bytes)
    group.add(decision.ops, encoded)
    _change_memory(group, decision)


# -- merging --------------------------------------------------------------------------------------


def _runs(wanted: Sequence[Command], group: Group) -> Iterator[Sequence[Command]]:
    """Yields the commands in order, with those neighbours together that may be merged.

    While keys are locked the client matters, so nothing is merged; an earlier command may have
    locked one.
    """
    for key, run in itertools.groupby(wanted, _merge_key):
        if key is None or group.locks:
            yield from ([command] for command in run)
        else:
            yield list(run)


def _merge_key(command: Command) -> Hashable:
    """Returns what neighbours must share to be merged; None for a command that stands alone."""
    if type(command) is commands.Numbered:
        command = command.command
    merge = type(command).row.merge
    if merge is None or not merge.is_possible(command):
        return None
    row = type(command).row
    if not 0 < len(getattr(command, row.columns[0])) <= limits.MERGED_ROWS_MAX:
        return None
    if data_bytes(command) > limits.MERGED_BYTES_MAX:
        return None
    return type(command), *[getattr(command, name) for name in row.scalars]


def _merged(found: Sequence[Command]) -> Command | None:
    """Returns one command for neighbours with the same merge key; None if there is none."""
    row = type(found[0]).row
    fields = {name: getattr(found[0], name) for name in row.scalars}
    fields |= {name: joined([getattr(one, name) for one in found]) for name in row.columns}
    unique = row.merge.unique if row.merge else ""
    if unique and len(set(fields[unique])) < len(fields[unique]):
        return None
    made: Command = row.record(**fields)
    return made


def _run_merged(group: Group, run: Sequence[Command], make_room: MakeRoom) -> list[Reply] | None:
    """Runs neighbours as one command; None if each has to be run alone."""
    asked = [one for one in run if type(one) is commands.Numbered]
    if len(set(map(clients.slot_of, asked))) < len(asked):
        return None  # one is a retry of another, or would overwrite its answer
    if asked and (
        any(map(clients.number_problem, asked)) or any(clients.find_answers(group, asked))
    ):
        return None
    found = [one.command if type(one) is commands.Numbered else one for one in run]
    merged = _merged(found)
    if merged is None:
        return None
    decision = decide(merged, group, group.wall_us)
    if isinstance(decision.reply, Refusal):
        return None
    merge = type(merged).row.merge
    assert merge is not None
    replies = merge.split(decision.reply, found)
    if asked:
        answers = [
            reply for one, reply in zip(run, replies, strict=True) if type(one) is commands.Numbered
        ]
        decision = _with_answers(decision, asked, answers, group.wall_us)
        if isinstance(decision.reply, Refusal):
            return None
    if _write(group, decision, merged, make_room) is not decision.reply:
        return None  # there is no room for all of them: those that fit are run alone
    return list(replies)
