"""A progress bar on standard error, which appears only if there is something to wait for."""

from __future__ import annotations

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fjord.cli.failing import errors


class Bar:
    """Shows how far a long work is; nothing is shown before the first `update`."""

    def __init__(self, label: str) -> None:
        self._progress = Progress(
            TextColumn(label),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=errors,
            transient=True,
        )
        self._task = self._progress.add_task(label, total=None)
        self._started = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def update(self, done: int, total: int) -> None:
        if not self._started:
            self._started = True
            self._progress.start()
        self._progress.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        if self._started:
            self._started = False
            self._progress.stop()
