"""What a table of Parquet files consists of: commits, and what they add up to.

A table is the fold of its commits.  A commit has a number, adds files and takes files away, and
says which batch of which query it is.  Everything here is pure; `warehouse` keeps commits in files,
and docs/warehouse.md has the format.

    commit 1 (query a, batch 0, seqs 1-900)  ->  commit 2 (query a, batch 1, seqs 901-1700)  ->  ...
       + 2 files                                    + 2 files

Invariants:
- A batch of a query is in a table once: its number is larger than that of all batches before it.
- A table never goes back: a batch begins behind the end of all that there is.  Who reads the same
  rows again, as a query that has lost its checkpoint, is told so instead of being believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from fjord.errors import CorruptionError, FjordError

# To change the form: raise the number, keep reading what earlier ones wrote, and keep a sample.
VERSION: Final = 1


class BackwardsError(FjordError):
    """A batch has rows that the table has already; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One Parquet file of a table."""

    path: str  # below the folder of the table; as Spark calls it where users see it
    rows: int
    bytes: int
    min_seq: int
    max_seq: int
    value_crc: int | None  # sum of Spark's crc32(value); None = nobody knows


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBatch:
    """What a query writes at once."""

    query: str  # its id, which is that of its checkpoint
    number: int
    table: str  # of Fjord
    start: int  # the first seq that the batch covers
    end: int  # and the last; one less than `start`: it has nothing
    epoch: str = ""  # in whose time `end` was written; empty = unknown
    columns: str = ""  # which ones were taken, with commas between; empty = all
    ops: str = ""  # rows of which ops were taken, with commas between; empty = all


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One change of a table."""

    number: int  # 1, 2, 3...
    at_us: int  # wall time, Unix microseconds
    batch: QueryBatch | None  # None: files were put in the place of others, rows are the same
    added: Sequence[DataFile] = ()
    removed: Sequence[str] = ()  # paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """How far a query is."""

    batch: int  # its last one
    start: int  # the first seq of its first one


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table as it is after a commit."""

    number: int = 0  # of the last commit, 0 = there is none
    table: str = ""  # of Fjord
    epoch: str = ""  # in whose time `end` was written; empty = unknown
    start: int = 0  # the first seq that is covered
    end: int = 0  # everything from there up to here is in the files
    columns: str = ""  # as the batches say; who adds others is refused before
    ops: str = ""
    queries: Mapping[str, Query] = field(default_factory=dict)
    files: Mapping[str, DataFile] = field(default_factory=dict)  # by path

    def has(self, query: str, batch: int) -> bool:
        """Says whether a batch is in the table."""
        known = self.queries.get(query)
        return known is not None and batch <= known.batch


def check_batch(end: int, table: str, batch: QueryBatch, where: str) -> None:
    """Ensures that a batch goes on where a table of `table` ends.

    Raises:
        BackwardsError: if it begins before that.
        FjordError: if it is of another table.
    """
    if table and batch.table != table:
        raise FjordError(
            f"{where} holds the table {table!r}, not {batch.table!r}; give each its own folder"
        )
    if end and batch.start <= end:
        raise BackwardsError(
            f"{where} has everything up to seq {end}, and batch {batch.number} of query "
            f"{batch.query} begins at {batch.start}: another query writes to it too, or this one "
            "has an old checkpoint. Stop the other one, or remove the checkpoint to go on at "
            f"{end + 1}"
        )


def after(state: TableState, commit: Commit, where: str) -> TableState:
    """Returns the table with one more commit.

    Raises:
        FjordError: if the commit does not follow from it.
    """
    if commit.number != state.number + 1:
        raise CorruptionError(where, 0, f"commit {commit.number} follows {state.number}")
    files = dict(state.files)
    for path in commit.removed:
        if files.pop(path, None) is None:
            raise CorruptionError(where, 0, f"commit {commit.number} removes {path}, not there")
    files.update({one.path: one for one in commit.added})
    if len(files) != len(state.files) - len(commit.removed) + len(commit.added):
        raise CorruptionError(where, 0, f"commit {commit.number} adds a file that is there")
    changed = replace(state, number=commit.number, files=files)
    batch = commit.batch
    if batch is None:
        return changed
    check_batch(state.end, state.table, batch, where)
    known = state.queries.get(batch.query)
    query = Query(batch=batch.number, start=known.start if known else batch.start)
    return replace(
        changed,
        table=batch.table,
        # One that is known of a seq before says nothing of the new end.
        epoch=batch.epoch or (state.epoch if batch.end == state.end else ""),
        start=state.start or batch.start,
        end=max(state.end, batch.end),
        columns=batch.columns,
        ops=batch.ops,
        queries={**state.queries, batch.query: query},
    )


# -- as files ------------------------------------------------------------------------------------


def encode_commit(commit: Commit) -> bytes:
    return _encode({"version": VERSION, **asdict(commit)})


def decode_commit(data: bytes, path: str) -> Commit:
    """Reads a commit; members that are not known are of a later version, and left out.

    Raises:
        CorruptionError: if it is none.
    """
    found = _decode(data, path)
    batch = found.get("batch")
    return Commit(
        number=_of(found, "number", int, path),
        at_us=_of(found, "at_us", int, path),
        batch=None if batch is None else _record(QueryBatch, batch, path),
        added=tuple(_record(DataFile, one, path) for one in _of(found, "added", list, path)),
        removed=tuple(str(one) for one in _of(found, "removed", list, path)),
    )


def encode_state(state: TableState) -> bytes:
    files = [asdict(one) for one in state.files.values()]
    return _encode({"version": VERSION, **asdict(state), "files": files})


def decode_state(data: bytes, path: str) -> TableState:
    """Reads a checkpoint.

    Raises:
        CorruptionError: if it is none.
    """
    found = _decode(data, path)
    files = [_record(DataFile, one, path) for one in _of(found, "files", list, path)]
    queries = _of(found, "queries", dict, path)
    return TableState(
        number=_of(found, "number", int, path),
        table=_of(found, "table", str, path),
        epoch=_of(found, "epoch", str, path),
        start=_of(found, "start", int, path),
        end=_of(found, "end", int, path),
        columns=str(found.get("columns", "")),
        ops=str(found.get("ops", "")),
        queries={name: _record(Query, one, path) for name, one in queries.items()},
        files={one.path: one for one in files},
    )


def _encode(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found, indent=1).encode() + b"\n"


def _decode(data: bytes, path: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(path, 0, f"it is no JSON ({error})") from error
    if not isinstance(found, dict) or not isinstance(found.get("version"), int):
        raise CorruptionError(path, 0, "it is nothing that Fjord has written")
    if found["version"] > VERSION:
        raise FjordError(
            f"{path} has version {found['version']}, and this version of Fjord knows {VERSION}; "
            "install a newer one"
        )
    return found


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "str": (str,),
    "int | None": (int, type(None)),
}


# Members that files of before do not have, and what those mean by that.
_NEW: Final[dict[str, str]] = {"columns": "", "ops": ""}


def _record(kind: Any, found: object, path: str) -> Any:
    """Returns a record of numbers and texts; members that are not known are left out."""
    if not isinstance(found, dict):
        raise CorruptionError(path, 0, f"{found!r} is no {kind.__name__}")
    given = {}
    for one in fields(kind):
        value = found.get(one.name, _NEW.get(one.name))
        if not isinstance(value, _KINDS[str(one.type)]) or isinstance(value, bool):
            raise CorruptionError(path, 0, f"its member {one.name} is of the wrong type")
        given[one.name] = value
    return kind(**given)


def _of(found: Mapping[str, Any], name: str, kind: type, path: str) -> Any:
    if not isinstance(found.get(name), kind):
        raise CorruptionError(path, 0, f"its member {name} is missing, or of the wrong type")
    return found[name]
