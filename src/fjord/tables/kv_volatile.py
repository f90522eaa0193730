"""Values with persist=0: how much of them may be in memory."""

from __future__ import annotations

from fjord import limits
from fjord.tables.state import State, VolatileValue, volatile_bytes

_Volatile = dict[bytes, VolatileValue | None]


def within_quota(kept: _Volatile, state: State, now_us: int) -> _Volatile | None:
    """Returns the changes that keep the quota, without expired values if need be; else None."""
    added = sum(volatile_bytes(key, value) for key, value in kept.items() if value)
    if state.volatile_bytes + added <= limits.VOLATILE_BYTES_MAX:
        return kept
    gone: _Volatile = {
        key: None for key, value in state.volatile.items() if 0 < value.expires_at_us <= now_us
    }
    replaced = [key for key in gone.keys() | kept.keys() if key in state.volatile]
    freed = sum(volatile_bytes(key, state.volatile[key]) for key in replaced)
    if state.volatile_bytes - freed + added > limits.VOLATILE_BYTES_MAX:
        return None
    return gone | kept
