"""SourceOptions: what users may write, and what they are told when it is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import fjord
from fjord.blocks import rows, schema
from fjord.errors import FjordError
from fjord.spark import options
from fjord.spark.options import LATEST, Location, Position, SourceOptions

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"


def test_every_option_of_a_batch_in_any_case() -> None:
    given = {
        "SERVER": "127.0.0.1:17994",
        "Table": "events",
        "startingseq": "5",
        "endingOffsets": "9",
        "partitions": "3",
        "maxRowsPerPartition": "1000",
        "FAILONDATALOSS": "False",
        "columns": "seq, key",
        "view": "LOG",
        "ops": "add,done",
        "keyPrefix": "é",
        "blocks": "s3://bucket",
    }
    assert options.parse(given) == SourceOptions(
        location=Location(server="127.0.0.1:17994"),
        table="events",
        start=Position(seq=5),
        end=Position(seq=9),
        partitions=3,
        partition_rows=1000,
        fails_on_loss=False,
        columns=("seq", "key"),
        ops=frozenset({"ADD", "DONE"}),
        key_prefix="é".encode(),
        blocks="s3://bucket",
    )


def test_every_option_of_a_stream() -> None:
    given = {
        "server": "h:1",
        "startingOffsets": "latest",
        "maxRowsPerTrigger": "10",
        "maxBytesPerTrigger": "20",
        "minRowsPerTrigger": "5",
        "maxTriggerDelay": "500 ms",
        "subscriber": "spark",
    }
    assert options.parse(given, is_stream=True) == SourceOptions(
        location=Location(server="h:1"),
        start=LATEST,
        rows_max=10,
        bytes_max=20,
        rows_min=5,
        delay_seconds=0.5,
        subscriber="spark",
    )


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, Position(word="earliest")),
        ({"startingOffsets": "Earliest"}, Position(word="earliest")),
        ({"startingOffsets": "7"}, Position(seq=7)),
        ({"startingSubscriber": "spark"}, Position(subscriber="spark")),
        (
            {"startingTimestamp": "2026-01-31T12:00:00Z"},
            Position(at=datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ),
        (
            {"startingTimestamp": "2026-01-31T12:00:00+01:00"},
            Position(at=datetime(2026, 1, 31, 11, tzinfo=UTC)),
        ),
    ],
)
def test_places_to_start(given: dict[str, str], place: Position) -> None:
    assert options.parse({"path": "data", **given}).start == place


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"path": ""}, "either the option path"),
        ({"server": "host:1"}, "either the option path"),
        ({"tabel": "x"}, "unknown option tabel; the options are path, server"),
        ({"startingSeq": "0"}, "startingSeq is a number from 1"),
        ({"endingSeq": "-1"}, "endingSeq is a number from 1"),
        ({"startingSeq": "²"}, "startingSeq is a number from 1"),
        ({"partitions": "1025"}, "partitions is a number from 1 to 1024"),
        ({"startingSeq": "9", "endingSeq": "8"}, "smaller than startingSeq"),
        ({"startingOffsets": "first"}, "startingOffsets is earliest, latest or a seq from 1"),
        ({"endingOffsets": "earliest"}, "endingOffsets is latest or a seq from 1 on"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is a date such as"),
        ({"endingTimestamp": "2026-01-31T12:00"}, "endingTimestamp has no time zone in"),
        (
            {"startingSeq": "1", "startingOffsets": "1"},
            "startingOffsets and startingSeq exclude each other",
        ),
        (
            {"startingTimestamp": "2026-01-02T00:00Z", "endingTimestamp": "2026-01-01T00:00Z"},
            "endingTimestamp is before startingTimestamp",
        ),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is true or false, not 'maybe'"),
        ({"view": "all"}, "view is log or latest"),
        ({"columns": "seq,seq"}, "the column 'seq' is given twice"),
        ({"ops": "ADD,RESERVE"}, "there are no ops RESERVE"),
        ({"maxRowsPerTrigger": "5"}, "maxRowsPerTrigger is of no use for a batch"),
        ({"subscriber": "a"}, "subscriber is of no use for a batch"),
        ({"view": "latest", "ops": "SET"}, "ops is of no use with view=latest"),
    ],
)
def test_wrong_options_of_a_batch_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(FjordError, match=problem):
        options.parse({"path": "data", **given})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"endingOffsets": "5"}, "endingOffsets is of no use for a stream"),
        ({"view": "latest"}, "view=latest is for a batch"),
        ({"maxTriggerDelay": "15 minutes"}, "maxTriggerDelay is a time such as 30s or 15m"),
        (
            {"minRowsPerTrigger": "9", "maxRowsPerTrigger": "5"},
            "minRowsPerTrigger is larger than maxRowsPerTrigger",
        ),
        ({"subscriber": "a"}, "the option subscriber needs the option server"),
    ],
)
def test_wrong_options_of_a_stream_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(FjordError, match=problem):
        options.parse({"path": "data", **given}, is_stream=True)


def test_ops_are_those_that_rows_are_called() -> None:
    named = {name for name in rows.NAMES.values() if name}
    assert named | {*rows.HOW_NAMES, "MOVE_DEAD"} == options.OPS


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(FjordError, match=f"no directory {tmp_path}/data; check the option path"):
        Location(path=str(tmp_path / "data")).open()


def test_page_names_every_option_and_column() -> None:
    page = PAGE.read_text()
    named = [*options.NAMES, *schema.COLUMNS]
    assert [name for name in named if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900.0), ("30s", 30.0), ("2h", 7200.0), ("1d", 86400.0)]
)
def test_delays(text: str, seconds: float) -> None:
    found = options.parse({"path": "data", "maxTriggerDelay": text}, is_stream=True)
    assert found.delay_seconds == seconds
    assert SourceOptions(location=Location(path="/")).delay_seconds == 900.0


def test_a_directory_is_opened_for_reading(tmp_path: Path) -> None:
    with fjord.open(tmp_path) as database:
        database.kv().set("k", 1)
    location = Location(path=str(tmp_path))
    with location.open() as database:
        assert database.kv().get("k") == 1
        with pytest.raises(fjord.RefusedError, match="READ_ONLY"):
            database.kv().set("k", 2)
    assert str(location) == str(tmp_path)
