"""What a job says while it runs, and what it has done at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

#: What is done right now, how much of it, and of how much; None: nobody knows.
Progress = Callable[[str, int, int | None], None]
Figure = int | float | str | bool | None


def silent(what: str, done: int, total: int | None) -> None:
    """Takes progress, and shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a job has done: a summary for people, JSON for programs."""

    job: str
    figures: Mapping[str, Figure]  # in the order in which they are shown
    rows: Sequence[Mapping[str, Figure]] = ()  # a table, if the job has one to show
    ok: bool = True  # False: what was looked at is not as it should be; exit code 1
