"""Tables: what ops mean.  Pure: no clock, no file, no randomness.

Three verbs.  **decide**(command, state, now) looks things up, may refuse, and returns resolved ops
and a reply; it runs once, at the writer.  **apply**(writes, op, place) only writes, and may not
refuse; it runs live, in recovery, on replicas and in tests.  **keep**(op, place, state, now) says
again, as new ops, what of an op still holds; that is how the journal is packed.  A function says
with `@decides` which command it decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fjord.ops import Op, Opcode, Place
from fjord.tables import (  # noqa: F401 - each says what it decides
    block_replacing,
    catalog,
    clients,
    generations,
    job,
    job_change,
    job_finish,
    job_leases,
    job_next,
    job_push,
    job_read,
    job_upkeep,
    kv,
    kv_change,
    kv_expiry,
    kv_locks,
    kv_range,
    kv_read,
    kv_write,
    packing,
    snapshots,
    stage,
    staging,
    stream,
    stream_append,
    stream_history,
    stream_read,
    stream_subscribers,
    sweeping,
    turning,
    writers,
)
from fjord.tables.state import State, Writes

APPLY: Final[dict[Opcode, Callable[[Writes, Op, Place], None]]] = {
    Opcode.TAKEOVER: catalog.apply_takeover,
    Opcode.CREATE_TABLE: catalog.apply_create_table,
    Opcode.DROP_TABLE: catalog.apply_drop_table,
    Opcode.FORGET_TABLE: catalog.apply_forget_table,
    Opcode.PACKED: catalog.apply_packed,
    Opcode.LOST: catalog.apply_lost,
    Opcode.ANSWERED: clients.apply_answered,
    Opcode.FORGET_CLIENT: clients.apply_forget_client,
    Opcode.KV_INSERT: kv.apply_insert,
    Opcode.KV_SET: kv.apply_set,
    Opcode.KV_MOVE: kv.apply_move,
    Opcode.KV_DELETE: kv.apply_delete,
    Opcode.KV_EXPIRE: kv.apply_expire,
    Opcode.KV_MARK: kv.apply_mark,
    Opcode.KV_UNSCHEDULE: kv.apply_unschedule,
    Opcode.KV_PURGE: kv.apply_purge,
    Opcode.KV_LINK: kv.apply_link,
    Opcode.JOB_ADD: job.apply_add,
    Opcode.JOB_REPLACE: job.apply_replace,
    Opcode.JOB_MOVE: job.apply_move,
    Opcode.JOB_TAKE: job.apply_take,
    Opcode.JOB_DONE: job.apply_done,
    Opcode.JOB_TOUCH: job.apply_touch,
    Opcode.JOB_WAIT: job.apply_wait,
    Opcode.JOB_BURY: job.apply_bury,
    Opcode.JOB_REMOVE: job.apply_remove,
    Opcode.JOB_LEASE: job.apply_lease,
    Opcode.JOB_UNLEASE: job.apply_unlease,
    Opcode.STREAM_APPEND: stream.apply_append,
    Opcode.STREAM_PUT: stream.apply_put,
    Opcode.STREAM_ERASE: stream.apply_erase,
    Opcode.STREAM_MOVE: stream.apply_move,
    Opcode.STREAM_PURGE: stream.apply_purge,
    Opcode.STREAM_FORGET: stream.apply_forget,
    Opcode.SUBSCRIBER: stream.apply_subscriber,
    Opcode.UNSUBSCRIBE: stream.apply_unsubscribe,
    Opcode.SNAPSHOT: stream.apply_snapshot,
    Opcode.SNAPSHOT_END: stream.apply_snapshot_end,
    Opcode.VERSION: stream.apply_version,
    Opcode.VERSION_DROP: stream.apply_version_drop,
    Opcode.HISTORY: stream.apply_history,
    Opcode.BLOCK: stream.apply_block,
    Opcode.BLOCK_GONE: stream.apply_block_gone,
    Opcode.STAGE: stage.apply_stage,
    Opcode.STAGE_DECIDED: stage.apply_decided,
    Opcode.STAGE_GONE: stage.apply_gone,
    Opcode.STREAM_COMMIT: stage.apply_commit,
    Opcode.WRITER: stage.apply_writer,
    Opcode.WRITER_GONE: stage.apply_writer_gone,
    Opcode.STREAM_PUT_AT: stream.apply_put_at,
    Opcode.GENERATION: generations.apply_generation,
    Opcode.GENERATION_GONE: generations.apply_gone,
}


KEEP: Final[dict[Opcode, Callable[[Op, Place, State, int], Sequence[Op]]]] = packing.KEEP
