"""How the daemon's memory is managed by the C library, for buffers of some MiB that come and go.

Such a buffer is given back to the kernel when it is freed, unless told otherwise, and every page of
the next one is then faulted in and zeroed again.  For batches of 1 MiB that takes longer than all
else that is done with them.
"""

from __future__ import annotations

import ctypes
from typing import Final

from fjord import limits

# Numbers of mallopt(3), of glibc.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
# What may be kept at the end of the heap, and what is taken from the heap at all: a whole frame.
_KEPT_BYTES: Final = 32 * limits.MIB
_HEAP_BYTES: Final = 32 * limits.MIB


def keep_freed_buffers() -> bool:
    """Lets freed buffers be used again; says whether the C library knows how."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    kept = mallopt(_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, _HEAP_BYTES)
    return bool(kept)
