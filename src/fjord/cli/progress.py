"""A progress bar on standard error, which appears only if there is something to wait for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """Shows how far a long work is; nothing before the first `update`, or without a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._running: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def describe(self, label: str) -> None:
        """Shows what is done right now."""
        self._label = label
        if self._running is not None:
            progress, task = self._running
            progress.update(task, description=label)

    def update(self, done: int, total: int | None) -> None:
        """Shows that so much is done; a total of None is one that nobody knows."""
        if not sys.stderr.isatty():
            return
        if self._running is None:
            self._running = _start(self._label)
        progress, task = self._running
        progress.update(task, completed=done, total=total)

    def stop(self) -> None:
        if self._running is not None:
            progress, _ = self._running
            self._running = None
            progress.stop()


def _start(label: str) -> tuple[Progress, TaskID]:
    from rich import progress as bars
    from rich.console import Console

    progress = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task(label, total=None)
    progress.start()
    return progress, task
