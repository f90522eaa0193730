"""Fjord: one durable journal that is a job queue, a message queue, a stream and a key/value store.

import fjord

with fjord.open("data") as db:                      # embedded, no server
    db.kv("settings").set("k", 5)
    db.jobs("pages").push("http://example.com/a", delay=5)

with fjord.connect("fjord://127.0.0.1:17994") as db:  # the same tables over a daemon
    db.kv("settings").get("k")
    for job in db.jobs("pages").work(lease=60):
        print(job.key)                                # done when the loop continues
    db.stream("events").append(b"signed up", key="user:7")
"""

from __future__ import annotations

import os

from fjord.client.blocking.database import Database
from fjord.client.blocking.jobs import Job, Jobs
from fjord.client.blocking.kv import Kv
from fjord.client.blocking.snapshots import Snapshot
from fjord.client.blocking.streams import Stream
from fjord.client.blocking.subscribers import Reader, Subscriber
from fjord.client.connection import connect
from fjord.client.declared_tables import TableInfo
from fjord.client.entries import Change, Entry
from fjord.client.history import BlockInfo, SpanInfo
from fjord.client.jobs.records import (
    Counts,
    DeadJob,
    Discarded,
    Generation,
    JobBatch,
    JobInfo,
    Moment,
    Redriven,
)
from fjord.client.listening import Changes
from fjord.client.messages import Message, MessageBatch, MessageColumns
from fjord.client.pages import Span
from fjord.client.spool.writer import Spool
from fjord.client.spool.writer import open_spool as spool
from fjord.client.subscribers import SubscriberInfo
from fjord.client.transaction import Transaction
from fjord.client.waker import Waker
from fjord.errors import (
    ClosedError,
    CorruptionError,
    DeclarationError,
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
    "BlockInfo",
    "Change",
    "Changes",
    "ClosedError",
    "CorruptionError",
    "Counts",
    "Database",
    "DeadJob",
    "DeclarationError",
    "DirectoryError",
    "DirectoryInUseError",
    "Discarded",
    "DiskFullError",
    "DurabilityError",
    "Entry",
    "ExistsError",
    "FjordError",
    "Generation",
    "Job",
    "JobBatch",
    "JobInfo",
    "Jobs",
    "Kv",
    "LockedError",
    "Message",
    "MessageBatch",
    "MessageColumns",
    "Moment",
    "NotFoundError",
    "Priority",
    "ProtocolError",
    "Reader",
    "Redriven",
    "RefusedError",
    "Snapshot",
    "Span",
    "SpanInfo",
    "Spool",
    "StaleError",
    "Stream",
    "Subscriber",
    "SubscriberInfo",
    "TableInfo",
    "Transaction",
    "UnavailableError",
    "Waker",
    "connect",
    "open",
    "spool",
]


def open(  # noqa: A001
    path: str | os.PathLike[str], *, read_only: bool = False, blocks: str | None = None
) -> Database:
    """Opens or creates a data directory in this process, without a server.

    Args:
        path: the data directory.
        read_only: opens it for reading, also while another process writes to it.
        blocks: the location of cold blocks, a path or a URL such as `s3://bucket/name`.  It is
            remembered; default: `blocks` in the directory.

    Raises:
        DirectoryError: if it cannot be opened, for example because another process writes to it.
        CorruptionError: if the journal is damaged.
    """
    try:
        from fjord.blocks.child import NodeBlocks, missing_libraries
        from fjord.engine import Embedded, EmbeddedReader, ReadOnlyEngine, open_engine
        from fjord.engine.cold import LazyCold
    except ModuleNotFoundError as error:
        raise FjordError(
            f"opening a directory needs {error.name}: pip install 'fjord-journal[server]'"
        ) from error
    name = os.fspath(path)
    if read_only:
        reader = ReadOnlyEngine(name)
        cold = LazyCold(NodeBlocks(reader.attach_blocks(blocks or "")).make_cold)
        return Database(EmbeddedReader(reader, cold=cold), name=name)
    engine = open_engine(name)
    if missing_libraries():
        return Database(Embedded(engine), name=name)
    shelf = NodeBlocks(engine.attach_blocks(blocks or ""))
    return Database(Embedded(engine, cold=LazyCold(shelf.make_cold), shelf=shelf), name=name)
