"""What `fjord kestrel pack` does: each queue's files become one, with what is in the queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from fjord.cli import output
from fjord.cli.kestrel_reports import queues
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.errors import DirectoryError
from fjord.kestrel import collection
from fjord.kestrel.codec import Dialect
from fjord.kestrel.collection import Packed
from fjord.kestrel.config import QueueConfig

DIALECTS: Final = tuple(str(one) for one in Dialect)


def pack(
    directory: str, queue: str, dialect: str, item_bytes_max: int
) -> Iterator[Packed | DirectoryError]:
    """Packs the queues of a directory, or one, and yields what became of each.

    One that cannot be read, or has no space, stays as it is; the others are packed all the same.

    Raises:
        NotFoundError: if there is no such queue.
        DirectoryInUseError: if a Fjord serves the directory.
        DirectoryError: if it cannot be opened.
    """
    disk, clock = LocalDisk(), SystemClock()
    config = QueueConfig(dialect=Dialect(dialect))
    found = queues(directory, [queue] if queue else [])
    try:
        with collection.locked(disk, directory):
            for name in found:
                yield _packed(disk, directory, name, config, clock, item_bytes_max)
    except OSError as error:
        raise DirectoryError(f"cannot open {directory}: {error.strerror}") from error


def _packed(
    disk: LocalDisk,
    directory: str,
    queue: str,
    config: QueueConfig,
    clock: SystemClock,
    item_bytes_max: int,
) -> Packed | DirectoryError:
    try:
        return collection.pack_queue(
            disk, directory, queue, config, clock, item_bytes_max=item_bytes_max
        )
    except OSError as error:
        return DirectoryError(f"{queue} was not packed: {error.strerror}")
    except DirectoryError as error:
        return DirectoryError(f"{queue} was not packed: {error}")


def line(packed: Packed) -> str:
    return (
        f"{packed.queue}: {output.counted(packed.items, 'item')}, "
        f"{output.counted(packed.open_items, 'open item')}; "
        f"{packed.bytes_before} bytes of files are {packed.bytes_after} now"
    )


def as_json(packed: Packed) -> dict[str, object]:
    return dataclasses.asdict(packed)
