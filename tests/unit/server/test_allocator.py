from __future__ import annotations

import subprocess
import sys

CODE = """
import resource
from fjord.server.allocator import keep_freed_buffers

if {kept}:
    assert keep_freed_buffers()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    bytearray(4 * 2**20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*, kept: bool) -> int:
    """Returns how many pages a process faults in that takes a buffer over and over."""
    code = CODE.format(kept=kept)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_buffers_that_are_used_again_are_not_faulted_in_again() -> None:
    pages = 4 * 2**20 // 4096
    assert faults(kept=True) < 3 * pages
