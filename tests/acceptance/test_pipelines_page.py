"""The Python of docs/pipelines.md runs as it stands, but for places; its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pyspark.sql import SparkSession

from fjord.cli.commands import app
from tests.acceptance.daemon import Daemon
from tests.unit.spark.kestrel.journals import item, put

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipelines.md"
URL = "fjord://127.0.0.1:17994"


def blocks(language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, PAGE.read_text(), re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    lines = "".join(blocks("sh")).splitlines()
    return [line for line in lines if line.startswith("fjord pipeline ")]


@pytest.mark.spark
def test_its_python_runs(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    put(tmp_path, "cars", item(b"one"), item(b"two"))
    with Daemon(tmp_path / "data") as daemon:
        for block in blocks("python"):
            # Spark's own paths are relative to where its process was started.
            code = re.sub(r'"((?:warehouse/|report)[^"]*)"', rf'"{tmp_path}/\1"', block)
            code = code.replace("/var/spool/kestrel", str(tmp_path))
            if "evening.py" in code:
                with pytest.raises(SystemExit) as ended:
                    exec(compile(code.replace(URL, daemon.url), PAGE.name, "exec"), names)  # noqa: S102
                assert not ended.value.code  # nothing is wrong
            else:
                exec(compile(code.replace(URL, daemon.url), PAGE.name, "exec"), names)  # noqa: S102
    assert names["spark"] is spark
    assert names["visits"].columns[0] == "seq"
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.parametrize("line", commands())
def test_its_commands_exist(line: str) -> None:
    found: Any = typer.main.get_command(app)
    _, group, verb, *arguments = shlex.split(line)
    command = found.commands[group].commands[verb]
    assert command.make_context(verb, arguments).params


def test_every_verb_is_on_the_page() -> None:
    found: Any = typer.main.get_command(app)
    text = PAGE.read_text()
    assert [
        verb
        for verb in found.commands["pipeline"].commands
        if f"\n## {verb}\n" not in text and f"fjord pipeline {verb} " not in text
    ] == []
