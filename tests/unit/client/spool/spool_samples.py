"""Records and files for the tests of the spool."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fjord.client.spool import files
from fjord.client.spool.files import HEADER_BYTES, SpoolFile, line_of
from fjord.client.spool.records import HEAD, RecordKind

NOW = 1_700_000_000_000_000
IDENTITY = bytes(range(16))
NAME = "07.spool"


def pushed(
    key: bytes,
    value: bytes = b"",
    *,
    table: bytes = b"t",
    domain: bytes = b"",
    due: int = 0,
    expires: int = 0,
    stamp: int = NOW,
) -> bytes:
    sizes = len(table), len(key), len(domain)
    head = HEAD.pack(RecordKind.PUSH, 1, 128, *sizes, stamp, due, expires)
    return head + table + key + domain + value


def appended(value: bytes, key: bytes = b"", *, table: bytes = b"t", stamp: int = NOW) -> bytes:
    return _row(RecordKind.APPEND, table, key, stamp) + value


def set_to(
    key: bytes,
    value: bytes,
    *,
    table: bytes = b"t",
    ttl: int = 0,
    expires: int = 0,
    stamp: int = NOW,
) -> bytes:
    sizes = len(table), len(key), 0
    return HEAD.pack(RecordKind.SET, 1, 0, *sizes, stamp, ttl, expires) + table + key + value


def deleted(key: bytes, *, table: bytes = b"t", stamp: int = NOW) -> bytes:
    return _row(RecordKind.DELETE, table, key, stamp)


def _row(kind: int, table: bytes, key: bytes, stamp: int) -> bytes:
    return HEAD.pack(kind, 1, 0, len(table), len(key), 0, stamp, 0, 0) + table + key


def make_file(directory: Path, data: bytes, name: str = NAME) -> SpoolFile:
    """Makes a file with a header in front of `data`, and opens it as the forwarder does."""
    header = files.encode_header(replace(files.new_header(NOW), identity=IDENTITY))
    (directory / name).write_bytes(header + data)
    return SpoolFile(os.fspath(directory), name)


def rest_of(file: SpoolFile) -> bytes:
    """Returns all behind the header of a file."""
    return file.read(HEADER_BYTES, file.size())


def lines_of(*records: bytes) -> bytes:
    return b"".join(map(line_of, records))


# -- processes ------------------------------------------------------------------------------------


def in_child(work: Callable[[], None]) -> int:
    """Runs something in a fork of this process; returns its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def check_ended(children: Sequence[int]) -> None:
    """Waits for processes, and checks that they came to their end."""
    assert [os.waitpid(child, 0)[1] for child in children] == [0 for _ in children]
