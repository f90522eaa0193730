"""Rows of declared columns compared to untyped values of the same size, and to the same as JSON.

Each round measures all of them in turn, so that a slow moment of the machine affects all.  A
program that keeps rows in untyped values has to encode them somehow, mostly as JSON, so that is
measured too, including the time for `json`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

import fjord
from benchmarks import servers
from benchmarks.report import console
from benchmarks.scale import Scale
from fjord.declared import rows as declared_rows
from fjord.declared import schema

AIM = 1.3
COLUMNS: Any = {
    "uri": ("string", True),
    "depth": "uint8",
    "site": "int32",
    "score": "float64",
    "tag": "string",
    "ok": "boolean",
}
JOBS = 1_000  # of one push and one next
MESSAGES = 10_000  # of one append
PUSHES = 200  # one by one
# URIs end with numbers of one to nine digits, each of them once, so rows differ in length.
SPREAD, NUMBERS = 7_368_787, 179_424_673

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """The same rows in all forms."""

    rows: Sequence[Row]
    columns: dict[str, list[Any]]
    keys: list[str]
    encoded: list[bytes]  # untyped values of the same size

    @classmethod
    def of(cls, numbers: range) -> Rows:
        rows: list[Row] = [
            {
                "uri": f"http://example.com/page/{number * SPREAD % NUMBERS}",
                "depth": number % 200,
                "site": number,
                "score": number / 3,
                "tag": "news",
                "ok": True,
            }
            for number in numbers
        ]
        encoded, _ = declared_rows.of(schema.read(COLUMNS)).encode(rows)
        columns = {name: [row[name] for row in rows] for name in COLUMNS}
        return cls(rows, columns, columns["uri"], encoded)


# A piece of work on some rows; returns its seconds.
Work = Callable[[fjord.Database, Rows], float]


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: the same work typed, untyped and as JSON."""

    name: str
    typed: Work
    untyped: Work
    as_json: Work
    rows: int
    aim: float | None = AIM


def run(scale: Scale) -> None:
    table = Table("typed rows", "typed /s", "untyped /s", "JSON /s", "cost, of untyped", "target")
    for line in LINES:
        typed, untyped, as_json = _seconds(line, scale)
        ratio = typed / untyped
        missed = "  missed" if line.aim is not None and ratio > line.aim else ""
        aim = "no target" if line.aim is None else f"{line.aim}{missed}"
        rates = [f"{line.rows / seconds:,.0f}" for seconds in (typed, untyped, as_json)]
        table.add_row(line.name, *rates, f"{ratio:.2f}", aim)
    console.print(table)


def _seconds(line: Line, scale: Scale) -> list[float]:
    """Returns the seconds of each form, the median of rounds."""
    works = (line.typed, line.untyped, line.as_json)
    taken: list[list[float]] = [[] for _ in works]
    with (
        servers.data_directory() as directory,
        servers.Daemon(directory) as daemon,
        fjord.connect(daemon.url) as db,
    ):
        db.create_jobs("typed_jobs", columns=COLUMNS, key="uri")
        db.create_stream("typed_stream", columns=COLUMNS)
        for work in works:  # connections and columns are known afterwards
            work(db, Rows.of(range(line.rows)))
        for round_ in range(1, scale.rounds * REPEATS + 1):
            for found, work in zip(taken, works, strict=True):
                found.append(work(db, Rows.of(range(round_ * line.rows, (round_ + 1) * line.rows))))
    return [statistics.median(found) for found in taken]


REPEATS = 4  # a round is short


def _timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


# -- jobs -----------------------------------------------------------------------------------------


def _push_rows(db: fjord.Database, given: Rows) -> float:
    return _pushed(db, "typed_jobs", lambda jobs: jobs.push_many(given.rows))


def _push_columns(db: fjord.Database, given: Rows) -> float:
    return _pushed(db, "typed_jobs", lambda jobs: jobs.push_many(values=given.columns))


def _push_bytes(db: fjord.Database, given: Rows) -> float:
    return _pushed(
        db,
        "untyped_jobs",
        lambda jobs: jobs.push_many(keys=given.keys, values=given.encoded),
    )


def _push_json(db: fjord.Database, given: Rows) -> float:
    def push(jobs: fjord.Jobs) -> None:
        jobs.push_many(keys=given.keys, values=[json.dumps(row).encode() for row in given.rows])

    return _pushed(db, "json_jobs", push)


def _pushed(db: fjord.Database, table: str, push: Callable[[fjord.Jobs], object]) -> float:
    """Returns the seconds of a push; the pushed jobs are removed again."""
    jobs = db.jobs(table)
    seconds = _timed(lambda: push(jobs))
    while jobs.next(JOBS, done=True):
        pass
    return seconds


def _take_rows(db: fjord.Database, given: Rows) -> float:
    jobs = db.jobs("typed_jobs")
    jobs.push_many(given.rows)
    return _taken(jobs, lambda value: value)


def _take_bytes(db: fjord.Database, given: Rows) -> float:
    jobs = db.jobs("untyped_jobs")
    jobs.push_many(keys=given.keys, values=given.encoded)
    return _taken(jobs, lambda value: value)


def _take_json(db: fjord.Database, given: Rows) -> float:
    jobs = db.jobs("json_jobs")
    jobs.push_many(keys=given.keys, values=[json.dumps(row).encode() for row in given.rows])
    return _taken(jobs, json.loads)


def _taken(jobs: fjord.Jobs, read: Callable[[Any], object]) -> float:
    def act() -> None:
        batch = jobs.next(JOBS)
        for job in batch:
            read(job.value)
        jobs.done_many(batch)

    return _timed(act)


def _push_each_row(db: fjord.Database, given: Rows) -> float:
    def push(jobs: fjord.Jobs) -> None:
        for row in given.rows:
            jobs.push(row)

    return _pushed(db, "typed_jobs", push)


def _push_each_bytes(db: fjord.Database, given: Rows) -> float:
    def push(jobs: fjord.Jobs) -> None:
        for key, value in zip(given.keys, given.encoded, strict=True):
            jobs.push(key, value)

    return _pushed(db, "untyped_jobs", push)


def _push_each_json(db: fjord.Database, given: Rows) -> float:
    def push(jobs: fjord.Jobs) -> None:
        for row in given.rows:
            jobs.push(row["uri"], json.dumps(row).encode())

    return _pushed(db, "json_jobs", push)


# -- streams --------------------------------------------------------------------------------------


def _append_rows(db: fjord.Database, given: Rows) -> float:
    return _timed(lambda: db.stream("typed_stream").append_many(given.rows))


def _append_columns(db: fjord.Database, given: Rows) -> float:
    return _timed(lambda: db.stream("typed_stream").append_many(given.columns))


def _append_bytes(db: fjord.Database, given: Rows) -> float:
    return _timed(lambda: db.stream("untyped_stream").append_many(given.encoded))


def _append_json(db: fjord.Database, given: Rows) -> float:
    def append() -> None:
        db.stream("json_stream").append_many([json.dumps(row).encode() for row in given.rows])

    return _timed(append)


def _read_rows(db: fjord.Database, given: Rows) -> float:
    seq = db.stream("typed_stream").append_many(given.rows)
    return _read(db.stream("typed_stream"), seq, list)


def _read_bytes(db: fjord.Database, given: Rows) -> float:
    seq = db.stream("untyped_stream").append_many(given.encoded)
    return _read(db.stream("untyped_stream"), seq, list)


def _read_json(db: fjord.Database, given: Rows) -> float:
    stream = db.stream("json_stream")
    seq = stream.append_many([json.dumps(row).encode() for row in given.rows])
    return _read(stream, seq, lambda values: list(map(json.loads, values)))


def _read(stream: fjord.Stream, seq: int, read: Callable[[list[Any]], object]) -> float:
    return _timed(lambda: read(stream.read(MESSAGES, after=seq - MESSAGES).values))


def _read_row_columns(db: fjord.Database, given: Rows) -> float:
    seq = db.stream("typed_stream").append_many(given.rows)
    return _timed(lambda: _batch(db, "typed_stream", seq).value_columns)


def _read_row_column(db: fjord.Database, given: Rows) -> float:
    seq = db.stream("typed_stream").append_many(given.rows)
    return _timed(lambda: _batch(db, "typed_stream", seq).column("uri"))


def _read_columns(db: fjord.Database, given: Rows) -> float:
    seq = db.stream("untyped_stream").append_many(given.encoded)
    return _timed(lambda: _batch(db, "untyped_stream", seq).columns)


def _read_json_columns(db: fjord.Database, given: Rows) -> float:
    def transposed(values: list[Any]) -> object:
        rows = list(map(json.loads, values))
        return {name: [row[name] for row in rows] for name in COLUMNS}

    stream = db.stream("json_stream")
    seq = stream.append_many([json.dumps(row).encode() for row in given.rows])
    return _read(stream, seq, transposed)


def _read_json_column(db: fjord.Database, given: Rows) -> float:
    stream = db.stream("json_stream")
    seq = stream.append_many([json.dumps(row).encode() for row in given.rows])
    return _read(stream, seq, lambda values: [json.loads(value)["uri"] for value in values])


def _batch(db: fjord.Database, stream: str, seq: int) -> fjord.MessageBatch:
    return db.stream(stream).read(MESSAGES, after=seq - MESSAGES)


LINES = [
    Line("push_many of 1,000, dicts", _push_rows, _push_bytes, _push_json, JOBS),
    Line("push_many of 1,000, columns", _push_columns, _push_bytes, _push_json, JOBS),
    Line("next(1000), all values, done", _take_rows, _take_bytes, _take_json, JOBS),
    Line("push, one by one", _push_each_row, _push_each_bytes, _push_each_json, PUSHES),
    Line("append_many of 10,000, dicts", _append_rows, _append_bytes, _append_json, MESSAGES),
    Line("append_many of 10,000, columns", _append_columns, _append_bytes, _append_json, MESSAGES),
    Line("read of 10,000, all values", _read_rows, _read_bytes, _read_json, MESSAGES),
    # Columns of an untyped stream are bytes as they came, not decoded.
    Line(
        "read of 10,000, all columns",
        _read_row_columns,
        _read_columns,
        _read_json_columns,
        MESSAGES,
        aim=None,
    ),
    Line(
        "read of 10,000, one column",
        _read_row_column,
        _read_columns,
        _read_json_column,
        MESSAGES,
        aim=None,
    ),
]
