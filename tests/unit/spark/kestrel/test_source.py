"""The source `kestrel` without Spark: what it is called, its plan, and what it refuses."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import pyspark_kestrel
from fjord.errors import FjordError
from fjord.spark.kestrel import source
from fjord.spark.kestrel.source import COLUMNS, NAMES, KestrelOptions, KestrelReader, KestrelSource
from fjord.spark.kestrel.tasks import QueuePartition
from tests.unit.spark.kestrel import journals
from tests.unit.spark.kestrel.journals import item, put


def reader(directory: Path, **given: str) -> KestrelReader:
    found = KestrelSource({"path": str(directory), **given})
    made = found.reader(journals.ALL[given.get("mode", "state")])
    copied = pickle.loads(pickle.dumps(made))
    assert isinstance(copied, KestrelReader)
    return copied


def queues(directory: Path, **given: str) -> list[str]:
    planned = reader(directory, **given).partitions()
    return [one.queue for one in planned if isinstance(one, QueuePartition)]


def test_the_module_that_spark_looks_for_has_the_source() -> None:
    assert pyspark_kestrel.DefaultSource is KestrelSource
    assert KestrelSource.name() == "kestrel"
    assert KestrelSource({"path": "/q"}).schema().startswith("`queue` string, ")


def test_finding_the_source_does_not_import_what_reading_needs() -> None:
    code = "import sys, pyspark_kestrel; print({'pyarrow', 'lmdb', 'typer'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_the_largest_queue_begins_first(tmp_path: Path) -> None:
    put(tmp_path, "cars", item(b"a"))
    put(tmp_path, "trucks.904", item(b"large" * 100))
    put(tmp_path, "trucks")
    put(tmp_path, "bikes")
    (tmp_path / "folder").mkdir()
    assert queues(tmp_path) == ["trucks", "cars", "bikes"]
    assert queues(tmp_path, queue="cars") == ["cars"]
    found = reader(tmp_path, queue="cars")
    (planned,) = found.partitions()
    (batch,) = found.read(planned)
    assert batch["data"].to_pylist() == [b"a"]


def test_an_empty_directory_is_an_empty_frame(tmp_path: Path) -> None:
    found = reader(tmp_path)
    assert found.partitions() == []
    assert list(found.read(InputPartition(None))) == []  # which Spark makes of no partition


def test_a_directory_or_a_queue_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FjordError, match=r"nowhere is not a directory"):
        reader(tmp_path / "nowhere").partitions()
    with pytest.raises(FjordError, match=r"has no queue cars"):
        reader(tmp_path, queue="cars").partitions()


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (journals.struct({"file": "string"}), "`file` string with mode=state"),
        (journals.struct({"xid": "bigint"}), "`xid` bigint with mode=state"),
        (journals.struct({"xid": "int"}, nullable=False), "`xid` int NOT NULL with mode=state"),
    ],
)
def test_a_column_that_does_not_exist_is_named(wanted: StructType, named: str) -> None:
    with pytest.raises(FjordError, match=f"no column {named}; a schema is some of: `queue`"):
        source.wanted_columns(wanted, "state")


# -- options ---------------------------------------------------------------------------------------


def test_a_path_is_enough() -> None:
    found = source.parse({"path": "/queues"})
    assert found == KestrelOptions(directory="/queues")
    assert (found.mode, found.fails_on_damage) == ("state", True)
    assert source.ddl(found) == (
        "`queue` string, `position` bigint, `xid` int, `added` timestamp, "
        "`expires` timestamp, `data` binary"
    )


def test_all_are_read_whatever_their_case() -> None:
    given = {"PATH": "/queues/../queues", "Mode": "STATE", "queue": "cars", "damaged": "skip"}
    assert len(given) == len(NAMES)
    found = source.parse(given)
    assert found == KestrelOptions(directory="/queues", queue="cars", fails_on_damage=False)
    found = source.parse({"path": "/queues", "mode": "ops"})
    assert source.ddl(found).count("`") == 2 * len(COLUMNS["ops"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "give the option path"),
        ({"path": ""}, "give the option path"),
        ({"path": "/q", "queues": "cars"}, "unknown option queues; the options are path, mode"),
        ({"path": "/q", "mode": "items"}, "the option mode is state or ops, not 'items'"),
        ({"path": "/q", "damaged": "no"}, "the option damaged is fail or skip, not 'no'"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(FjordError, match=re.escape(told)):
        source.parse(given)
