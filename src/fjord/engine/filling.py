"""Filling a frame: commands are decided and applied one after the other until it is full.

Neighbours that may be merged are decided as one.  The commands of a batch are decided against an
overlay of what the ones before them did; only when all of them are accepted is any applied.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from fjord import limits, tables
from fjord.commands import Batch, Command, InBlock, Refusal, Replies, Reply, reply_bytes
from fjord.engine.group import Group, Snapshot, encode_all, encoded_bytes
from fjord.errors import Code, CorruptionError
from fjord.journal import frame as frames
from fjord.tables import clients, snapshots
from fjord.tables.job_upkeep import MoveJobs
from fjord.tables.packing import Pack
from fjord.tables.state import Decision

# A command of a user, or what the engine asks of itself.
Asked = object
# Told how many bytes a frame will have, and whether it may use what is reserved for deletes;
# begins a new segment.
Rotate = Callable[[int, bool], None]
_BODY_BYTES_MAX: Final = limits.FRAME_BYTES_MAX - frames.FRAME_HEADER_BYTES


_TOO_LARGE: Final = Refusal(
    code=Code.TOO_LARGE,
    text=f"what it comes to has at most {_BODY_BYTES_MAX} bytes; ask for less at a time",
)


_IN_BLOCK: Final = Refusal(
    code=Code.BAD_BATCH,
    text="that moment is in a cold block; look up its seq first, or do it outside of a batch",
)


class _NoRoomError(Exception):
    """The ops of a batch do not fit behind what the frame holds already."""


def fill(
    group: Group,
    wanted: Sequence[Asked],
    clients_: Sequence[int],
    now_us: int,
    rotate: Rotate,
) -> list[Reply]:
    """Runs the first commands, as many as fit the frame, at least one; returns their replies."""
    replies: list[Reply] = []
    answer_bytes = 0
    for run in _runs(wanted, group):
        if answer_bytes >= limits.ANSWER_BYTES_MAX:
            break
        merged = _decide_merged(run, group, now_us)
        for command in run[:1] if merged else run:
            if clients_:
                group.client = clients_[len(replies)]
            reply = _run_one(group, command, merged, now_us, rotate)
            if reply is None:
                return replies  # this frame is full; the rest goes into the next one
            replies += [reply] * (len(run) if merged else 1)
            answer_bytes += reply_bytes(reply)
    return replies


def decide(command: Asked, state: Snapshot, now_us: int) -> Decision:
    """Decides a command; damage that only a read has met is that read's answer."""
    try:
        decision = tables.DECIDE[type(command)](command, state, now_us)
        if state.snapshots and decision.ops:
            kept = snapshots.kept(decision.ops, state)
            return decision._replace(ops=[*decision.ops, *kept]) if kept else decision
        return decision
    except CorruptionError as error:
        return Decision(Refusal(code=Code.CORRUPT, text=str(error)))
    except OSError as error:
        return Decision(Refusal(code=Code.FAILED, text=f"the journal cannot be read: {error}"))


def is_urgent(command: Asked) -> bool:
    """Says whether a command frees something, and therefore must work on a full disk."""
    if type(command) is Batch:
        return all(type(one) in tables.READS or is_urgent(one) for one in command.commands)
    if isinstance(command, Pack | MoveJobs):
        return command.is_urgent
    return type(command) in tables.FREES


def bounded(replies: Iterator[Reply]) -> list[Reply]:
    """Takes replies until they are one large answer together; the rest is not even made."""
    taken: list[Reply] = []
    answer_bytes = 0
    for reply in replies:
        taken.append(reply)
        answer_bytes += reply_bytes(reply)
        if answer_bytes >= limits.ANSWER_BYTES_MAX:
            break
    return taken


def _run_one(
    group: Group, command: Asked, merged: Decision | None, now_us: int, rotate: Rotate
) -> Reply | None:
    """Runs one command, or a merged run of them; None if the frame has no room for it."""
    if type(command) is Batch:
        return _run_batch(group, command, now_us, rotate)
    decision = merged or decide(command, group, now_us)
    return _write(group, decision, decision.reply, is_urgent(command), rotate)


def _write(
    group: Group,
    decision: Decision,
    reply: Reply,
    urgent: bool,  # noqa: FBT001
    rotate: Rotate,
) -> Reply | None:
    """Applies a decision, and gives the reply; None if the frame has no room behind other rows."""
    if decision.ops:
        encoded = encode_all(decision.ops)
        size = encoded_bytes(encoded)
        if size > _BODY_BYTES_MAX:
            return _TOO_LARGE
        if not group.fits(encoded, urgent=urgent):
            if group.rows:
                return None
            rotate(size, urgent)
        group.add(decision.ops, encoded)
    _change_memory(group, decision)
    return reply


def _change_memory(group: Group, decision: Decision) -> None:
    if decision.volatile:
        group.change_volatile(decision.volatile)
    if decision.locks:
        group.change_locks(decision.locks)


# -- batches --------------------------------------------------------------------------------------


def _run_batch(group: Group, batch: Batch, now_us: int, rotate: Rotate) -> Reply | None:
    known = clients.batch_problem(batch) or clients.find_answer(group, batch)
    if known is not None:
        return known
    if len(batch.commands) == 1:
        return _run_batch_of_one(group, batch, now_us, rotate)
    try:
        return _try_batch(group, batch, now_us)
    except _NoRoomError:
        if group.rows:
            return None
    rotate(_BODY_BYTES_MAX, is_urgent(batch))
    try:
        return _try_batch(group, batch, now_us)
    except _NoRoomError:
        return _TOO_LARGE


def _run_batch_of_one(group: Group, batch: Batch, now_us: int, rotate: Rotate) -> Reply | None:
    """Runs the one command of a batch: nothing has to be taken back if it is refused.

    That is what clients send for every write that must not be applied twice.
    """
    decision = _decide_inside(batch.commands[0], group, now_us)
    if isinstance(decision.reply, Refusal):
        return _refused(1, decision.reply)
    if batch.number:
        answered = clients.answered_op(batch, [decision.reply], now_us)
        if isinstance(answered, Refusal):
            return answered
        decision = decision._replace(ops=[*decision.ops, answered])
    replies = Replies(replies=[decision.reply])
    return _write(group, decision, replies, is_urgent(batch), rotate)


def _decide_inside(command: Command, group: Group, now_us: int) -> Decision:
    """Decides a command of a batch, which cannot wait until somebody has looked into a block."""
    decision = decide(command, group, now_us)
    return Decision(_IN_BLOCK) if isinstance(decision.reply, InBlock) else decision


def _refused(position: int, refusal: Refusal) -> Refusal:
    text = f"command {position} of the batch: {refusal.text}"
    return Refusal(code=refusal.code, text=text)


def _try_batch(group: Group, batch: Batch, now_us: int) -> Reply:
    """Runs all commands of a batch, or none of them.

    Raises:
        _NoRoomError: if the frame has no room for it; nothing has changed then.
    """
    group.begin_batch()
    try:
        reply = _gather_batch(group, batch, now_us)
    except BaseException:
        group.drop_batch()
        raise
    if isinstance(reply, Refusal):
        group.drop_batch()
    else:
        group.keep_batch()
    return reply


def _gather_batch(group: Group, batch: Batch, now_us: int) -> Reply:
    urgent = is_urgent(batch)
    replies: list[Reply] = []
    answer_bytes = 0
    for position, command in enumerate(batch.commands, start=1):
        decision = _decide_inside(command, group, now_us)
        if isinstance(decision.reply, Refusal):
            return _refused(position, decision.reply)
        _gather(group, decision, urgent=urgent)
        replies.append(decision.reply)
        answer_bytes += reply_bytes(decision.reply)
        if answer_bytes > limits.ANSWER_BYTES_MAX:
            text = f"the answers of a batch have at most {limits.ANSWER_BYTES_MAX} bytes"
            return Refusal(code=Code.TOO_LARGE, text=text)
    if batch.number:
        answered = clients.answered_op(batch, replies, now_us)
        if isinstance(answered, Refusal):
            return answered
        _gather(group, Decision(Replies(replies=()), [answered]), urgent=urgent)
    return Replies(replies=replies)


def _gather(group: Group, decision: Decision, *, urgent: bool) -> None:
    encoded = encode_all(decision.ops)
    if not group.fits(encoded, urgent=urgent):
        raise _NoRoomError
    group.add(decision.ops, encoded)
    _change_memory(group, decision)


# -- merging --------------------------------------------------------------------------------------


def _runs(wanted: Sequence[Asked], group: Group) -> Iterator[Sequence[Asked]]:
    """Yields the commands in order, with neighbours that may be merged together.

    While keys are locked it matters who asks, so nothing is merged; a command before a run may
    have locked one.
    """
    if len(wanted) == 1:
        yield wanted
        return
    for key, run in itertools.groupby(wanted, _merge_key):
        if key is None or group.locks:
            yield from ([command] for command in run)
        else:
            yield list(run)


def _merge_key(command: Asked) -> Hashable:
    merge_key = tables.MERGE_KEY.get(type(command))
    return None if merge_key is None else merge_key(command)


def _decide_merged(run: Sequence[Asked], group: Group, now_us: int) -> Decision | None:
    """Decides a run as one command; None if each has to be decided alone."""
    if len(run) == 1:
        return None
    merged = tables.MERGE[type(run[0])](run)
    if merged is None:
        return None
    decision = decide(merged, group, now_us)
    return None if isinstance(decision.reply, Refusal) else decision
