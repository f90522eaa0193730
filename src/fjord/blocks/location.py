"""Blocks at a location, without a node: listing, verifying and copying them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fjord import limits
from fjord.blocks.store import Catalog, Metadata, Store
from fjord.errors import Code, CorruptionError, FjordError, NotFoundError, UsageError

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class CheckedBlock:
    """A block that was verified or fetched."""

    name: str
    path: str  # of its data
    bytes: int = 0
    rows: int = 0
    problem: str = ""  # what is wrong with it, or empty
    is_new: bool = True  # if it was fetched: it did not exist before


def catalog_at(location: str) -> Catalog:
    """Returns the blocks of a location.

    Raises:
        UsageError: if such a location is not supported here.
    """
    try:
        return Catalog(Store(location))
    except (ImportError, ValueError) as error:
        raise UsageError(f"{location} is not accessible: {error}") from error


def names_at(catalog: Catalog, table: str) -> list[str]:
    """Returns the names of all blocks, or of those of one table, in order.

    Raises:
        NotFoundError: if there are none.
    """
    with _user_errors(catalog.store):
        found = catalog.names(table)
    if not found:
        what = f"block of {table}" if table else "block"
        raise NotFoundError(Code.NOT_FOUND, f"there is no {what} at {catalog.store.location}")
    return found


def verified(catalog: Catalog, names: Sequence[str], progress: Progress) -> Iterator[CheckedBlock]:
    """Reads these blocks and compares their checksums; yields the results."""

    def verify(name: str) -> CheckedBlock:
        found = catalog.verify(name)
        return CheckedBlock(name, catalog.store.path(name), found.bytes, found.rows)

    return _each(catalog, names, progress, verify, catalog.store)


def fetched(
    catalog: Catalog, names: Sequence[str], into: Catalog, progress: Progress
) -> Iterator[CheckedBlock]:
    """Copies blocks to another location; existing ones are left unchanged.

    A block whose bytes do not match its metadata is not kept.
    """

    def fetch(name: str) -> CheckedBlock:
        metadata = catalog.read(name)
        is_new = not _is_there(into, name, metadata)
        if is_new:
            _copy(catalog.store, name, metadata, into.store)
        path = into.store.path(name)
        return CheckedBlock(name, path, metadata.bytes, metadata.rows, is_new=is_new)

    return _each(catalog, names, progress, fetch, into.store)


def _each(
    catalog: Catalog,
    names: Sequence[str],
    progress: Progress,
    check: Callable[[str], CheckedBlock],
    used: Store,
) -> Iterator[CheckedBlock]:
    """Yields the result of a check of each block, or its error."""
    for done, name in enumerate(names):
        progress(done, len(names))
        with _user_errors(used):
            try:
                found = check(name)
            except CorruptionError as error:
                found = CheckedBlock(name, error.path, problem=error.reason)
            except FileNotFoundError:
                found = CheckedBlock(name, catalog.store.path(name), problem="it does not exist")
        yield found


def _is_there(into: Catalog, name: str, metadata: Metadata) -> bool:
    if not into.store.exists(name):
        return False
    try:
        return into.verify(name).crc32c == metadata.crc32c
    except CorruptionError:
        return False  # fetched again


def _copy(source: Store, name: str, metadata: Metadata, into: Store) -> None:
    """Copies a block, its metadata last.

    Raises:
        CorruptionError: if it does not match its metadata; then it is not kept.
    """
    draft = into.draft(name)
    try:
        with source.open(name) as file:
            while data := file.read(limits.MIB):
                draft.write(data)
        draft.keep(name)
    finally:
        draft.drop()
    if (draft.size, draft.crc) != (metadata.bytes, metadata.crc32c):
        into.remove(name)
        reason = (
            f"it has {draft.size} bytes with the checksum {draft.crc:08x}, its metadata says "
            f"{metadata.bytes} and {metadata.crc32c:08x}"
        )
        raise CorruptionError(source.path(name), 0, reason)
    into.write_metadata(name, metadata.encode())


@contextlib.contextmanager
def _user_errors(store: Store) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FjordError(f"{store.location} cannot be used: {error}") from error
