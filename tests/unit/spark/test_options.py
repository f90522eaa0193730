"""Options: what users may write, and what they are told when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import fjord
from fjord.blocks import schema
from fjord.errors import FjordError
from fjord.spark import options
from fjord.spark.options import Location, Options

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"


def test_a_directory_is_made_absolute() -> None:
    assert options.parse({"path": "data"}) == Options(
        location=Location(path=str(Path("data").absolute()))
    )


def test_every_option_in_any_case() -> None:
    given = {
        "SERVER": "127.0.0.1:17994",
        "Table": "events",
        "startingseq": "5",
        "endingSeq": "9",
        "partitions": "3",
    }
    assert options.parse(given) == Options(
        location=Location(server="127.0.0.1:17994"),
        table="events",
        starting_seq=5,
        ending_seq=9,
        partitions=3,
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "either the option path"),
        ({"path": "data", "server": "host:1"}, "either the option path"),
        ({"path": "data", "tabel": "x"}, "unknown option tabel; the options are path, server"),
        ({"path": "data", "startingSeq": "0"}, "startingSeq is a number from 1"),
        ({"path": "data", "endingSeq": "-1"}, "endingSeq is a number from 1"),
        ({"path": "data", "startingSeq": "²"}, "startingSeq is a number from 1"),
        ({"path": "data", "partitions": "1025"}, "partitions is a number from 1 to 1024"),
        ({"path": "data", "startingSeq": "9", "endingSeq": "8"}, "smaller than startingSeq"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(FjordError, match=problem):
        options.parse(given)


@pytest.mark.parametrize(
    ("wanted", "seqs", "count"),
    [
        (0, 0, 1),
        (0, 1, 1),
        (0, options.SEQS_PER_PARTITION, 1),
        (0, options.SEQS_PER_PARTITION + 1, 2),
        (0, 10**12, options.DEFAULT_PARTITIONS_MAX),
        (5, 1_000, 5),
        (5, 3, 3),
        (5, 0, 1),
        (100, 10**12, 100),
    ],
)
def test_partition_count(wanted: int, seqs: int, count: int) -> None:
    assert options.partition_count(wanted, seqs) == count


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(FjordError, match=f"no directory {tmp_path}/data; check the option path"):
        Location(path=str(tmp_path / "data")).open()


def test_a_directory_is_opened_for_reading(tmp_path: Path) -> None:
    with fjord.open(tmp_path) as database:
        database.kv().set("k", 1)
    location = Location(path=str(tmp_path))
    with location.open() as database:
        assert database.kv().get("k") == 1
        with pytest.raises(fjord.RefusedError, match="READ_ONLY"):
            database.kv().set("k", 2)
    assert str(location) == str(tmp_path)


def test_a_missing_daemon_is_named() -> None:
    location = Location(server="fjord://127.0.0.1:1")
    with pytest.raises(fjord.UnavailableError, match=r"127\.0\.0\.1:1"):
        location.open()
    assert str(location) == "fjord://127.0.0.1:1"


def test_page_names_every_option_and_column() -> None:
    page = PAGE.read_text()
    named = [*options.NAMES, *schema.COLUMNS]
    assert [name for name in named if f"| `{name}` |" not in page] == []
