"""A node's own blocks: written by a child process that can be ended, read, removed, looked for.

What a location needs in libraries is loaded when it is first used, and pyarrow by the child alone.
"""

from __future__ import annotations

import importlib.util
import subprocess
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fjord.blocks import child
from fjord.errors import ClosedError, FjordError
from fjord.history import Block, SealPlan

if TYPE_CHECKING:
    from fjord.blocks.cold import Cold
    from fjord.blocks.store import Store

# Without these there are no blocks.
_NEEDED: Final = ("fsspec", "pyarrow")


def missing_libraries() -> list[str]:
    """Returns what is needed for blocks and not installed; imports none of it."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


class Shelf:
    """Blocks at a location; one thread writes, any may look or stop."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._changing = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None  # that writes now
        self._is_stopped = False

    def write(self, journal: str, plan: SealPlan) -> list[Block]:
        """Writes the blocks of a plan, durably; those that are there already are kept.

        Raises:
            CorruptionError: if the journal is damaged.
            ClosedError: if it was stopped.
            FjordError: if the blocks could not be written.
        """
        store = self._store()
        if not store.is_shared:  # no other process would see them
            from fjord.blocks import sealing  # noqa: PLC0415 - pyarrow, which is large

            return sealing.write_blocks(journal, plan, store)
        try:
            return child.run_child(journal, plan, self.location, begun=self._begin)
        except FjordError as error:
            if self._is_stopped:
                raise ClosedError from error
            raise
        finally:
            with self._changing:
                self._child = None

    def remove(self, blocks: Sequence[Block], *, wipes: bool = False) -> None:
        """Ensures that blocks are not there any more; `wipes`: overwritten before, where we can."""
        for block in blocks:
            self._store().remove(block.name, wipes=wipes)

    def missing(self, blocks: Sequence[Block]) -> list[str]:
        """Returns the names of those whose metadata is not there."""
        store = self._store()
        folders = {block.name.partition("/")[0] for block in blocks}
        there = {name for folder in folders for name in store.names(folder)}
        return [block.name for block in blocks if block.name not in there]

    def make_cold(self) -> Cold:
        """Returns a reader of these blocks; it takes a while to load what it needs."""
        from fjord.blocks.cold import Cold  # noqa: PLC0415 - pyarrow, only where a block is read

        return Cold(self._store())

    def stop(self) -> None:
        """Ends a write that is under way, and every later one."""
        with self._changing:
            self._is_stopped = True
            if self._child is not None:
                self._child.kill()

    def _begin(self, process: subprocess.Popen[bytes]) -> None:
        with self._changing:
            if self._is_stopped:
                raise ClosedError
            self._child = process

    def _store(self) -> Store:
        from fjord.blocks.store import Store  # noqa: PLC0415 - fsspec, only where there are blocks

        return Store(self.location)
