"""Sealing in a child process: its request and its answer.

    parent  -- request: one JSON object, a line on standard input -->  python -m fjord.blocks.child
            <-- a JSON object a line: {"block": ...}* then {"end": count} or {"error": ...} --

If the request ends with a newline, the child ends when standard input is closed: a parent that is
killed leaves no child behind.

Writing blocks takes a core for a while.  In the process of a daemon that would halve its rates and
delay all requests; a child at a low priority takes little of what others need.  The parent needs
neither pyarrow nor fsspec.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from fjord.errors import ClosedError, CorruptionError, FjordError
from fjord.history import Block, SealedRange, SealPlan

if TYPE_CHECKING:
    from fjord.blocks.reader import BlockReader
    from fjord.blocks.store import Store


# Serving comes first, but sealing has to make progress: at the lowest priority a busy machine gives
# it about a hundredth of a core, and the journal would grow faster than it is sealed.
_NICE: Final = 10
# How many of the last bytes of its standard error are kept.
_STDERR_BYTES_MAX: Final = 4096


def argv() -> list[str]:
    """Returns the command line of a child."""
    return [sys.executable, "-P", "-m", "fjord.blocks.child"]


def request(journal_directory: str, plan: SealPlan, location: str) -> bytes:
    """Encodes the request that a child reads from standard input."""
    ranges = [one._asdict() for one in plan.ranges]
    found = {"journal": journal_directory, "location": location, "shard": plan.shard.hex()}
    return json.dumps({**found, "ranges": ranges}).encode()


def read_request(data: bytes) -> tuple[str, SealPlan, str]:
    """Returns the journal's directory, the plan and the location."""
    found: Any = json.loads(data)
    ranges = [SealedRange(**one) for one in found["ranges"]]
    return found["journal"], SealPlan(bytes.fromhex(found["shard"]), ranges), found["location"]


def read_answer(lines: Iterable[bytes], exit_code: int, complaints: str = "") -> list[Block]:
    """Returns all blocks that a child has written, after its end.

    Args:
        lines: its standard output.
        complaints: its standard error.

    Raises:
        CorruptionError: if the journal is damaged.
        FjordError: if it failed for any other reason.
    """
    blocks: list[Block] = []
    count, problem = None, ""
    for line in lines:
        try:
            found: Any = json.loads(line)
            if "block" in found:
                blocks.append(Block(**found["block"]))
            elif "reason" in found:
                raise CorruptionError(found["path"], found["offset"], found["reason"])
            elif "error" in found:
                problem = f"blocks could not be written: {found['error']}"
            else:
                count = found["end"]
        except (ValueError, TypeError, KeyError):
            problem = f"unexpected output of a child that writes blocks: {line[:100]!r}"
    if not problem and (exit_code or count != len(blocks)):
        problem = f"a child that writes blocks ended with exit code {exit_code} and no message"
    if problem:
        raise FjordError(f"{problem}: {complaints.splitlines()[-1]}" if complaints else problem)
    return blocks


def run_child(
    journal_directory: str,
    plan: SealPlan,
    location: str,
    *,
    begun: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> list[Block]:
    """Writes the blocks of a plan by a child process, and waits for it.

    Args:
        location: of the store; must be visible to other processes.
        begun: called with the child, so that it can be ended.

    Raises:
        CorruptionError: if the journal is damaged.
        FjordError: if the blocks could not be written.
    """
    complaints = bytearray()
    with subprocess.Popen(  # noqa: S603 - it is this very program
        argv(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        if begun is not None:
            begun(process)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        reading = threading.Thread(
            target=_read_tail,
            args=(process.stderr, complaints),
            name="fjord-seal-stderr",
            daemon=True,
        )
        reading.start()
        try:
            process.stdin.write(request(journal_directory, plan, location) + b"\n")
            process.stdin.flush()  # kept open: the child ends if this process does
        except BrokenPipeError:  # its exit code says more
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()  # which tries to write the rest
        lines = list(process.stdout)
        reading.join()
    return read_answer(lines, process.returncode, complaints.decode(errors="replace").strip())


def _read_tail(file: IO[bytes], tail: bytearray) -> None:
    """Reads a file to its end, and keeps the last bytes."""
    while data := file.read(_STDERR_BYTES_MAX):
        tail += data
        del tail[:-_STDERR_BYTES_MAX]


# -------------------------------------------------------------------------------------------------
#
# The blocks of a node: written by a child process that can be ended; read, removed, checked.
#
# The libraries for a location are imported on first use, and pyarrow by the child alone.


# Required for blocks.
_NEEDED: Final = ("fsspec", "pyarrow")


def missing_libraries() -> list[str]:
    """Returns the required libraries that are not installed, without importing them."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


class NodeBlocks:
    """Blocks at a location; one thread writes, any thread may check or stop."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._changing = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None  # the running one
        self._is_stopped = False

    def write(self, journal: str, plan: SealPlan) -> list[Block]:
        """Writes the blocks of a plan, durably; existing ones are kept.

        Raises:
            CorruptionError: if the journal is damaged.
            ClosedError: if it was stopped.
            FjordError: if the blocks could not be written.
        """
        store = self._store()
        if not store.is_shared:  # other processes would not see them
            from fjord.blocks import writer  # noqa: PLC0415 - pyarrow, which is large

            return writer.write_blocks(journal, plan, store)
        try:
            return run_child(journal, plan, self.location, begun=self._begin)
        except FjordError as error:
            if self._is_stopped:
                raise ClosedError from error
            raise
        finally:
            with self._changing:
                self._child = None

    def remove(self, blocks: Sequence[Block], *, wipes: bool = False) -> None:
        """Ensures that blocks do not exist; `wipes`: they are overwritten first, if possible."""
        for block in blocks:
            self._store().remove(block.name, wipes=wipes)

    def missing(self, blocks: Sequence[Block]) -> list[str]:
        """Returns the names of those without metadata."""
        store = self._store()
        folders = {block.name.partition("/")[0] for block in blocks}
        there = {name for folder in folders for name in store.names(folder)}
        return [block.name for block in blocks if block.name not in there]

    def make_cold(self) -> BlockReader:
        """Returns a reader of these blocks; loading its libraries takes a while."""
        from fjord.blocks.reader import BlockReader  # noqa: PLC0415 - pyarrow, only where a block is read

        return BlockReader(self._store())

    def stop(self) -> None:
        """Ends the current write, and every later one."""
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


# -- the child itself -----------------------------------------------------------------------------


def main() -> int:
    """Writes the blocks of the plan on standard input; returns the exit code."""
    os.nice(_NICE)
    parent = os.getppid()

    def tell(block: Block) -> None:
        if os.getppid() != parent:
            raise FjordError("the parent process is gone")
        _print({"block": block._asdict()})

    try:
        line = sys.stdin.buffer.readline()
        if line.endswith(b"\n"):  # the parent keeps the other end open while it waits
            threading.Thread(target=_end_with_parent, daemon=True).start()
        journal_directory, plan, location = read_request(line)
        # These libraries take a while to load, which is best done at a low priority.
        from fjord.blocks.store import Store  # noqa: PLC0415
        from fjord.blocks.writer import write_blocks  # noqa: PLC0415

        found = write_blocks(journal_directory, plan, Store(location), progress=tell)
    except (FjordError, OSError, ImportError, ValueError, TypeError, KeyError) as error:
        told: dict[str, object] = {"error": str(error) or type(error).__name__}
        if isinstance(error, CorruptionError):
            told |= {"path": error.path, "offset": error.offset, "reason": error.reason}
        _print(told)
        return 1
    _print({"end": len(found)})
    return 0


def _end_with_parent() -> None:
    """Ends this process when its parent is gone."""
    while os.read(sys.stdin.fileno(), 4096):
        pass  # nothing more is sent
    os._exit(1)


def _print(told: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
