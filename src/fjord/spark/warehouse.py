"""Warehouse tables: a folder of Parquet files with a manifest.

    <target>/_fjord/00000000000000000007.json               commit 7
    <target>/_fjord/00000000000000000100.checkpoint.json    all that commits 1 to 100 add up to
    <target>/batch-6-<stamp>/part-*.parquet                 rows

Rows are written first, into a folder of their own, and are valid from the moment at which a commit
names them.  A commit takes the next number, and its file is created so that only one of several
writers succeeds; the others look at the new state, and try the following number.  Files of an
attempt that did not get that far are named by no commit, and never read.

`docs/warehouse.md` has the format.  A folder with a `_delta_log` is a Delta table instead, see
`delta`; functions that only read choose the right one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from pyarrow import parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.blocks import schema
from fjord.blocks.files import Target, stamp, stamped_us, target_at
from fjord.clock import Clock, SystemClock
from fjord.errors import CorruptionError, FjordError

if TYPE_CHECKING:
    from fjord.spark.delta import DeltaWarehouse

__all__ = ["DataFile", "Warehouse", "files", "orphans", "read", "sweep", "warehouse_at"]

#: A table to which each batch of a query is added once.
Warehouse: TypeAlias = "ParquetWarehouse | DeltaWarehouse"

FOLDER: Final = "_fjord"
# A reader reads at most this many commits in addition to a checkpoint.
CHECKPOINT_EVERY: Final = 100
# A writer that loses the race for a number this often is not the only one, as it should be.
CONFLICTS_MAX: Final = 20
# A reader that finds a file gone looks for the checkpoint that replaced it.
LOOKS_MAX: Final = 5
# Attempts, queries and readers take less time than this.
GRACE: Final = timedelta(days=1)

_COMMIT: Final = re.compile(r"([0-9]{20})\.json\Z")
_CHECKPOINT: Final = re.compile(r"([0-9]{20})\.checkpoint\.json\Z")
_ATTEMPT: Final = re.compile(r"batch-[0-9]+-[0-9a-f]{32}\Z")


def warehouse_at(location: str, form: str = "") -> Warehouse:
    """Returns the table at a path or a URL, which may not exist yet.

    Args:
        form: "parquet" or "delta"; empty: whichever it is.

    Raises:
        FjordError: if it is of the other form.
    """
    target = target_at(location)
    names = target.names()
    found = "delta" if "_delta_log" in names else "parquet" if FOLDER in names else ""
    if form and found and form != found:
        raise FjordError(f"{location} is a table of form {found}, not {form}; give another folder")
    if (form or found) == "delta":
        from fjord.spark.delta import DeltaWarehouse  # noqa: PLC0415 - it needs deltalake

        return DeltaWarehouse(target)
    return ParquetWarehouse(target)


def files(target: str) -> list[DataFile]:
    """Returns the files of a table in the order of their seqs, with paths as Spark writes them.

    Raises:
        FjordError: if there is no table.
    """
    table = _present(target)
    shown = [replace(one, path=table.target.shown(one.path)) for one in table.files()]
    return sorted(shown, key=lambda one: (one.min_seq, one.path))


def read(spark: SparkSession, target: str, *, after: int = 0) -> DataFrame:
    """Returns the rows of a table: only those of committed files.

    Args:
        after: only rows with a larger seq; files without any are not opened.

    Raises:
        FjordError: if there is no table.
    """
    paths = [one.path for one in files(target) if one.max_seq > after]
    if not paths:
        return spark.createDataFrame([], schema.DDL)
    rows = spark.read.schema(schema.DDL).parquet(*paths)
    return rows.where(rows.seq > after) if after else rows


def orphans(target: str, *, grace: timedelta = GRACE, clock: Clock | None = None) -> list[str]:
    """Returns the folders of rows that no commit names and that are older than the grace.

    Raises:
        FjordError: if there is no table.
    """
    table = _present(target)
    # A folder created after this is too young to be returned.
    before_us = _before_us(grace, clock)
    named = {one.path.partition("/")[0] for one in table.files()}
    if isinstance(table, ParquetWarehouse):
        named |= table.removed_since(before_us)
    return [
        name
        for name in table.target.names()
        if _ATTEMPT.match(name) and name not in named and (stamped_us(name) or 0) < before_us
    ]


def sweep(target: str, *, grace: timedelta = GRACE, clock: Clock | None = None) -> list[str]:
    """Removes `orphans`, and commits covered by two checkpoints; returns the former.

    Raises:
        FjordError: if there is no table.
    """
    table = _present(target)
    found = orphans(target, grace=grace, clock=clock)
    for name in found:
        table.target.remove(name)
    if isinstance(table, ParquetWarehouse):
        table.trim(_before_us(grace, clock))
    return found


def _before_us(grace: timedelta, clock: Clock | None) -> int:
    return (clock or SystemClock()).wall_us() - grace // timedelta(microseconds=1)


def _present(target: str) -> Warehouse:
    table = warehouse_at(target)
    if not table.state().number:
        raise FjordError(
            f"there is no table in {target}: it has neither commits nor a Delta log. "
            "`fjord pipeline ingest` creates one"
        )
    return table


class ParquetWarehouse:
    """A table with a manifest.  Used by one thread at a time."""

    def __init__(self, target: Target, *, clock: Clock | None = None) -> None:
        self.target = target
        self._clock = clock or SystemClock()
        self._known: TableState | None = None  # what we know of it; others may be further
        self._checkpoint = 0  # number of the last one that we know of

    def state(self) -> TableState:
        """Returns the table as it is now.

        Raises:
            CorruptionError: if the manifest is damaged.
        """
        for _ in range(LOOKS_MAX):
            try:
                return self._read()
            except FileNotFoundError:
                continue  # trimmed meanwhile: a newer checkpoint is there
        raise CorruptionError(self.target.shown(FOLDER), 0, "files disappear while they are read")

    def query(self, query: str) -> Query | None:
        """Returns the progress of a query, None if it has written nothing."""
        return self.state().queries.get(query)

    def has(self, query: str, batch: int) -> bool:
        """Says whether a batch is in the table."""
        # A writer that was faster is noticed at the commit.
        self._known = self._known or self.state()
        return self._known.has(query, batch)

    def files(self) -> list[DataFile]:
        return list(self.state().files.values())

    def add(self, batch: QueryBatch, files: Sequence[DataFile]) -> bool:
        """Ensures that a batch is in the table; False: it already was, and `files` are not used.

        Raises:
            BackwardsError: if the table already goes beyond the beginning of the batch.
        """
        for _ in range(CONFLICTS_MAX):
            state = self._known or self.state()
            if state.has(batch.query, batch.number):
                return False
            commit = Commit(
                number=state.number + 1,
                at_us=self._clock.wall_us(),
                batch=batch,
                added=tuple(files),
            )
            self._known = None  # until this has succeeded
            further = after(state, commit, self.target.location)
            try:
                self.target.make(_commit_path(commit.number), encode_commit(commit))
            except FileExistsError:
                continue  # another writer was faster: look at the new state
            self._check_counted(commit, batch)
            self._known = further
            self._write_checkpoint(further)
            return True
        raise FjordError(
            f"{self.target.location} has too many concurrent writers; only one query should write"
        )

    def _check_counted(self, commit: Commit, batch: QueryBatch) -> None:
        """Ensures that a commit did not take a number that was trimmed long ago.

        That can happen to a writer that was stopped for longer than the grace.  Trimmed commits are
        in a checkpoint that was written before, so it is seen now.
        """
        if max(self._numbers(_CHECKPOINT), default=0) < commit.number:
            return
        state = self.state()
        has_files = all(one.path in state.files for one in commit.added)
        if not has_files or not state.has(batch.query, batch.number):
            self.target.remove(_commit_path(commit.number))
            raise FjordError(
                f"{self.target.location} has advanced to commit {state.number} while this writer "
                f"was at {commit.number}; nothing was written. Start it again"
            )

    def _write_checkpoint(self, state: TableState) -> None:
        """A crash before this costs readers some reads, until the next commit."""
        if state.number - self._checkpoint >= CHECKPOINT_EVERY:
            self.target.replace(_checkpoint_path(state.number), encode_state(state))
            self._checkpoint = state.number

    def _read(self) -> TableState:
        names = self.target.names(FOLDER)
        checkpoint = max(_numbers(names, _CHECKPOINT), default=0)
        state = TableState()
        if checkpoint:
            path = _checkpoint_path(checkpoint)
            state = decode_state(self.target.read(path), self.target.shown(path))
        self._checkpoint = checkpoint
        for number in _numbers(names, _COMMIT):
            if number > checkpoint:
                state = after(state, self._read_commit(number), self.target.shown(FOLDER))
        return state

    def _read_commit(self, number: int) -> Commit:
        path = _commit_path(number)
        return decode_commit(self.target.read(path), self.target.shown(path))

    def _numbers(self, pattern: re.Pattern[str]) -> list[int]:
        return _numbers(self.target.names(FOLDER), pattern)

    def removed_since(self, since_us: int) -> set[str]:
        """Returns the folders of files that were removed from the table since a moment."""
        found: set[str] = set()
        for number in reversed(self._numbers(_COMMIT)):
            commit = self._read_commit(number)
            if commit.at_us < since_us:
                break
            found |= {path.partition("/")[0] for path in commit.removed}
        return found

    def trim(self, before_us: int) -> None:
        """Removes commits from before a moment that the last two checkpoints cover."""
        checkpoints = self._numbers(_CHECKPOINT)
        if len(checkpoints) < 2:
            return
        for number in self._numbers(_COMMIT):
            if number > checkpoints[-2] or self._read_commit(number).at_us >= before_us:
                break
            self.target.remove(_commit_path(number))
        for number in checkpoints[:-2]:
            self.target.remove(_checkpoint_path(number))


def _commit_path(number: int) -> str:
    return f"{FOLDER}/{number:020}.json"


def _checkpoint_path(number: int) -> str:
    return f"{FOLDER}/{number:020}.checkpoint.json"


def _numbers(names: Sequence[str], pattern: re.Pattern[str]) -> list[int]:
    return sorted(int(match[1]) for name in names if (match := pattern.match(name)))


# -- rows of a batch become Parquet files and their manifest entries, in one pass -----------------
#
# A task writes one file.  Meanwhile Spark adds up the checksums of the values, by task: that is an
# observation, which needs no job of its own.  Everything else is read from the footers of the
# files afterwards.  Both must agree on the number of rows: if they do not, a file was lost or
# replaced, and nothing is committed.


# One task writes this many in about a second.
ROWS_PER_FILE: Final = 500_000
# Smaller files are slow to read, even if more tasks could work at the same time.
ROWS_PER_FILE_MIN: Final = 100_000
# One sum is observed for each.
FILES_MAX: Final = 64

_PART: Final = re.compile(r"part-[0-9]{5,}-.*\.parquet\Z")
_FILE_SETTINGS: Final[dict[str, str]] = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Columns that differ in each row have no dictionary, which would only take time.
    **{
        f"parquet.enable.dictionary#{name}": "false"
        for name in ("seq", "ts", "txn", "row", "key", "value")
    },
}


def file_count(rows: int, tasks: int) -> int:
    """Returns the maximum number of files of a batch.

    Args:
        rows: of a batch, at most.
        tasks: how many Spark runs at a time.
    """
    wanted = max(-(-rows // ROWS_PER_FILE), min(tasks, -(-rows // ROWS_PER_FILE_MIN)))
    return max(1, min(wanted, FILES_MAX))


def write(frame: DataFrame, target: Target, batch: int, *, files_max: int) -> list[DataFile]:
    """Writes rows to a new folder; returns its files, none if there are no rows.

    The frame is computed once.

    Raises:
        FjordError: if the files differ from what was written.
    """
    folder = f"batch-{batch}-{stamp()}"
    seen = Observation()
    _write(_observed(frame.coalesce(files_max), seen, files_max), target, folder)
    found = _described(target, folder, seen.get)
    target.sync(folder, [one.path.rpartition("/")[2] for one in found])
    return found


def write_folder(frame: DataFrame, target: Target, folder: str) -> dict[str, int]:
    """Writes rows to a new folder; returns its files with their rows."""
    _write(frame, target, folder)
    found = {name: footer.num_rows for name, footer in _footers(target, folder)}
    target.sync(folder, list(found))
    return found


def _footers(target: Target, folder: str) -> Iterator[tuple[str, pq.FileMetaData]]:
    """Yields the names of the files that tasks have written, with their footers' figures."""
    for name in target.names(folder):
        if _PART.match(name):
            with target.open(f"{folder}/{name}") as source, pq.ParquetFile(source) as file:
                yield name, file.metadata


def _write(frame: DataFrame, target: Target, folder: str) -> None:
    """Writes rows; an error of Spark says that the folder is there, if it is."""
    frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame.write.options(**_FILE_SETTINGS).parquet(target.shown(folder))


def _observed(frame: DataFrame, seen: Observation, parts: int) -> DataFrame:
    """Lets Spark count rows and add up the checksums of their values, by task, as they pass.

    It adds no columns: removing them again would copy every row once more.
    """
    crc = F.crc32("value") if "value" in frame.columns else F.lit(0)
    sums = []
    for part in range(parts):
        is_here = F.spark_partition_id() == part
        sums.append(F.count(F.when(is_here, True)).alias(f"rows_{part}"))
        sums.append(F.sum(F.when(is_here, crc)).alias(f"crc_{part}"))
    return frame.observe(seen, *sums)


def _described(target: Target, folder: str, seen: Mapping[str, Any]) -> list[DataFile]:
    """Returns the files of a folder, from their footers and the observation.

    Raises:
        FjordError: if the two disagree on the number of rows of a file.
    """
    found, rows = [], 0
    for name, footer in _footers(target, folder):
        if not footer.num_rows:
            continue  # Spark creates a file even if there are no rows at all
        path = f"{folder}/{name}"
        column = footer.schema.names.index("seq")
        groups = [footer.row_group(one).column(column) for one in range(footer.num_row_groups)]
        seqs = [one.statistics for one in groups if one.num_values]
        number = int(name.split("-")[1])
        _check_rows(target.shown(path), footer.num_rows, seen.get(f"rows_{number}"))
        rows += footer.num_rows
        found.append(
            DataFile(
                path=path,
                rows=footer.num_rows,
                bytes=target.size(path),
                min_seq=min(one.min for one in seqs),
                max_seq=max(one.max for one in seqs),
                value_crc=seen.get(f"crc_{number}") or 0,
            )
        )
    written = sum(count for name, count in seen.items() if name.startswith("rows_"))
    _check_rows(target.shown(folder), rows, written)
    return found


def _check_rows(path: str, rows: int, written: int | None) -> None:
    if rows != written:
        raise FjordError(
            f"{path} has {rows} rows, and Spark wrote {written}; nothing was committed. Run the "
            "batch again"
        )


# -- a table of Parquet files: commits, and the state that they add up to --------------------------
#
# A table is the fold of its commits.  A commit has a number, adds and removes files, and says which
# batch of which query it is.
#
#     commit 1 (query a, batch 0, seqs 1-900)  ->  commit 2 (query a, batch 1, seqs 901-1700)
#        + 2 files                                    + 2 files
#
# Invariants:
# - A batch of a query is in a table once: its number is larger than those of all earlier batches.
# - A table never goes back: a batch begins after the end of everything in it.  If a query reads the
#   same rows again, because it has lost its checkpoint, its batch is refused.


# To change the format: raise the number, keep reading earlier versions, and keep a sample.
VERSION: Final = 1


class BackwardsError(FjordError):
    """A batch has rows that are already in the table; nothing was written."""


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
    """The progress of a query."""

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


def check_table(where: str, held: str, table: str) -> None:
    """Ensures that a folder with rows of the table `held`, if any, belongs to `table`.

    Raises:
        FjordError: if it does not.
    """
    if held and held != table:
        raise FjordError(
            f"{where} holds the table {held!r}, not {table!r}; give each its own folder"
        )


def check_batch(end: int, table: str, batch: QueryBatch, where: str) -> None:
    """Ensures that a batch continues where the copy of `table` ends.

    Raises:
        BackwardsError: if it begins before that.
        FjordError: if it is of another table.
    """
    check_table(where, table, batch.table)
    if end and batch.start <= end:
        raise BackwardsError(
            f"{where} has everything up to seq {end}, and batch {batch.number} of query "
            f"{batch.query} begins at {batch.start}: another query writes to it too, or this one "
            "has an old checkpoint. Stop the other one, or remove the checkpoint to continue at "
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
    return _encode(asdict(commit))


def decode_commit(data: bytes, path: str) -> Commit:
    """Reads a commit; unknown members are from a later version, and ignored.

    Raises:
        CorruptionError: if it is not a commit.
    """
    found = _decode(data, path)
    batch = found.get("batch")
    return _record(
        Commit,
        found,
        path,
        batch=None if batch is None else _record(QueryBatch, batch, path),
        added=tuple(_record(DataFile, one, path) for one in _of(found, "added", list, path)),
        removed=tuple(str(one) for one in _of(found, "removed", list, path)),
    )


def encode_state(state: TableState) -> bytes:
    files = [asdict(one) for one in state.files.values()]
    return _encode({**asdict(state), "files": files})


def decode_state(data: bytes, path: str) -> TableState:
    """Reads a checkpoint.

    Raises:
        CorruptionError: if it is not a checkpoint.
    """
    found = _decode(data, path)
    files = [_record(DataFile, one, path) for one in _of(found, "files", list, path)]
    queries = _of(found, "queries", dict, path)
    return _record(
        TableState,
        found,
        path,
        queries={name: _record(Query, one, path) for name, one in queries.items()},
        files={one.path: one for one in files},
    )


def _encode(found: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, **found}, indent=1).encode() + b"\n"


def _decode(data: bytes, path: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(path, 0, f"it is not JSON ({error})") from error
    if not isinstance(found, dict) or not isinstance(found.get("version"), int):
        raise CorruptionError(path, 0, "it was not written by Fjord")
    if found["version"] > VERSION:
        raise FjordError(
            f"{path} has version {found['version']}, and this version of Fjord knows {VERSION}; "
            "install a newer one"
        )
    return found


_Record = TypeVar("_Record", Commit, DataFile, Query, QueryBatch, TableState)
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "str": (str,),
    "int | None": (int, type(None)),
}


# Members that older files lack, with the values that they imply.
_NEW: Final[dict[str, str]] = {"columns": "", "ops": ""}


def _record(kind: type[_Record], found: object, path: str, **read: Any) -> _Record:
    """Returns a record of numbers and texts; unknown members are ignored.

    Args:
        read: members of other types, which have already been read.
    """
    if not isinstance(found, dict):
        raise CorruptionError(path, 0, f"{found!r} is no {kind.__name__}")
    plain = {
        one.name: _of(found, one.name, _KINDS[str(one.type)], path)
        for one in fields(kind)
        if one.name not in read
    }
    return kind(**plain, **read)


def _of(found: Mapping[str, Any], name: str, kind: type | tuple[type, ...], path: str) -> Any:
    value = found.get(name, _NEW.get(name))
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CorruptionError(path, 0, f"its member {name} is missing, or of the wrong type")
    return value
