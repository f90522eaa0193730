"""The child process that writes blocks: see `child` for what it reads and prints."""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

from fjord.blocks import child
from fjord.errors import FjordError
from fjord.history import Block

# Serving comes first, but sealing has to get on: at the lowest priority a busy machine leaves it
# some hundredth of a core, and the journal would grow faster than it is sealed.
_NICE: Final = 10


def main() -> int:
    """Writes the blocks of the plan on standard input; returns the exit code."""
    os.nice(_NICE)
    parent = os.getppid()

    def tell(block: Block) -> None:
        if os.getppid() != parent:
            raise FjordError("whoever wanted these blocks is gone")
        _print(child.block_line(block))

    try:
        request = sys.stdin.buffer.readline()
        if request.endswith(b"\n"):  # whoever asks keeps the other end open while it waits
            threading.Thread(target=_end_with_parent, daemon=True).start()
        journal_directory, plan, location = child.read_request(request)
        # These libraries take a while to load, which is best done at a low priority.
        from fjord.blocks.store import Store  # noqa: PLC0415
        from fjord.blocks.writer import write_blocks  # noqa: PLC0415

        found = write_blocks(journal_directory, plan, Store(location), progress=tell)
    except (FjordError, OSError, ImportError, ValueError, TypeError, KeyError) as error:
        _print(child.error_line(error))
        return 1
    _print(child.end_line(len(found)))
    return 0


def _end_with_parent() -> None:
    """Ends this process, whatever it does, when the one that wanted the blocks is gone."""
    while os.read(sys.stdin.fileno(), 4096):
        pass  # nothing more is said
    os._exit(1)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
