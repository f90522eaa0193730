"""STAGE and COMMIT: many clients store rows, and one commit shows them to all, exactly once.

A writer numbers its batches, and only the last number is remembered.  A batch that is committed
again, or an older one, is committed already: whatever was staged for it is dropped.

Committing messages of a log is a single decision that gives all of them their seqs.  Jobs and
values have to be merged with existing ones, which takes a while for many of them.  So the first
decision fixes the stages of the batch, for good, and further decisions run them one after the
other: each stage is run and removed in the same commit.
"""

from __future__ import annotations

import bisect
import enum
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import google_crc32c

from fjord import commands, jobs, layouts, limits, ops
from fjord.columns import Strings, repeat
from fjord.commands import Append, Committed, Push, Set
from fjord.commands.layout import Command, internal
from fjord.errors import Code, RefusedError
from fjord.kinds import Kind
from fjord.layouts import POINTER, PREFIX_BYTES, Fields, end_of, prefix_of
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog, rules
from fjord.tables.jobs import push
from fjord.tables.kv.decide import decide_set
from fjord.tables.state import Decision, Pointer, Table, Tree, View, Writes, decides
from fjord.tables.streams import layout
from fjord.tables.streams.decide import decide_append
from fjord.tables.streams.layout import SEQ, seq_key, seq_of

STAGE: Final = (Fields(rows="I") + POINTER + Fields(at_us="Q", state="B")).packed()
WRITER: Final = struct.Struct("<QQQ")


class StageState(enum.IntEnum):
    """The progress of a stage."""

    PENDING = 0  # not committed yet
    DECIDED = 1  # it will be run
    COMMITTED = 2  # its messages have seqs, and stay in it until they are in a block


class Staged(NamedTuple):
    """A stage."""

    seq: int
    rows: int
    segment: int
    offset: int
    size: int
    crc: int
    at_us: int
    state: int

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.segment, self.offset, self.size, self.crc, self.seq)


class StageWriter(NamedTuple):
    """The last batch of a writer."""

    batch: int
    at_us: int
    held: int
    stages: tuple[int, ...]


def decode_stage(key: bytes, data: bytes) -> Staged:
    return Staged(seq_of(key), *STAGE.unpack(data))


def decode_writer(data: bytes) -> StageWriter:
    batch, at_us, held = WRITER.unpack_from(data)
    stages = tuple(seq for (seq,) in SEQ.iter_unpack(data[WRITER.size :]))
    return StageWriter(batch, at_us, held, stages)


# What a STAGE adds to the op in it: a header, a date, two offsets.
_AROUND_BYTES: Final = ops.HEADER.size + 16


@internal(frees=True)
class DropStages(Command):
    """Drops stages that were not committed in time."""

    table: int
    stages: Sequence[int]


@internal()
class RunStage(Command):
    """Continues a batch whose writer began to commit it, and has been silent since."""

    table: int
    name: bytes


@internal(frees=True)
class ForgetWriter(Command):
    """Forgets a writer that has been silent since a moment, unless its last batch is pending."""

    table: int
    name: bytes
    before_us: int


# -- staging --------------------------------------------------------------------------------------


@decides(commands.Stage)
def decide_stage(command: commands.Stage, state: View, now_us: int) -> Decision:
    """Stores rows that could be written now; invalid ones are refused at once."""
    rows = command.rows
    kind = _KINDS[type(rows)]
    type(rows).row.decide(_stamped(rows, now_us), state, now_us)
    table, creation = catalog.find_or_create(state, rows.table, kind)
    _check_stage(rows, table)
    inner, _ = ops.encode(_STAGING[kind].encode(rows, table, now_us))
    op = Op(Opcode.STAGE, table.id, 1, ((now_us,), Strings.of([inner])))
    return catalog.decision(state, [*creation, op])


def _stamped(rows: Append | Push | Set, now_us: int) -> Append | Push | Set:
    """Returns rows with the current date where they have none."""
    if isinstance(rows, Append) or all(rows.timestamps_us):
        return rows
    return replace(rows, timestamps_us=[stamp or now_us for stamp in rows.timestamps_us])


def _check_stage(rows: Append | Push | Set, table: Table) -> None:
    if not table.is_log and len(rows.types) > limits.SLICE_ROWS_MAX:
        text = f"a stage of table {table.name} has at most {limits.SLICE_ROWS_MAX} rows"
        raise RefusedError(Code.BAD_BATCH, text)
    if isinstance(rows, Append) and rows.timestamps_us is not None:
        text = "staged messages cannot have dates; they get the date of their commit"
        raise RefusedError(Code.BAD_BATCH, text)
    if isinstance(rows, Set) and (rows.also is not None or not (rows.persist and rows.overwrite)):
        text = "staged values need overwrite and persist, and have one key each"
        raise RefusedError(Code.BAD_BATCH, text)


def _append_op(rows: Append, table: Table, now_us: int) -> Op:
    columns = (rows.types, rows.keys, rows.values)
    return Op(Opcode.STREAM_APPEND, table.id, len(rows.types), columns)


def _push_op(rows: Push, table: Table, now_us: int) -> Op:
    dates = rows.process_at_us
    if rows.relative:  # a delay counts from now, not from the commit
        dates = [now_us + delay_us if delay_us else 0 for delay_us in dates]
    count = len(rows.types)
    none = repeat(0, count)
    numbers = (rows.timestamps_us, none, dates, rows.expires_at_us, none, rows.priorities)
    payload = (rows.types, rows.keys, rows.domains, rows.values)
    columns: Any = (*numbers, bytes(count), *payload)
    return Op(Opcode.JOB_ADD, table.id, count, columns)


def _set_op(rows: Set, table: Table, now_us: int) -> Op:
    count = len(rows.types)
    none = repeat(0, count)
    dates = (repeat(rows.expires_at_us, count), repeat(rows.ttl_us, count))
    columns: Any = (rows.timestamps_us, *dates, *[none] * 4, rows.types, rows.keys, rows.values)
    return Op(Opcode.KV_SET, table.id, count, columns)


# -- committing -----------------------------------------------------------------------------------


@decides(commands.CommitStages)
def decide_commit(command: commands.CommitStages, state: View, now_us: int) -> Decision:
    _check_commit(command)
    table = state.tables.get(command.table)
    if table is None:
        if command.stages:
            raise RefusedError(Code.NOT_FOUND, f"there is no table {command.table}")
        return Decision(_committed(state, command.batch, is_new=True))
    known = find(state, table.prefix, command.writer.encode())
    waiting = _waiting(state, table.prefix, known) if known else ()
    if known and waiting:
        # An earlier batch, or this one, is decided and not yet written.
        further = -1 if known.batch == command.batch else len(command.stages)
        return _run(table, known, waiting[0], len(waiting) + further, state, now_us)
    if known and command.batch <= known.batch:
        made = _drop(table.id, _pending(state, table.prefix, command.stages))
        return Decision(_committed(state, known.batch, is_new=False), made)
    return _commit(command, table, known, state, now_us)


@decides(commands.AskWriter)
def decide_ask(command: commands.AskWriter, state: View, now_us: int) -> Decision:
    if command.table:
        rules.check_name(command.table)
    check_name(command.writer)
    table = state.tables.get(command.table)
    prefix = table.prefix if table else prefix_of(catalog.NO_TABLE)
    known = find(state, prefix, command.writer.encode())
    if known is None or (command.table and table is None):
        return Decision(_committed(state, UNKNOWN, is_new=False))
    left = len(_waiting(state, prefix, known))
    return Decision(_committed(state, known.batch, is_new=False, left=left))


def _check_commit(command: commands.CommitStages) -> None:
    rules.check_name(command.table)
    check_name(command.writer)
    if command.batch not in NUMBERS:
        raise RefusedError(Code.BAD_RANGE, "a batch number is from 0 to 2^63 - 1")
    if len(command.stages) > limits.STAGES_MAX:
        text = f"a commit has at most {limits.STAGES_MAX} stages; stage more rows at a time"
        raise RefusedError(Code.BAD_COUNT, text)
    if len(set(command.stages)) < len(command.stages):
        raise RefusedError(Code.BAD_BATCH, "a stage is listed twice")


def _commit(
    command: commands.CommitStages,
    table: Table,
    known: StageWriter | None,
    state: View,
    now_us: int,
) -> Decision:
    if known is None:
        check_room(state)
    found = _pending(state, table.prefix, command.stages)
    if len(found) < len(command.stages):
        gone = min(set(command.stages) - {stage.seq for stage in found})
        text = f"stage {gone} of table {table.name} does not exist; write the batch again"
        raise RefusedError(Code.STAGE_GONE, text)
    name = command.writer
    if table.is_log:
        rows = sum(stage.rows for stage in found)
        made = [_commit_op(table, stage) for stage in found]
        made += op_of(table.id, name, command.batch, now_us)
        seq = state.next_seq - 1 + rows
        return Decision(_committed(state, command.batch, is_new=True, rows=rows, seq=seq), made)
    decided = [(one.seq, one.at_us, one.rows, *one.pointer[:4]) for one in found]
    made = [
        *op_of(table.id, name, command.batch, now_us, command.stages),
        *ops.of_rows(Opcode.STAGE_DECIDED, table.id, decided),
    ]
    return Decision(_committed(state, command.batch, is_new=True, left=len(found)), made)


def _commit_op(table: Table, stage: Staged) -> Op:
    numbers = (stage.seq, *stage.pointer[:4], _bytes(stage))
    return Op(Opcode.STREAM_COMMIT, table.id, stage.rows, tuple((one,) for one in numbers))


def _committed(
    state: View, batch: int, *, is_new: bool, left: int = 0, rows: int = 0, seq: int = 0
) -> Committed:
    seq = seq or state.next_seq - 1
    return Committed(batch=batch, is_new=is_new, left=left, rows=rows, seq=seq)


# -- running decided stages -----------------------------------------------------------------------


def _run(
    table: Table, known: StageWriter, seq: int, left: int, state: View, now_us: int
) -> Decision:
    """Runs and removes the first stage of a pending batch; the reply says how many are left."""
    (stage,) = _stages(state, table.prefix, [seq])
    (inner,) = state.payloads([stage.pointer])
    op, _, _ = ops.decode(memoryview(inner), 0)
    staging = _STAGING[table.kind]
    command = staging.decode(table.name, op, now_us)
    decision = catalog.decision(state, ())
    if command is not None:
        decision = staging.run(_stamped(command, now_us), state, now_us)
    made = [*decision.ops, *_drop(table.id, [stage])]
    seq = state.next_seq - 1 + sum(one.rows for one in made)
    reply = _committed(state, known.batch, is_new=True, left=left, rows=stage.rows, seq=seq)
    return decision._replace(reply=reply, ops=made)


def _append_of(table: str, op: Op, now_us: int) -> Append:
    types, keys, values = op.columns
    return Append(table=table, types=bytes(types), keys=keys, values=values)


def _push_of(table: str, op: Op, now_us: int) -> Push | None:
    """Returns the push of a stage without expired jobs; None if none is left."""
    stamps, _, dates, expiries, *_ = op.columns
    if any(expiries):
        live = jobs.unexpired(dates, expiries, now_us)
        if not live:
            return None
        if len(live) < op.rows:
            op = ops.only(op, live)
            stamps, _, dates, expiries, *_ = op.columns
    priorities, _, types, keys, domains, values = op.columns[5:]
    return Push(
        table=table,
        keys=keys,
        domains=domains,
        types=bytes(types),
        values=values,
        priorities=bytes(priorities),
        process_at_us=dates,
        expires_at_us=expiries,
        timestamps_us=stamps,
    )


def _set_of(table: str, op: Op, now_us: int) -> Set | None:
    stamps, expiries, ttls, *_, types, keys, values = op.columns
    if 0 < expiries[0] <= now_us:
        return None
    return Set(
        table=table,
        keys=keys,
        types=bytes(types),
        values=values,
        timestamps_us=stamps,
        expires_at_us=expiries[0],
        ttl_us=ttls[0],
    )


class Staging(NamedTuple):
    """How rows of a table are staged: as which op, and how to decode it."""

    command: type[Command]  # that contains them
    encode: Callable[[Any, Table, int], Op]
    decode: Callable[[str, Op, int], Append | Push | Set | None]  # None: nothing of it is left
    run: Callable[[Any, View, int], Decision]


_STAGING: Final = {
    Kind.STREAM: Staging(Append, _append_op, _append_of, decide_append),
    Kind.JOBS: Staging(Push, _push_op, _push_of, push.decide_staged),
    Kind.KV: Staging(Set, _set_op, _set_of, decide_set),
}
_KINDS: Final = {staging.command: kind for kind, staging in _STAGING.items()}


# -- looking stages up ----------------------------------------------------------------------------


def _waiting(state: View, prefix: bytes, known: StageWriter) -> Sequence[int]:
    """Returns the stages of a batch that are not written yet.

    They are written in order, and removed as they are written, so those left are the last ones.
    """
    stages = known.stages
    if not stages or not _stages(state, prefix, stages[-1:]):
        return ()
    first = bisect.bisect_left(
        range(len(stages)), 1, key=lambda at: len(_stages(state, prefix, stages[at : at + 1]))
    )
    return stages[first:]


def _pending(state: View, prefix: bytes, seqs: Sequence[int]) -> list[Staged]:
    """Returns those of some stages that are not committed."""
    found = _stages(state, prefix, seqs)
    return [stage for stage in found if stage.state == StageState.PENDING]


def _stages(state: View, prefix: bytes, seqs: Sequence[int]) -> list[Staged]:
    keys = [seq_key(prefix, seq) for seq in seqs]
    stored = state.get_many(Tree.STAGES, keys)
    return [decode_stage(key, data) for key, data in zip(keys, stored, strict=True) if data]


def first_seqs(scan: layouts.Scan) -> list[int]:
    """Returns the seq of the first stage of each table that has stages."""
    return [decode_stage(*item).seq for item in layouts.firsts(scan, Tree.STAGES)]


# -- commands of the engine -----------------------------------------------------------------------


@decides(DropStages)
def decide_drop_stages(command: DropStages, state: View, now_us: int) -> Decision:
    """Drops those of some stages that were not committed meanwhile."""
    pending = _pending(state, prefix_of(command.table), command.stages)
    return catalog.decision(state, _drop(command.table, pending))


@decides(RunStage)
def decide_run_stage(command: RunStage, state: View, now_us: int) -> Decision:
    """Runs the next stage of a decided batch, if any."""
    table = catalog.by_id(state, command.table)
    known = find(state, prefix_of(command.table), command.name)
    waiting = _waiting(state, table.prefix, known) if table and known else ()
    if table is None or known is None or not waiting:
        return catalog.decision(state, ())
    return _run(table, known, waiting[0], len(waiting) - 1, state, now_us)


@decides(ForgetWriter)
def decide_forget_writer(command: ForgetWriter, state: View, now_us: int) -> Decision:
    prefix = prefix_of(command.table)
    known = find(state, prefix, command.name)
    is_kept = known is None or known.at_us >= command.before_us or _waiting(state, prefix, known)
    gone = ops.of_rows(Opcode.WRITER_GONE, command.table, [(command.name,)])
    return catalog.decision(state, () if is_kept else gone)


def sweep_dropped(state: View, table_id: int, limit: int) -> list[Op]:
    """Returns the op that removes stages, then writers, of a dropped table."""
    prefix = prefix_of(table_id)
    items = state.scan(Tree.STAGES, prefix, end_of(prefix), limit)
    if items:
        return _drop(table_id, [decode_stage(*item) for item in items])
    left = state.scan(Tree.WRITERS, prefix, end_of(prefix), limit)
    return ops.of_rows(Opcode.WRITER_GONE, table_id, [(key[PREFIX_BYTES:],) for key, _ in left])


def _drop(table_id: int, stages: Sequence[Staged]) -> list[Op]:
    """Returns the op that removes stages; committed ones already count as messages."""
    rows = [(one.seq, 0 if one.state == StageState.COMMITTED else _bytes(one)) for one in stages]
    return ops.of_rows(Opcode.STAGE_GONE, table_id, rows)


def _bytes(stage: Staged) -> int:
    """Returns the size of the op that stored a stage."""
    return _AROUND_BYTES + stage.size


# -- writers: numbered batches, each of which counts once -----------------------------------------
#
#     a writer of a table    commits stages, see `staging`
#     a writer of no table   says how far it is, in a batch with its rows: ADVANCE
#
# Only the last number of each is kept.  A writer of no table moves from its current number to a
# larger one.  A client that does not know whether a batch was applied sends it again, or asks for
# the current number and continues from there.
#
# A finished writer stays for a day, at a number that nobody expects: a batch that was given up for
# lost, and arrives late, must not find the writer new.


UNKNOWN: Final = -1  # the number of an unknown writer
OVER: Final = 2**63 - 1  # the number of a writer that is finished
NUMBERS: Final = range(OVER)  # of batches


@decides(commands.Advance)
def decide_advance(command: commands.Advance, state: View, now_us: int) -> Decision:
    check_name(command.writer)
    _check_numbers(command)
    known = find(state, layouts.prefix_of(catalog.NO_TABLE), command.writer.encode())
    at = known.batch if known else UNKNOWN
    if at != command.expected:
        text = f"writer {command.writer} is {_place(at)}, not {_place(command.expected)}"
        raise RefusedError(Code.STALE_NUMBER, text)
    if known is None:
        check_room(state)
    number = command.batch or OVER
    return catalog.decision(state, op_of(catalog.NO_TABLE, command.writer, number, now_us))


def _check_numbers(command: commands.Advance) -> None:
    if command.expected != UNKNOWN and command.expected not in NUMBERS:
        text = "the expected number is from 0 to 2^63 - 2, or -1 for a new writer"
        raise RefusedError(Code.BAD_RANGE, text)
    if command.batch and (command.batch not in NUMBERS or command.batch <= command.expected):
        text = "a writer only moves forward, up to 2^63 - 2, or to 0 when it is finished"
        raise RefusedError(Code.BAD_RANGE, text)


def _place(number: int) -> str:
    return {UNKNOWN: "new", OVER: "finished"}.get(number, f"at {number}")


# -- all writers ----------------------------------------------------------------------------------


def find(state: View, prefix: bytes, name: bytes) -> StageWriter | None:
    (data,) = state.get_many(Tree.WRITERS, [prefix + name])
    return decode_writer(data) if data else None


def check_name(name: str) -> None:
    if not 0 < len(name.encode()) <= limits.WRITER_BYTES_MAX:
        text = f"the name of a writer has 1 to {limits.WRITER_BYTES_MAX} bytes"
        raise RefusedError(Code.BAD_NAME, text)


def check_room(state: View) -> None:
    """Refuses another writer if there are too many."""
    if state.size_of(Tree.WRITERS) >= limits.WRITERS_MAX:
        text = f"there are {limits.WRITERS_MAX} writers; use the same name for each run"
        raise RefusedError(Code.QUOTA, text)


def op_of(
    table_id: int, name: str, batch: int, now_us: int, stages: Sequence[int] = ()
) -> list[Op]:
    """Returns the op that sets the batch of a writer, and the stages to run."""
    row = (batch, now_us, name.encode(), b"".join(map(SEQ.pack, stages)))
    return ops.of_rows(Opcode.WRITER, table_id, [row])


# -- staged rows: applying their ops, and keeping them --------------------------------------------
#
#     STAGE -> STREAM_COMMIT -> in a block -> STAGE_GONE        messages of a log
#     STAGE -> STAGE_DECIDED -> run        -> STAGE_GONE        other rows
#     STAGE -> too old, or committed before -> STAGE_GONE
#
# Messages of a log stay in the op that staged them: committing only gives them seqs.  So the
# segment with a stage stays as long as the index has the stage, see `engine.sealing`, and nothing
# of it has to be rewritten.


def apply_stage(writes: Writes, op: Op, place: Place) -> None:
    (at_us,), (inner,) = op.columns
    _, _, _, _, rows, _ = ops.HEADER.unpack_from(inner)
    where = (rows, place.segment, place.payload, len(inner), google_crc32c.value(inner))
    entry = STAGE.pack(*where, at_us, StageState.PENDING)
    writes.put_many(Tree.STAGES, [(seq_key(layouts.prefix_of(op.table), place.seq), entry)])
    writes.account(place.seq, len(place.data))


def apply_decided(writes: Writes, op: Op, place: Place) -> None:
    prefix, pack = layouts.prefix_of(op.table), STAGE.pack
    items = [
        (seq_key(prefix, seq), pack(*where, at_us, StageState.DECIDED))
        for seq, at_us, *where in zip(*op.columns, strict=True)
    ]
    writes.put_many(Tree.STAGES, items)


def apply_gone(writes: Writes, op: Op, place: Place) -> None:
    stages, freed = op.columns
    prefix = layouts.prefix_of(op.table)
    writes.delete_many(Tree.STAGES, [seq_key(prefix, seq) for seq in stages])
    writes.account(place.seq, 0, stages, freed)


def apply_commit(writes: Writes, op: Op, place: Place) -> None:
    (seq,), *where, (freed,) = op.columns
    pointer = [number for (number,) in where]
    prefix, last = layouts.prefix_of(op.table), place.seq + op.rows - 1
    append = layout.APPEND.pack(op.rows, *pointer, place.wall_us)
    entry = STAGE.pack(op.rows, *pointer, place.wall_us, StageState.COMMITTED)
    staged = layout.STAGED.pack(seq)
    writes.put_many(Tree.STREAM_OPS, [(seq_key(prefix, last), append + staged)])
    writes.put_many(Tree.STAGES, [(seq_key(prefix, seq), entry)])
    _, _, size, _ = pointer
    writes.account(place.seq, size, (seq,), (freed,))


def apply_writer(writes: Writes, op: Op, place: Place) -> None:
    batches, moments, names, stages = op.columns
    prefix, pack = layouts.prefix_of(op.table), WRITER.pack
    items = [
        (prefix + name, pack(batches[at], moments[at], place.seq + at) + stages[at])
        for at, name in enumerate(names.rows())
    ]
    writes.put_many(Tree.WRITERS, items)


def apply_writer_gone(writes: Writes, op: Op, place: Place) -> None:
    (names,) = op.columns
    prefix = layouts.prefix_of(op.table)
    writes.delete_many(Tree.WRITERS, [prefix + name for name in names.rows()])


def keep_writer(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    return catalog.keep_named(op, place, state, Tree.WRITERS, lambda data: decode_writer(data).held)
