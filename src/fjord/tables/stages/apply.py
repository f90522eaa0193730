"""Staged rows: what their ops do to the index, and what of them is said again.

    STAGE -> STREAM_COMMIT -> in a block -> STAGE_GONE        messages of a log
    STAGE -> STAGE_DECIDED -> run        -> STAGE_GONE        all else
    STAGE -> too old, or committed before -> STAGE_GONE

Messages of a log rest in the op that staged them: to commit them is to give them seqs.  So the
segment with a stage stays as long as the index has the stage, see `engine.sealing`, and nothing of
it has to be said again.
"""

from __future__ import annotations

from collections.abc import Sequence

import google_crc32c

from fjord import layouts, ops
from fjord.ops import Op, Place
from fjord.tables import catalog
from fjord.tables.stages import layout as stage_entry
from fjord.tables.stages.layout import StageState
from fjord.tables.state import State, Tree, Writes
from fjord.tables.streams import layout
from fjord.tables.streams.layout import seq_key


def apply_stage(writes: Writes, op: Op, place: Place) -> None:
    (at_us,), (inner,) = op.columns
    _, _, _, _, rows, _ = ops.HEADER.unpack_from(inner)
    where = (rows, place.segment, place.payload, len(inner), google_crc32c.value(inner))
    entry = stage_entry.STAGE.pack(*where, at_us, StageState.PENDING)
    writes.put_many(Tree.STAGES, [(seq_key(layouts.prefix_of(op.table), place.seq), entry)])
    writes.account(place.seq, len(place.data))


def apply_decided(writes: Writes, op: Op, place: Place) -> None:
    prefix, pack = layouts.prefix_of(op.table), stage_entry.STAGE.pack
    writes.put_many(
        Tree.STAGES,
        [
            (seq_key(prefix, seq), pack(*where, at_us, StageState.DECIDED))
            for seq, at_us, *where in zip(*op.columns, strict=True)
        ],
    )


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
    entry = stage_entry.STAGE.pack(op.rows, *pointer, place.wall_us, StageState.COMMITTED)
    staged = layout.STAGED.pack(seq)
    writes.put_many(Tree.STREAM_OPS, [(seq_key(prefix, last), append + staged)])
    writes.put_many(Tree.STAGES, [(seq_key(prefix, seq), entry)])
    _, _, size, _ = pointer
    writes.account(place.seq, size, (seq,), (freed,))


def apply_writer(writes: Writes, op: Op, place: Place) -> None:
    batches, moments, names, stages = op.columns
    prefix, pack = layouts.prefix_of(op.table), stage_entry.WRITER.pack
    writes.put_many(
        Tree.WRITERS,
        [
            (prefix + name, pack(batches[at], moments[at], place.seq + at) + stages[at])
            for at, name in enumerate(names.rows())
        ],
    )


def apply_writer_gone(writes: Writes, op: Op, place: Place) -> None:
    (names,) = op.columns
    prefix = layouts.prefix_of(op.table)
    writes.delete_many(Tree.WRITERS, [prefix + name for name in names.rows()])


def keep_writer(op: Op, place: Place, state: State, now_us: int) -> Sequence[Op]:
    return catalog.keep_named(
        op, place, state, Tree.WRITERS, lambda data: stage_entry.decode_writer(data).held
    )
