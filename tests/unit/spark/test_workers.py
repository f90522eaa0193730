"""What Spark's workers have to have: a worker without Fjord says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StructField, StructType

from fjord.spark.pipelines import report
from fjord.spark.source import FjordSource

LOAD = "import sys; from pyspark import cloudpickle; cloudpickle.load(sys.stdin.buffer)"


def test_a_worker_without_the_package_says_so(tmp_path: Path) -> None:
    """A Python with Spark and nothing else is sent a reader, as an executor is."""
    home = Path(pyspark.__file__).parent
    for package in (home, home.parent / "py4j"):
        (tmp_path / package.name).symlink_to(package)
    source = FjordSource({"path": "data", "table": "events"})
    reader = source.reader(StructType([StructField("seq", LongType())]))
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOAD],
        input=cloudpickle.dumps(reader),  # type: ignore[no-untyped-call]
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    told = done.stderr.decode()
    assert told.splitlines()[-1] == "ModuleNotFoundError: No module named 'fjord'"
    assert "install 'fjord-journal[spark]' on every machine" in report.cause(told)
