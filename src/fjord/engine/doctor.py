"""The doctor: compares the index with the journal.

The journal is replayed into memory up to the applied seq of the index, and the trees are compared
entry by entry.  Both are of the same moment, so this also works while a writer is running.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from fjord.engine import layout as layouts
from fjord.engine import opening
from fjord.engine.group import read_applied
from fjord.engine.layout import Clean, Layout
from fjord.engine.opening import EngineSettings
from fjord.errors import DirectoryError, UnavailableError
from fjord.index import Index, Transaction, viewed
from fjord.journal.reader import Journal
from fjord.layouts import pages
from fjord.tables.kv.layout import ROW
from fjord.tables.state import Tree

_ENTRIES_AT_A_TIME = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An entry that differs between the two."""

    tree: str
    key: bytes
    index: bytes | None  # None: it is missing
    replay: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The result of the doctor."""

    applied_seq: int  # up to where both were compared
    entries: int
    difference_count: int
    differences: list[Difference]  # the first ones


def examine(path: str, settings: EngineSettings | None = None, *, shown: int = 20) -> Diagnosis:
    """Compares the index of a directory with a replay of its journal.

    Raises:
        DirectoryError: if there is no directory, or no index that belongs to it.
        CorruptionError: if the journal is damaged.
    """
    settings = settings or EngineSettings()
    layout = Layout(path)
    disk, indexes = settings.disk, opening.indexes_of(settings, layout)
    if not disk.names(layout.journal):
        raise DirectoryError(f"{layout.root} is not a Fjord data directory")
    clean = layouts.read_mark(disk, layout.clean, Clean)
    if not opening.is_index_trusted(disk, layout, indexes, clean):
        raise DirectoryError(
            f"{layout.root} has no valid index; the next start rebuilds it from the journal"
        )
    index = indexes.open(read_only=True)
    try:
        with contextlib.closing(Journal(disk, layout.journal)) as journal:
            return diagnose(journal, index, settings, shown=shown)
    except FileNotFoundError as error:
        raise UnavailableError("a segment was packed meanwhile; try again") from error
    finally:
        index.close()


def diagnose(journal: Journal, index: Index, settings: EngineSettings, *, shown: int) -> Diagnosis:
    """Compares an index with a replay of a journal."""
    with viewed(index) as transaction:
        applied_seq = read_applied(transaction)
        replayed = opening.replayed(settings, journal, applied_seq)
        return _compare(transaction, replayed.view(), applied_seq, shown)


def _compare(stored: Transaction, replayed: Transaction, applied_seq: int, shown: int) -> Diagnosis:
    entries = count = 0
    differences: list[Difference] = []
    for tree in Tree:
        expected = dict(_holding(replayed, tree))
        for key, value in _holding(stored, tree):
            entries += 1
            wanted = expected.pop(key, None)
            if wanted != value:
                count += 1
                if len(differences) < shown:
                    found = Difference(tree=tree.name, key=key, index=value, replay=wanted)
                    differences.append(found)
        count += len(expected)
        differences += [
            Difference(tree=tree.name, key=key, index=None, replay=expected[key])
            for key in sorted(expected)[: shown - len(differences)]
        ]
    return Diagnosis(
        applied_seq=applied_seq, entries=entries, difference_count=count, differences=differences
    )


def _holding(transaction: Transaction, tree: Tree) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries of a tree; of marks only those of existing rows.

    A mark is void once its key has another row, and packing does not keep void marks.
    """
    found = pages(transaction.scan, tree, b"", None, _ENTRIES_AT_A_TIME)
    for key, value in chain.from_iterable(found):
        if tree is Tree.KV_MARKS:
            row = transaction.get(Tree.KV, key)
            if row is None or row[: ROW.size] != value[: ROW.size]:
                continue
        yield key, value
