"""Tables: what ops mean.  Pure: no clock, no file, no randomness.

Three verbs.  **decide**(command, state, now) looks things up, may refuse, and returns resolved ops
and a reply; it runs once, at the writer.  **apply**(writes, op, place) only writes, and may not
refuse; it runs live, in recovery, on replicas and in tests.  **keep**(op, place, state, now) says
again, as new ops, what of an op still holds; that is how the journal is packed.  A function says
with `@decides` which command it decides; `meaning` has one row per op.
"""

from __future__ import annotations

# ruff: noqa: F401, F811 - each says what it decides
from fjord.tables import catalog, clients, generations, packing, snapshots, sweeping, turning
from fjord.tables.jobs import change, finish, leases, push, read, take, upkeep
from fjord.tables.kv import change, expiry, locks, ranges, read, write  # type: ignore[no-redef]
from fjord.tables.stages import stage, writers
from fjord.tables.streams import append, blocks, history, read, subscribers  # type: ignore[no-redef]
