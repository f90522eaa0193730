"""Delta tables without a jar: Spark writes rows, the library `deltalake` commits.

A batch is recorded in the commit that adds its files, as an *app transaction*: a name with a
number that only grows.  A table has these:

    <query id>          the last batch of a query
    <query id>.start    the first seq of its first batch
    fjord.end           everything up to this seq is in the table

The library records them but does not enforce them (delta-rs#3821).  So they are checked first, and
a commit is tried for the next version only; if that is taken, everything is checked again.  So two
writers cannot both commit the same batch.  Any Delta reader reads the table; Spark without its jars
gets the list of files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from fjord.blocks import rows
from fjord.blocks.files import Target
from fjord.clock import Clock, SystemClock
from fjord.errors import FjordError
from fjord.spark import warehouse
from fjord.spark.warehouse import DataFile, Query, QueryBatch, TableState

try:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction
except ModuleNotFoundError as error:
    raise FjordError(
        f"Delta tables need {error.name}: pip install 'fjord-journal[delta]'"
    ) from error

END: Final = "fjord.end"
# A writer that loses the race for a version this often is not the only one, as it should be.
CONFLICTS_MAX: Final = 20
# How far back the epoch of the last batch is looked for; others may have committed since.
COMMITS_LOOKED_AT_MAX: Final = 100

_TABLE: Final = "fjord.table"
_COLUMNS: Final = "fjord.columns"
_OPS: Final = "fjord.ops"
_START: Final = "fjord.start"
_EPOCH: Final = "fjord.epoch"
_SUMS: Final = "fjord.value_crc"


class DeltaWarehouse:
    """A Delta table.  Used by one thread at a time."""

    def __init__(self, target: Target, *, clock: Clock | None = None) -> None:
        self.target = target
        self._clock = clock or SystemClock()

    def state(self) -> TableState:
        table = self._table()
        if table is None:
            return TableState()
        end = table.transaction_version(END) or 0
        told = table.metadata().configuration
        return TableState(
            number=table.version() + 1,
            table=_source(table),
            epoch=_epoch(table, end),
            end=end,
            columns=str(told.get(_COLUMNS, "")),
            ops=str(told.get(_OPS, "")),
        )

    def has(self, query: str, batch: int) -> bool:
        """Says whether a batch is in the table."""
        table = self._table()
        return table is not None and _has(table, query, batch)

    def query(self, query: str) -> Query | None:
        """Returns the progress of a query, None if it has written nothing."""
        table = self._table()
        batch = None if table is None else table.transaction_version(query)
        if table is None or batch is None:
            return None
        return Query(batch=batch, start=table.transaction_version(f"{query}.start") or 1)

    def files(self) -> list[DataFile]:
        table = self._table()
        if table is None:
            return []
        sums: dict[str, int] = {}
        for commit in table.history():
            sums.update(commit.get(_SUMS, {}))
        found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [
            DataFile(
                path=one["path"],
                rows=one["num_records"],
                bytes=one["size_bytes"],
                min_seq=one["min.seq"],
                max_seq=one["max.seq"],
                value_crc=sums.get(one["path"]),
            )
            for one in found
        ]

    def add(self, batch: QueryBatch, files: Sequence[DataFile]) -> bool:
        for _ in range(CONFLICTS_MAX):
            table = self._table() or self._create(batch)
            if _has(table, batch.query, batch.number):
                return False
            end = table.transaction_version(END) or 0
            warehouse.check_batch(end, _source(table), batch, self.target.location)
            try:
                table.create_write_transaction(
                    [self._action(one) for one in files],
                    "append",
                    rows.SCHEMA,
                    commit_properties=_properties(table, batch, files, end),
                )
            except CommitFailedError:
                continue  # somebody was faster: look at what is there now
            return True
        raise FjordError(
            f"{self.target.location} has too many concurrent writers; only one query should write"
        )

    def _table(self) -> DeltaTable | None:
        location = self.target.location
        return DeltaTable(location) if DeltaTable.is_deltatable(location) else None

    def _create(self, batch: QueryBatch) -> DeltaTable:
        told = {_TABLE: batch.table, _COLUMNS: batch.columns, _OPS: batch.ops}
        return DeltaTable.create(
            self.target.location,
            rows.SCHEMA,
            mode="ignore",
            configuration={name: text for name, text in told.items() if text},
            raise_if_key_not_exists=False,
        )

    def _action(self, file: DataFile) -> AddAction:
        statistics = {
            "numRecords": file.rows,
            "minValues": {"seq": file.min_seq},
            "maxValues": {"seq": file.max_seq},
        }
        return AddAction(
            path=file.path,
            size=file.bytes,
            partition_values={},
            modification_time=self._clock.wall_us() // 1000,
            data_change=True,
            stats=json.dumps(statistics),
        )


def _properties(
    table: DeltaTable, batch: QueryBatch, files: Sequence[DataFile], end: int
) -> CommitProperties:
    transactions = [Transaction(batch.query, batch.number), Transaction(END, max(end, batch.end))]
    if table.transaction_version(batch.query) is None:
        transactions.append(Transaction(f"{batch.query}.start", batch.start))
    told: dict[str, Any] = {
        "fjord.batch": batch.number,
        _START: batch.start,
        _SUMS: {one.path: one.value_crc for one in files},
    }
    if batch.epoch:
        told[_EPOCH] = batch.epoch
    # Without retries: what is checked above must hold for the version that is written.
    return CommitProperties(
        custom_metadata=told, max_commit_retries=0, app_transactions=transactions
    )


def _has(table: DeltaTable, query: str, batch: int) -> bool:
    known = table.transaction_version(query)
    return known is not None and batch <= known


def _epoch(table: DeltaTable, end: int) -> str:
    """Returns the epoch in which the end of a table was written; empty if unknown."""
    for commit in table.history(COMMITS_LOOKED_AT_MAX):  # the newest one first
        if commit.get(_EPOCH):
            return str(commit[_EPOCH])
        if commit.get(_START, end + 1) <= end:
            break  # it goes up to the end, and does not know; those before end before it
    return ""


def _source(table: DeltaTable) -> str:
    return str(table.metadata().configuration.get(_TABLE, ""))
