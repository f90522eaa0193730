"""The code in README.md runs as it stands, but for the port."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fjord
from tests.acceptance.daemon import Daemon

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def run(code: str, directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def block_with(word: str) -> str:
    (found,) = [block for block in BLOCKS if word in block]
    return str(found)


def test_opening_a_directory(tmp_path: Path) -> None:
    run(block_with("fjord.open("), tmp_path)
    assert (tmp_path / "data" / "clean").exists()


def test_connecting_to_a_daemon(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        code = block_with("fjord.connect(").replace("fjord://127.0.0.1:17994", daemon.url)
        run("import fjord\n" + code, tmp_path)
        code = block_with("fjord.aio.connect(").replace("fjord://127.0.0.1:17994", daemon.url)
        body = textwrap.indent(code, "    ")
        run(f"import asyncio\nasync def main():\n{body}\nasyncio.run(main())", tmp_path)


@pytest.mark.parametrize("word", ["db.jobs(", "db.stream("])
def test_jobs_and_streams(tmp_path: Path, word: str) -> None:
    with Daemon(tmp_path / "data") as daemon:
        end = "\ndb.close()\n"
        run(f'import fjord\ndb = fjord.open("own")\n{block_with(word)}{end}', tmp_path)
        run(f'import fjord\ndb = fjord.connect("{daemon.url}")\n{block_with(word)}{end}', tmp_path)


def test_writing_to_a_spool_and_forwarding_it(tmp_path: Path) -> None:
    run("import fjord\n" + block_with("fjord.spool("), tmp_path)
    with Daemon(tmp_path / "data") as daemon, fjord.connect(daemon.url) as db:
        words = ["forward", "--spool", "spool", "--to", daemon.url, "--once"]
        run(f"import sys\nfrom fjord.cli import main\nsys.argv[1:] = {words}\nmain()", tmp_path)
        (message,) = db.stream("events").read()
        assert (message.key, message.value) == ("user:7", b"signed up")
        assert db.jobs("pages").count().waiting == 1
        assert db.kv("settings").get("theme") == "dark"


@pytest.mark.parametrize("name", ["jobs", "streams"])
def test_stories_of_examples_run(tmp_path: Path, name: str) -> None:
    run(README.with_name("examples").joinpath(f"{name}.py").read_text(), tmp_path)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")  # the session that it takes
def test_reading_with_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(block_with("fjord.open("), tmp_path)
    code = block_with("spark.session()").replace('"data"', repr(str(tmp_path / "data")))
    exec(compile(code, README.name, "exec"), {})  # noqa: S102 - our own page
    assert "SET" in capsys.readouterr().out
