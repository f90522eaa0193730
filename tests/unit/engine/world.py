"""Engines on real directories, and commands in short words, for the tests of this package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fjord.columns import Strings
from fjord.commands import Acted, Delete, Done, Entries, Get, Reply, Set
from fjord.engine import Engine, EngineSettings, ReadOnlyEngine, open_engine
from fjord.testing import SimClock

TABLE = "default"
SEGMENT_BYTES = 64 * 1024
INDEX_STEP_BYTES = 1024 * 1024


def settings(
    clock: SimClock | None = None, *, segment_bytes: int = SEGMENT_BYTES
) -> EngineSettings:
    return EngineSettings(
        segment_bytes=segment_bytes,
        index_step_bytes=INDEX_STEP_BYTES,
        rebuild_rows=1000,
        clock=clock or SimClock(),
    )


def open_at(path: Path, clock: SimClock | None = None) -> Engine:
    return open_engine(str(path), settings(clock))


def check_tokens(engine: Engine, replies: Sequence[Reply]) -> None:
    """Asserts that the tokens of one run name this writer and rise to the end of the journal.

    While a snapshot is open, what is kept for it may follow what a command has written.
    """
    tokens = [reply for reply in replies if isinstance(reply, Done | Acted)]
    seqs = [token.seq for token in tokens]
    assert {token.master for token in tokens} <= {engine.master}
    assert seqs == sorted(seqs)
    if tokens and tokens[-1] is replies[-1]:
        assert seqs[-1] <= engine.applied_seq
        assert seqs[-1] == engine.applied_seq or engine.memory.snapshots


def set_command(items: dict[bytes, bytes], *, timestamp_us: int, table: str = TABLE) -> Set:
    return Set(
        table=table,
        keys=Strings.of(list(items)),
        types=b"\1" * len(items),
        values=Strings.of(list(items.values())),
        timestamps_us=[timestamp_us] * len(items),
    )


def write(engine: Engine, clock: SimClock, items: dict[bytes, bytes]) -> Reply:
    """Sets values and makes them durable."""
    clock.advance(0.001)
    (reply,) = engine.run([set_command(items, timestamp_us=clock.wall_us())])
    engine.sync()
    return reply


def delete(engine: Engine, clock: SimClock, *keys: bytes) -> None:
    clock.advance(0.001)
    command = Delete(table=TABLE, keys=Strings.of(keys), timestamp_us=clock.wall_us())
    engine.run([command])
    engine.sync()


def read(engine: Engine | ReadOnlyEngine, *keys: bytes) -> list[bytes | None]:
    (reply,) = engine.run([Get(table=TABLE, keys=Strings.of(keys))])
    assert isinstance(reply, Entries), reply
    rows = zip(reply.types, reply.values.rows(), strict=True)
    return [None if type_ == Entries.MISSING else value for type_, value in rows]
