"""What was staged and never committed is dropped, what was half committed is finished, and writers
that are not heard of any more are forgotten.

It is a walk over stages and writers, a bounded piece at a time, from the beginning once an hour.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, Protocol

from fjord import commands, limits
from fjord.clock import Clock
from fjord.commands import Command, Refusal, Reply
from fjord.layouts import PREFIX_BYTES, table_of
from fjord.tables.stages import layout, writers
from fjord.tables.stages import stage as staging
from fjord.tables.state import Tree
from fjord.tables.streams.layout import seq_key

# What is run next, or None; it is told whether the last command was refused.
Steps = Generator[Command | None, bool | None, None]
_ONCE: Final = commands.WRITER_ONCE.encode()
# So many entries are looked at in one step.
_PIECE: Final = 2000


class Host(Protocol):
    """What it needs of the engine."""

    def run_internal(self, command: Command, /) -> Reply: ...

    def scan_index(
        self, tree: int, start: bytes, stop: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]: ...


class Forgetting:
    """Goes over all that is staged, step by step."""

    def __init__(self, host: Host, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._walk: Steps | None = None
        self._is_refused: bool | None = None  # the last command; None: there was none

    def step(self) -> bool:
        """Does one step; False when the walk is over."""
        if self._walk is None:
            self._walk, self._is_refused = self._steps(), None
        try:
            command = self._walk.send(self._is_refused)
        except StopIteration:
            self._walk = None
            return False
        self._is_refused = command is not None and isinstance(
            self._host.run_internal(command), Refusal
        )
        return True

    def _steps(self) -> Steps:
        """Yields what is to be run, or nothing where a piece was only looked at."""
        now_us = self._clock.wall_us()
        for items in self._pieces(Tree.STAGES):
            by_table: dict[int, list[int]] = {}
            for key, data in items:
                stage = layout.decode_stage(key, data)
                is_old = stage.at_us + limits.STAGE_US_MAX < now_us
                if is_old and stage.state == layout.State.PENDING:
                    by_table.setdefault(table_of(key), []).append(stage.seq)
            for table, stages in by_table.items():
                yield staging.DropStages(table=table, stages=stages)
            yield None
        for items in self._pieces(Tree.WRITERS):
            for key, data in items:
                yield from self._of_writer(key, layout.decode_writer(data), now_us)
            yield None

    def _of_writer(self, key: bytes, found: layout.Writer, now_us: int) -> Steps:
        table, name = table_of(key), key[PREFIX_BYTES:]
        if found.at_us + limits.COMMIT_IDLE_US < now_us:
            while found.stages and self._is_staged(key, found.stages[-1]):
                if (yield staging.RunStage(table=table, name=name)):
                    return  # perhaps a key is locked; others go on, and it is tried again
        is_once = found.batch == writers.OVER or name.startswith(_ONCE)
        kept_us = limits.WRITER_ONCE_KEPT_US if is_once else limits.WRITER_KEPT_US
        if found.at_us + kept_us < now_us:
            yield staging.ForgetWriter(table=table, name=name, before_us=now_us - kept_us)

    def _is_staged(self, key: bytes, seq: int) -> bool:
        """Says whether the last stage of a batch is there: then the batch is not written yet."""
        wanted = seq_key(key[:PREFIX_BYTES], seq)
        return bool(self._host.scan_index(Tree.STAGES, wanted, wanted + b"\0", 1))

    def _pieces(self, tree: Tree) -> Iterator[list[tuple[bytes, bytes]]]:
        start = b""
        while items := self._host.scan_index(tree, start, None, _PIECE):
            yield items
            start = items[-1][0] + b"\0"
