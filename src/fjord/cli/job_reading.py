"""All jobs of a table, read as columns, and none taken; and whether any changed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fjord.client.job_pages import JobWalk

if TYPE_CHECKING:
    from fjord.client.database import Database
    from fjord.commands import JobPage
    from fjord.jobs import State


def pages(db: Database, table: str, state: State) -> Iterator[JobPage]:
    """Yields the jobs of one state, a bounded page at a time."""
    walk = JobWalk(table, state, lambda page: [page])
    while (call := walk.next_call()) is not None:
        yield from db.run(call)


def moment(db: Database) -> int:
    """Returns a moment that `has_changed` understands."""
    return db.stats()["applied_seq"]


def has_changed(db: Database, table: str, since: int) -> bool:
    """Says whether anything was done to the jobs of a table since then.

    Nothing shows a jobs table as of one moment, but its history tells this afterwards.
    """
    return any(len(piece.first_seqs) for piece in db.scan(table, since + 1))
