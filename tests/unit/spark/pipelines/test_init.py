"""A project is written from the template, complete, and never over somebody's files."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # PySpark brings it, without types

import fjord
from fjord.errors import FjordError
from fjord.spark.options import Location
from fjord.spark.pipelines.init import dataset, init

DAEMON = Location(server="fjord://127.0.0.1:17994")
FILES = {
    ".gitignore",
    "README.md",
    "conf/spark-defaults.conf",
    "run",
    "spark-pipeline.yml",
    "transformations/history.py",
    "transformations/latest.py",
    "transformations/report.py",
}


def files(project: Path) -> dict[str, str]:
    return {
        path.relative_to(project).as_posix(): path.read_text()
        for path in project.rglob("*")
        if path.is_file()
    }


def test_a_project_has_everything_that_it_needs(tmp_path: Path) -> None:
    project = tmp_path / "ware house"
    report = init(str(project), DAEMON, table='or"ders')
    written = files(project)
    assert written.keys() == FILES
    assert {row["file"] for row in report.rows} == FILES
    assert report.figures["files"] == len(FILES)
    assert report.figures["reads"] == 'or"ders of fjord://127.0.0.1:17994'
    assert os.access(project / "run", os.X_OK)
    spec = yaml.safe_load(written["spark-pipeline.yml"])
    assert spec["name"] == "ware house"
    assert spec["storage"] == (project / "storage").as_uri()
    assert (project / "storage").is_dir()
    assert spec["configuration"]["spark.fjord.server"] == "fjord://127.0.0.1:17994"
    assert spec["configuration"]["spark.fjord.table"] == 'or"ders'
    assert spec["configuration"]["spark.fjord.dataset"] == "or_ders"
    assert report.figures["streaming_table"] == "or_ders"
    assert "| `or_ders` | streaming table" in written["README.md"]
    assert all(isinstance(setting, str) for setting in spec["configuration"].values())
    assert str(project / "storage" / "metastore") in written["conf/spark-defaults.conf"]
    assert not [name for name, text in written.items() if "${" in text and name != "run"]


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("events", "events"),
        ("Orders.v2", "orders_v2"),
        ("latest", "table_latest"),
        ("7", "table_7"),
    ],
)
def test_the_streaming_table_has_the_name_of_the_table(table: str, name: str) -> None:
    assert dataset(table) == name


def test_a_table_of_jobs_is_refused_if_it_is_there(tmp_path: Path) -> None:
    data, project = Location.of_path(str(tmp_path / "data")), tmp_path / "project"
    with fjord.open(data.path) as database:
        database.create_jobs("pages")
        database.kv("settings").set("k", 1)
    with pytest.raises(FjordError, match="pages is a jobs table"):
        init(str(project), data, table="pages")
    assert not project.exists()
    kinds = [
        init(str(project), data, table="settings", force=True),
        init(str(project), data, table="later", force=True),
        init(str(project), Location.of_path(str(tmp_path / "no")), table="later", force=True),
        init(str(project), Location(server="fjord://127.0.0.1:1"), table="later", force=True),
    ]
    assert [str(one.figures["kind"]).partition(",")[2] for one in kinds] == [
        "",
        " there is no such table yet",
        " there is no such directory yet",
        " no daemon answers",
    ]


def test_a_directory_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(FjordError, match=r"not empty.*--force"):
        init(str(tmp_path), DAEMON, table="events")
    assert files(tmp_path) == {"notes": "mine"}
    with pytest.raises(FjordError, match="is a file"):
        init(str(tmp_path / "notes"), DAEMON, table="events")


def test_transformations_change_no_session(tmp_path: Path) -> None:
    init(str(tmp_path), DAEMON, table="events")
    for path in (tmp_path / "transformations").iterdir():
        called = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        }
        # Spark refuses these where a pipeline is defined.
        assert not {"spark.conf.set", "spark.sql", "spark.udf.register"} & called
