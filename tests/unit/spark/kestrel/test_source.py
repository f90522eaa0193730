"""The source `kestrel` without Spark: what it is called, its plan, and what it refuses."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import pyspark_kestrel
from fjord.errors import FjordError
from fjord.spark.kestrel import source
from fjord.spark.kestrel.source import KestrelReader, KestrelSource
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


def test_wanted_columns_stay_in_their_order() -> None:
    wanted = journals.struct({"size": "bigint", "file": "string"})
    assert source.wanted_columns(wanted, "ops") == ("size", "file")
