"""The meaning of each op: how it is applied, what of it is kept when packing, and its effects.

One row per op.  The columns of an op and its name in a history are in its row of `opcodes`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog, clients, generations
from fjord.tables import staging as stage
from fjord.tables.jobs import apply as job
from fjord.tables.jobs import keep as upkeep
from fjord.tables.kv import apply as kv
from fjord.tables.kv import keep as kv_keep
from fjord.tables.state import Tree, View, Writes
from fjord.tables.streams import apply as stream
from fjord.tables.streams import history
from fjord.tables.streams import keep as stream_keep


class Note(enum.Enum):
    """What the caller of `apply` must take into account."""

    TABLES = enum.auto()  # the set of tables changed
    DROP = enum.auto()  # a table was dropped
    GENERATIONS = enum.auto()  # the set of generations changed
    GIVEN_BACK = enum.auto()  # a generation is gone, and the space before it can be freed
    SNAPSHOTS = enum.auto()  # the set of snapshots changed
    SWEEP = enum.auto()  # there may be something to sweep
    BLOCKS = enum.auto()  # cold blocks changed
    UNCOUNTED = enum.auto()  # something that never counted among the live bytes is removed
    STAGES = enum.auto()  # something was staged, or a stage is gone
    MESSAGES = enum.auto()  # a stream got messages
    ARRIVALS = enum.auto()  # jobs wait that did not before, or with other dates
    TAKEN = enum.auto()  # jobs are taken
    DEATHS = enum.auto()  # jobs are dead
    LINKS = enum.auto()  # values got further keys
    CHANGES = enum.auto()  # values of keys changed; listeners are notified


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of an op."""

    apply: Callable[[Writes, Op, Place], None]
    # Writes what is still live of it again, as new ops, when its segment is packed.
    keep: Callable[[Op, Place, View, int], Sequence[Op]] = catalog.keep_never
    # Each key is in at most one row of such ops, or in several equal ones: when they are rewritten,
    # rows of one table are combined.
    gathers: bool = False
    due: tuple[Tree, str] | None = None  # the tree that its dates go to, and the column with them
    puts: Tree | None = None  # the new tree of jobs that were in another one
    # The columns with the keys whose entries it replaces, and with the seqs that messages lose.
    replaces: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


_KV: Final = ("key",)
_STREAM: Final = ("key", "was")
_KV_DUE: Final = (Tree.KV_EXPIRY, "expires_at_us")
_JOB_DUE: Final = (Tree.JOBS_EXPIRY, "expires_at_us")
_IMAGE_DUE: Final = (Tree.JOBS_EXPIRY, "image")
_LEASE_DUE: Final = (Tree.JOBS_LEASES, "deadline_us")

MEANING: Final[dict[Opcode, Meaning]] = {
    Opcode.TAKEOVER: Meaning(catalog.apply_takeover, catalog.keep_always),
    Opcode.CREATE_TABLE: Meaning(
        catalog.apply_create_table, catalog.keep_create_table, notes=(Note.TABLES,)
    ),
    Opcode.DROP_TABLE: Meaning(
        catalog.apply_drop_table,
        catalog.keep_drop_table,
        notes=(Note.TABLES, Note.DROP, Note.SWEEP),
    ),
    Opcode.FORGET_TABLE: Meaning(catalog.apply_forget_table),
    Opcode.PACKED: Meaning(catalog.apply_packed),
    Opcode.LOST: Meaning(catalog.apply_lost, catalog.keep_lost),
    Opcode.ANSWERED: Meaning(clients.apply_answered, clients.keep_answered),
    Opcode.FORGET_CLIENT: Meaning(clients.apply_forget_client, notes=(Note.UNCOUNTED,)),
    Opcode.KV_INSERT: Meaning(kv.apply_insert, kv_keep.keep_rows, notes=(Note.CHANGES,)),
    Opcode.KV_SET: Meaning(
        kv.apply_set, kv_keep.keep_rows, due=_KV_DUE, replaces=_KV, notes=(Note.CHANGES,)
    ),
    Opcode.KV_MOVE: Meaning(kv.apply_move, kv_keep.keep_moved, gathers=True, due=_KV_DUE),
    Opcode.KV_DELETE: Meaning(
        kv.apply_delete, kv_keep.keep_rows, replaces=_KV, notes=(Note.CHANGES,)
    ),
    Opcode.KV_EXPIRE: Meaning(
        kv.apply_expire, kv_keep.keep_rows, due=_KV_DUE, replaces=_KV, notes=(Note.CHANGES,)
    ),
    Opcode.KV_MARK: Meaning(kv.apply_mark, kv_keep.keep_marks, gathers=True, due=_KV_DUE),
    Opcode.KV_UNSCHEDULE: Meaning(kv.apply_unschedule, gathers=True),
    Opcode.KV_PURGE: Meaning(kv.apply_purge, gathers=True, replaces=_KV, notes=(Note.CHANGES,)),
    Opcode.KV_LINK: Meaning(kv.apply_link, kv_keep.keep_rows, replaces=_KV, notes=(Note.LINKS,)),
    # Jobs are moved before their segment is examined, see `jobs.keep`; only notes of leases are
    # left to keep.
    Opcode.JOB_ADD: Meaning(job.apply_add, due=_JOB_DUE, notes=(Note.ARRIVALS,)),
    Opcode.JOB_REPLACE: Meaning(job.apply_replace, due=_JOB_DUE, notes=(Note.ARRIVALS,)),
    Opcode.JOB_MOVE: Meaning(job.apply_move, due=_IMAGE_DUE),
    Opcode.JOB_TAKE: Meaning(
        job.apply_take, upkeep.keep_lease, due=_LEASE_DUE, puts=Tree.JOBS_TAKEN, notes=(Note.TAKEN,)
    ),
    Opcode.JOB_DONE: Meaning(job.apply_done),
    Opcode.JOB_TOUCH: Meaning(
        job.apply_touch, upkeep.keep_lease, due=_LEASE_DUE, notes=(Note.TAKEN,)
    ),
    Opcode.JOB_WAIT: Meaning(
        job.apply_wait, due=_IMAGE_DUE, puts=Tree.JOBS_READY, notes=(Note.ARRIVALS,)
    ),
    Opcode.JOB_BURY: Meaning(job.apply_bury, puts=Tree.JOBS_DEAD, notes=(Note.DEATHS,)),
    Opcode.JOB_REMOVE: Meaning(job.apply_remove),
    Opcode.JOB_LEASE: Meaning(job.apply_lease, upkeep.keep_lease, due=_LEASE_DUE),
    Opcode.JOB_UNLEASE: Meaning(job.apply_unlease),
    # Appends are in blocks before their segment can be removed.
    Opcode.STREAM_APPEND: Meaning(stream.apply_append, notes=(Note.MESSAGES,)),
    Opcode.STREAM_PUT: Meaning(
        stream.apply_put, stream_keep.keep_messages, replaces=_STREAM, notes=(Note.MESSAGES,)
    ),
    Opcode.STREAM_ERASE: Meaning(
        stream.apply_erase, stream_keep.keep_messages, replaces=_STREAM, notes=(Note.MESSAGES,)
    ),
    Opcode.STREAM_MOVE: Meaning(stream.apply_move, stream_keep.keep_messages, gathers=True),
    Opcode.STREAM_PURGE: Meaning(stream.apply_purge, gathers=True, replaces=("key", "row")),
    Opcode.STREAM_FORGET: Meaning(stream.apply_forget),
    Opcode.SUBSCRIBER: Meaning(stream.apply_subscriber, stream_keep.keep_subscriber),
    Opcode.UNSUBSCRIBE: Meaning(stream.apply_unsubscribe),
    Opcode.SNAPSHOT: Meaning(
        stream.apply_snapshot,
        stream_keep.keep_snapshot,
        due=(Tree.SNAPSHOTS, "deadline_us"),
        notes=(Note.SNAPSHOTS,),
    ),
    Opcode.SNAPSHOT_END: Meaning(stream.apply_snapshot_end, notes=(Note.SNAPSHOTS, Note.SWEEP)),
    Opcode.VERSION: Meaning(stream.apply_version, stream_keep.keep_version),
    Opcode.VERSION_DROP: Meaning(stream.apply_version_drop),
    Opcode.HISTORY: Meaning(
        stream.apply_history, history.keep_history, notes=(Note.BLOCKS, Note.SWEEP)
    ),
    Opcode.BLOCK: Meaning(stream.apply_block, history.keep_block, notes=(Note.BLOCKS, Note.SWEEP)),
    Opcode.BLOCK_GONE: Meaning(stream.apply_block_gone, notes=(Note.BLOCKS, Note.SWEEP)),
    # A segment with a stage stays as long as the stage.
    Opcode.STAGE: Meaning(stage.apply_stage, notes=(Note.STAGES,)),
    Opcode.STAGE_DECIDED: Meaning(stage.apply_decided),
    Opcode.STAGE_GONE: Meaning(stage.apply_gone, notes=(Note.STAGES,)),
    Opcode.STREAM_COMMIT: Meaning(stage.apply_commit, notes=(Note.MESSAGES,)),
    Opcode.WRITER: Meaning(stage.apply_writer, stage.keep_writer),
    Opcode.WRITER_GONE: Meaning(stage.apply_writer_gone),
    Opcode.STREAM_PUT_AT: Meaning(
        stream.apply_put_at, stream_keep.keep_messages, replaces=_STREAM, notes=(Note.MESSAGES,)
    ),
    Opcode.GENERATION: Meaning(
        generations.apply_generation, generations.keep_generation, notes=(Note.GENERATIONS,)
    ),
    Opcode.GENERATION_GONE: Meaning(
        generations.apply_gone, notes=(Note.GENERATIONS, Note.GIVEN_BACK)
    ),
}
