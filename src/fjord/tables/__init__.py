"""Tables: what ops mean.  Pure: no clock, no file, no randomness.

Three verbs.  **decide**(command, state, now) looks things up, may refuse, and returns resolved ops
and a reply; it runs once, at the writer.  **apply**(writes, op, place) only writes, and may not
refuse; it runs live, in recovery, on replicas and in tests.  **keep**(op, place, state, now) says
again, as new ops, what of an op still holds; that is how the journal is packed.  All are found by
dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from fjord import commands
from fjord.ops import Op, Opcode, Place
from fjord.tables import (
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
from fjord.tables.state import Decision, State, Writes

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


def _decide_as_of(command: commands.AsOf, state: State, now_us: int) -> Decision:
    return snapshots.decide_as_of(command, state, DECIDE)


DECIDE: Final[dict[type, Callable[[Any, State, int], Decision]]] = {
    commands.Nop: catalog.decide_nop,
    commands.Set: kv_write.decide_set,
    commands.Get: kv_read.decide_get,
    commands.Touch: kv_read.decide_touch,
    commands.Delete: kv_write.decide_delete,
    commands.Modify: kv_change.decide_modify,
    commands.Rename: kv_change.decide_rename,
    commands.Lock: kv_locks.decide_lock,
    commands.Unlock: kv_locks.decide_unlock,
    commands.Range: kv_range.decide_range,
    commands.Push: job_push.decide_push,
    commands.Next: job_next.decide_next,
    commands.Finish: job_finish.decide_finish,
    commands.Extend: job_finish.decide_extend,
    commands.Fail: job_finish.decide_fail,
    commands.Cancel: job_change.decide_cancel,
    commands.Reschedule: job_change.decide_reschedule,
    commands.Bury: job_change.decide_bury,
    commands.Revive: job_change.decide_revive,
    commands.Discard: job_change.decide_discard,
    commands.Peek: job_read.decide_peek,
    commands.Find: job_read.decide_find,
    commands.CountJobs: job_read.decide_count,
    commands.Append: stream_append.decide_append,
    commands.Erase: stream_append.decide_erase,
    commands.Read: stream_read.decide_read,
    commands.Subscribe: stream_subscribers.decide_subscribe,
    commands.Acknowledge: stream_subscribers.decide_acknowledge,
    commands.Seek: stream_subscribers.decide_seek,
    commands.Rest: stream_subscribers.decide_rest,
    commands.Unsubscribe: stream_subscribers.decide_unsubscribe,
    commands.ListSubscribers: stream_subscribers.decide_list,
    commands.Lag: stream_subscribers.decide_lag,
    commands.OpenSnapshot: snapshots.decide_open,
    commands.CloseSnapshot: snapshots.decide_close,
    commands.AsOf: _decide_as_of,
    commands.ListBlocks: stream_history.decide_list_blocks,
    commands.ReplaceBlocks: block_replacing.decide_replace_blocks,
    commands.Stage: staging.decide_stage,
    commands.CommitStages: staging.decide_commit,
    commands.AskWriter: staging.decide_ask,
    commands.Advance: writers.decide_advance,
    commands.CreateTable: catalog.decide_create_table,
    commands.DropTable: catalog.decide_drop_table,
    commands.ListTables: catalog.decide_list_tables,
    # What only a writer asks of itself.
    catalog.TakeOver: catalog.decide_take_over,
    catalog.Sweep: sweeping.decide_sweep,
    generations.Turn: turning.decide_turn,
    kv_expiry.Expire: kv_expiry.decide_expire,
    job_upkeep.ExpireJobs: job_upkeep.decide_expire_jobs,
    job_upkeep.MoveJobs: job_upkeep.decide_move_jobs,
    job_leases.EndLeases: job_leases.decide_end_leases,
    clients.ForgetClients: clients.decide_forget_clients,
    staging.DropStages: staging.decide_drop_stages,
    staging.RunStage: staging.decide_run_stage,
    staging.ForgetWriter: staging.decide_forget_writer,
    snapshots.EndSnapshots: snapshots.decide_end,
    stream_history.BeginSeal: stream_history.decide_begin_seal,
    stream_history.EndSeal: stream_history.decide_end_seal,
    stream_history.Retire: stream_history.decide_retire,
    stream_history.Gone: stream_history.decide_gone,
    packing.Pack: packing.decide_pack,
    packing.Begin: packing.decide_begin,
}

KEEP: Final[dict[Opcode, Callable[[Op, Place, State, int], Sequence[Op]]]] = packing.KEEP

# Commands that never change anything need no write transaction.
READS: Final[frozenset[type]] = frozenset(
    {
        commands.Nop,
        commands.Get,
        commands.Range,
        commands.Peek,
        commands.Find,
        commands.CountJobs,
        commands.ListTables,
        commands.ListSubscribers,
        commands.Lag,
        commands.AsOf,
        commands.ListBlocks,
        commands.AskWriter,
    }
)

# Commands that must work on a full disk: they free space, or need next to none.
FREES: Final[frozenset[type]] = frozenset(
    {
        commands.Delete,
        commands.Unlock,
        commands.Lock,
        commands.DropTable,
        commands.Next,
        commands.Finish,
        commands.Cancel,
        commands.Discard,
        commands.Read,
        commands.Acknowledge,
        commands.Unsubscribe,
        commands.CloseSnapshot,
        snapshots.EndSnapshots,
        stream_history.BeginSeal,
        stream_history.EndSeal,
        stream_history.Retire,
        stream_history.Gone,
        catalog.TakeOver,
        catalog.Sweep,
        generations.Turn,
        kv_expiry.Expire,
        job_upkeep.ExpireJobs,
        job_leases.EndLeases,
        clients.ForgetClients,
        staging.DropStages,
        staging.ForgetWriter,
        packing.Begin,
    }
)

# Neighbours that share a key may be merged into one command before they are decided; a reply to
# that one is the reply to each.  Where it is refused, each is decided alone.
MERGE_KEY: Final[dict[type, Callable[[Any], Hashable]]] = {commands.Set: kv_write.merge_key}
MERGE: Final[dict[type, Callable[[Sequence[Any]], Any]]] = {commands.Set: kv_write.merge}
