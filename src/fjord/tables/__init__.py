"""Tables: what ops mean.  Pure: no clock, no file, no randomness.

Three verbs.  **decide**(command, state, now) looks things up, may refuse, and returns resolved ops
and a reply; it runs once, at the writer.  **apply**(writes, op, place) only writes, and may not
refuse; it runs live, in recovery, on replicas and in tests.  **keep**(op, place, state, now) says
again, as new ops, what of an op still holds; that is how the journal is packed.  A function says
with `@decides` which command it decides; `meaning` has one row per op.
"""

from __future__ import annotations

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
