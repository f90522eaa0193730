"""The columns of a table's history, the same in every source, block and pipeline.

A row is one row of one op.  Columns that a kind of table does not have are null, and every column
may be null: Spark reads back what it wrote to Parquet as nullable, and a union of both needs one
schema.
"""

from __future__ import annotations

from typing import Final

# Names and Spark types.
COLUMNS: Final[dict[str, str]] = {
    "seq": "bigint",  # of this row; one order over all tables
    "ts": "timestamp",  # when its commit was written, by the server's clock
    "txn": "bigint",  # last seq of its commit: rows with the same one became visible together
    "op": "string",  # what happened: SET, DELETE, EXPIRE, PURGE, MOVE, ADD, TAKE, DONE..
    "row": "bigint",  # seq of the row that this op is about
    "xid": "bigint",  # jobs: seq of the row in its TAKE
    "key": "binary",
    "domain": "string",
    "priority": "smallint",
    "process_at": "timestamp",
    "expires_at": "timestamp",  # null = never
    "timeouts": "smallint",
    "producer": "string",
    "type": "tinyint",  # `fjord.values.Type`
    "value": "binary",
}

DDL: Final = ", ".join(f"`{name}` {type_}" for name, type_ in COLUMNS.items())
