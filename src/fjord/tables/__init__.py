"""Tables: what ops mean.  Pure: no clock, no file, no randomness.

Three verbs.  **decide**(command, state, now) looks things up, may refuse, and returns resolved ops
and a reply; it runs once, at the writer.  **apply**(writes, op, place) only writes, and may not
refuse; it runs live, in recovery, on replicas and in tests.  **keep**(op, place, state, now)
writes what is still live of an op again, as new ops; packing the journal works this way.  The
decorator `@decides` names the command that a function decides; `meaning` has one row per op.
"""

from __future__ import annotations

# Importing a module registers the commands that it decides.
import fjord.tables.catalog
import fjord.tables.clients
import fjord.tables.generations
import fjord.tables.jobs.decide
import fjord.tables.jobs.keep
import fjord.tables.jobs.push
import fjord.tables.jobs.read
import fjord.tables.jobs.take
import fjord.tables.kv.decide
import fjord.tables.kv.keep
import fjord.tables.kv.read
import fjord.tables.snapshots
import fjord.tables.staging
import fjord.tables.streams.decide
import fjord.tables.streams.history
import fjord.tables.streams.subscribers
import fjord.tables.upkeep  # noqa: F401
