"""Fjord: one durable journal that is a job queue, a message queue, a stream and a key/value store.

import fjord

with fjord.open("data") as db:                      # embedded, no server
    db.kv("settings").set("k", 5)
    db.jobs("pages").push("http://example.com/a", delay=5)

with fjord.connect("fjord://127.0.0.1:17994") as db:  # the same tables over a daemon
    db.kv("settings").get("k")
    for job in db.jobs("pages").work(lease=60):
        print(job.key)                                # it is done when the loop goes on
"""

from __future__ import annotations

import os

from fjord.client.database import Database
from fjord.client.entries import Change, Entry
from fjord.client.job_entries import (
    Counts,
    DeadJob,
    Discarded,
    JobBatch,
    JobInfo,
    Moment,
    Redriven,
)
from fjord.client.jobs import Job, Jobs
from fjord.client.kv import Kv
from fjord.client.listening import Changes
from fjord.client.node_calls import TableInfo
from fjord.client.pages import Span
from fjord.client.socket import connect
from fjord.client.transaction import Transaction
from fjord.errors import (
    ClosedError,
    CorruptionError,
    DirectoryError,
    DirectoryInUseError,
    DiskFullError,
    DurabilityError,
    ExistsError,
    FjordError,
    LockedError,
    NotFoundError,
    ProtocolError,
    RefusedError,
    StaleError,
    UnavailableError,
)
from fjord.jobs import Priority

__version__ = "0.1.0"

__all__ = [
    "Change",
    "Changes",
    "ClosedError",
    "CorruptionError",
    "Counts",
    "Database",
    "DeadJob",
    "DirectoryError",
    "DirectoryInUseError",
    "Discarded",
    "DiskFullError",
    "DurabilityError",
    "Entry",
    "ExistsError",
    "FjordError",
    "Job",
    "JobBatch",
    "JobInfo",
    "Jobs",
    "Kv",
    "LockedError",
    "Moment",
    "NotFoundError",
    "Priority",
    "ProtocolError",
    "Redriven",
    "RefusedError",
    "Span",
    "StaleError",
    "TableInfo",
    "Transaction",
    "UnavailableError",
    "connect",
    "open",
]


def open(path: str | os.PathLike[str], *, read_only: bool = False) -> Database:  # noqa: A001
    """Opens or makes a data directory in this process, without a server.

    Raises:
        DirectoryError: if it cannot be opened; where another process writes to it,
            `read_only=True` works beside it.
        CorruptionError: if the journal is damaged.
    """
    try:
        from fjord.engine import Embedded, EmbeddedReader, ReadOnlyEngine, open_engine
    except ModuleNotFoundError as error:
        raise FjordError(
            f"opening a directory needs {error.name}: pip install 'fjord-journal[server]'"
        ) from error
    if read_only:
        return Database(EmbeddedReader(ReadOnlyEngine(os.fspath(path))), name=os.fspath(path))
    return Database(Embedded(open_engine(os.fspath(path))), name=os.fspath(path))
