"""Staging: what is asked for until a batch is written, blocking and awaited."""

from __future__ import annotations

from typing import Any

import pytest

from fjord.columns import Strings
from fjord.commands import Append, AskWriter, CommitStages, Committed, Done, Push, Set, Stage
from fjord.errors import RemoteProtocolError
from tests.unit.client.test_database_streams import blocking

ROWS = Strings.of([b"a", b"b"])
STAGED = Done(master=b"m" * 16, seq=42)
COMMIT = CommitStages(table="t", writer="w", batch=3, stages=[5, 7])


def committed(**options: Any) -> Committed:
    given: dict[str, Any] = {"batch": 3, "is_new": True, "left": 0, "rows": 0, "seq": 9}
    return Committed(**given | options)


def test_rows_are_staged_as_the_command_that_would_write_them() -> None:
    db, asked = blocking(STAGED, STAGED, STAGED)
    staging = db.staging("t")
    stamps = [1, 2]
    jobs: dict[str, Any] = {
        "keys": ROWS,
        "domains": ROWS,
        "types": b"\1\1",
        "values": ROWS,
        "priorities": b"\0\0",
        "process_at_us": [0, 0],
        "expires_at_us": [0, 0],
        "timestamps_us": stamps,
    }
    values: dict[str, Any] = {"keys": ROWS, "types": b"\1\1", "values": ROWS}
    assert staging.append(b"\1\1", ROWS, ROWS) == 42
    assert staging.push(**jobs) == 42
    assert staging.set(**values, timestamps_us=stamps) == 42
    assert asked == [
        Stage(rows=Append(table="t", types=b"\1\1", keys=ROWS, values=ROWS)),
        Stage(rows=Push(table="t", **jobs)),
        Stage(rows=Set(table="t", **values, timestamps_us=stamps)),
    ]


def test_a_commit_is_asked_for_until_nothing_is_left() -> None:
    db, asked = blocking(
        committed(left=2), committed(left=1, rows=10), committed(is_new=False, rows=5)
    )
    found = db.staging("t").commit("w", 3, (5, 7))
    assert found == committed(rows=15)
    assert asked == [COMMIT] * 3


def test_a_server_that_does_not_come_to_an_end_is_left() -> None:
    db, _ = blocking(committed(left=2), committed(left=2))
    with pytest.raises(RemoteProtocolError, match="makes no progress"):
        db.staging("t").commit("w", 3, [5, 7])


def test_the_last_batch_of_a_writer() -> None:
    db, asked = blocking(committed(), committed(batch=-1))
    assert [db.staging("t").last_batch("w"), db.staging("t").last_batch("x")] == [3, None]
    assert asked == [AskWriter(table="t", writer="w"), AskWriter(table="t", writer="x")]
