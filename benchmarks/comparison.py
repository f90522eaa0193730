"""Figures beside those of Redis, measured alternately."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks import servers
from benchmarks.report import console
from benchmarks.scale import Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure: the same work on both; each run returns a rate."""

    name: str
    fjord: Callable[[str, int, Scale], float]  # URL, number of the round
    redis: Callable[[int, int, Scale], float]  # port, number of the round
    aim: float | None = None  # the target ratio


def compare(title: str, rows: Sequence[Compared], scale: Scale) -> None:
    if not servers.has_redis():
        console.print(
            f"redis-server is not installed, so there is nothing to compare with: "
            f"{servers.REDIS_INSTALL}"
        )
    table = Table(title, "Fjord /s", "Redis /s", "ratio", "target")
    for row in rows:
        ours, theirs = _rates(row, scale)
        table.add_row(row.name, f"{ours:,.0f}", *_beside(row, ours, theirs))
    console.print(table)


def _rates(row: Compared, scale: Scale) -> tuple[float, float | None]:
    """Runs both servers alternately, so that a slow moment of the machine affects both."""
    ours: list[float] = []
    theirs: list[float] = []
    with servers.data_directory() as directory, servers.Daemon(directory) as daemon:
        if not servers.has_redis():
            ours = [row.fjord(daemon.url, round_, scale) for round_ in range(scale.rounds)]
            return statistics.median(ours), None
        with servers.redis_server() as port:
            for round_ in range(scale.rounds):
                ours.append(row.fjord(daemon.url, round_, scale))
                theirs.append(row.redis(port, round_, scale))
    return statistics.median(ours), statistics.median(theirs)


def _beside(row: Compared, ours: float, theirs: float | None) -> tuple[str, str, str]:
    aim = "no target" if row.aim is None else str(row.aim)
    if theirs is None:
        return "-", "-", aim
    ratio = ours / theirs
    is_missed = row.aim is not None and ratio < row.aim
    return f"{theirs:,.0f}", f"{ratio:.2f}", f"{aim}{'  missed' if is_missed else ''}"
