"""What tasks do, without Spark: the same rows from blocks and from the journal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fjord
from fjord import limits
from fjord.client.history import BlockInfo
from fjord.errors import Code, CorruptionError, FjordError, RefusedError, UnavailableError
from fjord.spark import tasks
from fjord.spark.options import Location, SourceOptions
from fjord.spark.source import ColdPartition, Share, TailPartition
from tests.unit.spark import parts


def cold(
    wanted: SourceOptions, shares: Sequence[Share], start_seq: int = 1, end_seq: int = 10**9
) -> ColdPartition:
    return ColdPartition(wanted=wanted, shares=tuple(shares), start_seq=start_seq, end_seq=end_seq)


def seqs(batches: Any) -> list[int]:
    return [seq for batch in batches for seq in batch["seq"].to_pylist()]


@pytest.fixture
def block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlockInfo:
    """A block of 20 rows in parts of 5."""
    monkeypatch.setattr(limits, "BLOCK_PART_ROWS", 5)
    return parts.one_block(tmp_path, [10, 10])


def test_shares_have_every_part_once_wherever_they_are_cut(block: BlockInfo) -> None:
    for bounds in ([0, 20], [0, 7, 20], [0, 1, 2, 3, 20], list(range(21))):
        shares = [Share(block, one, two) for one, two in pairwise(bounds)]
        found = [seqs(tasks.read_cold(cold(parts.wanted(), [share]))) for share in shares]
        assert list(chain.from_iterable(found)) == list(range(1, 21))


@pytest.mark.parametrize(("start", "end"), [(1, 21), (3, 4), (5, 6), (6, 16), (20, 99), (4, 4)])
def test_a_range_is_cut_out_of_parts(block: BlockInfo, start: int, end: int) -> None:
    found = tasks.read_cold(cold(parts.wanted(), [Share(block, 0, 20)], start, end))
    assert seqs(found) == list(range(start, min(end, 21)))


@pytest.fixture
def place(mixed: Path) -> Location:
    return Location(path=str(mixed))


def blocks_of(place: Location) -> list[BlockInfo]:
    with place.open() as database:
        return database.blocks("events")


def tail(wanted: SourceOptions, start_seq: int, end_seq: int) -> TailPartition:
    return TailPartition(wanted=wanted, start_seq=start_seq, end_seq=end_seq)


def test_blocks_and_journal_have_the_same_rows(place: Location) -> None:
    wanted, blocks = parts.wanted(location=place), blocks_of(place)
    end = blocks[-1].last + 1
    shares = [Share(block, 0, block.rows) for block in blocks]
    from_blocks = pa.Table.from_batches(tasks.read_cold(cold(wanted, shares)))
    from_journal = pa.Table.from_batches(tasks.read_tail(tail(wanted, 1, end)))
    assert from_blocks.num_rows == 300
    assert from_blocks.equals(from_journal)


@pytest.mark.parametrize("end", [150, 10**9])
def test_rows_are_chosen_by_op_and_by_key(place: Location, end: int) -> None:
    blocks = blocks_of(place)
    shares = [Share(block, 0, block.rows) for block in blocks]
    last = min(end, blocks[-1].last + 1)
    for chosen, count in (({"key_prefix": b"a"}, 2), ({"ops": frozenset({"APPEND"})}, 1)):
        wanted = parts.wanted(location=place, columns=("seq", "value"), **chosen)
        from_blocks = seqs(tasks.read_cold(cold(wanted, shares, 1, last)))
        assert from_blocks == seqs(tasks.read_tail(tail(wanted, 1, last)))
        whole = seqs(tasks.read_tail(tail(parts.wanted(location=place), 1, last)))
        assert len(from_blocks) == -(-len(whole) // count)
    none = parts.wanted(location=place, ops=frozenset({"DONE"}))
    assert seqs(tasks.read_cold(cold(none, shares))) == []
    assert seqs(tasks.read_tail(tail(none, 1, last))) == []


def test_a_block_that_was_replaced_is_read_from_others(place: Location) -> None:
    wanted, blocks = parts.wanted(location=place), blocks_of(place)
    old = parts.block(blocks[0].first, blocks[1].last, 200)  # it was split, say
    assert len(seqs(tasks.read_cold(cold(wanted, [Share(old, 0, 200)])))) == 200
    with pytest.raises(FjordError, match="was replaced while it was read; run the query again"):
        list(tasks.read_cold(cold(wanted, [Share(old, 0, 100)])))


class Packed:
    """A database whose journal begins later than was believed."""

    def __init__(self, database: fjord.Database, first_seq: int) -> None:
        self._database = database
        self._first_seq = first_seq

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def __enter__(self) -> Packed:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def stats(self) -> dict[str, int]:
        return {"first_seq": self._first_seq}

    def scan(self, table: str, start_seq: int, end_seq: int, **more: Any) -> Any:
        if start_seq < self._first_seq:
            raise RefusedError(Code.BAD_RANGE, "it is in cold blocks")
        return self._database.scan(table, start_seq, end_seq, **more)


@pytest.fixture
def packed(place: Location, monkeypatch: pytest.MonkeyPatch) -> int:
    """The journal begins inside of the last block; returns where."""
    first_seq = blocks_of(place)[-1].first + 20
    opened = Location.open
    monkeypatch.setattr(Location, "open", lambda self: Packed(opened(self), first_seq))
    return first_seq


def test_what_has_left_the_journal_is_read_from_blocks(
    place: Location, packed: int, mixed: Path
) -> None:
    with fjord.open(mixed, read_only=True) as database:
        whole = pa.concat_tables(database.scan_arrow("events"))
    for start in (1, 150, packed - 1, packed, packed + 50):
        found = tasks.read_tail(tail(parts.wanted(location=place), start, 10**6))
        wanted = [seq for seq in whole["seq"].to_pylist() if seq >= start]
        assert seqs(found) == wanted


def test_what_is_gone_is_said(place: Location, packed: int, caplog: Any) -> None:
    lossy = parts.wanted(location=place, has_history=False, fails_on_loss=False)
    strict = parts.wanted(location=place, has_history=False)
    missing = f"the rows of events from seq 5 to {packed - 1} are gone and were not read"
    with pytest.raises(FjordError, match=f"{missing}.*failOnDataLoss"):
        list(tasks.read_tail(tail(strict, 5, 10**6)))
    found = seqs(tasks.read_tail(tail(lossy, 5, 10**6)))
    assert min(found) >= packed
    assert missing in caplog.text


def test_a_daemon_that_goes_away_is_asked_again_from_the_last_row(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned, asked = tasks._scanned, []

    def breaking(database: Any, wanted: SourceOptions, start_seq: int, end_seq: int) -> Any:
        asked.append(start_seq)
        for number, found in enumerate(scanned(database, wanted, start_seq, end_seq)):
            batch, _ = found
            half = batch.slice(0, batch.num_rows // 2 + 1)
            yield half, half["seq"][-1].as_py() + 1
            if number == 0 and half.num_rows < batch.num_rows:
                raise UnavailableError

    monkeypatch.setattr(tasks, "_scanned", breaking)
    monkeypatch.setattr(tasks, "_TRIES", 20)
    wanted = parts.wanted(location=place)
    found = seqs(tasks.read_tail(tail(wanted, 1, 10**6)))
    assert len(found) == len(set(found)) == 350
    assert len(asked) > 3
    assert asked == sorted(asked)


def test_another_file_than_the_node_means_is_refused(block: BlockInfo) -> None:
    for other in (block._replace(bytes=block.bytes + 1), block._replace(rows=19)):
        with pytest.raises(CorruptionError, match="it has "):
            list(tasks.read_cold(cold(parts.wanted(), [Share(other, 0, 20)])))


def test_damage_is_found(block: BlockInfo) -> None:
    path = Path(block.location) / f"{block.name}.parquet"
    data = bytearray(path.read_bytes())
    data[200] ^= 255
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=block.name):
        list(tasks.read_cold(cold(parts.wanted(), [Share(block, 0, 20)])))


def test_a_block_that_is_not_seen_here_is_named(place: Location, tmp_path: Path) -> None:
    wanted = parts.wanted(location=place, blocks=str(tmp_path))
    (first, *_) = blocks_of(place)
    with pytest.raises(FjordError, match=f"cannot find the block {tmp_path}.*option blocks"):
        list(tasks.read_cold(cold(wanted, [Share(first, 0, first.rows)])))
