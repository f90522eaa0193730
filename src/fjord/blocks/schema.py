"""The columns of a table's history, the same in every source, block and pipeline.

A row is one row of one op.  Columns that a kind of table does not have are null, and every column
is nullable: Spark reads back what it wrote to Parquet as nullable, and a union of both needs one
schema.
"""

from __future__ import annotations

from typing import Final

# Names and Spark types.
COLUMNS: Final[dict[str, str]] = {
    "seq": "bigint",  # of this row; one order over all tables
    "ts": "timestamp",  # when its commit was written, by the server's clock
    "txn": "bigint",  # last seq of its commit: rows with the same one became visible together
    "op": "string",  # what happened, by the names in docs/spark.md
    "row": "bigint",  # seq of the row that this op changes; a job has one for its whole life
    "xid": "bigint",  # jobs: the lease that began or ended, which is the seq of its TAKE
    "key": "binary",
    "domain": "string",  # jobs: as given, or that of the key
    "priority": "smallint",  # jobs
    "process_at": "timestamp",  # jobs
    "expires_at": "timestamp",  # null = never
    "timeouts": "smallint",  # jobs
    "producer": "string",  # not used yet
    "type": "tinyint",  # `fjord.values.Type`
    "value": "binary",  # of a dead job: the reason
}

DDL: Final = ", ".join(f"`{name}` {type_}" for name, type_ in COLUMNS.items())
