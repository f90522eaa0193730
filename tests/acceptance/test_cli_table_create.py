"""`fjord table create`, `export` and `describe` of declared tables, against a real daemon."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import fjord
import fjord.aio
from fjord.cli.commands import app
from tests.acceptance.daemon import Daemon

PAGES = """<?xml version="1.0" encoding="utf-8"?>
<context>
  <table name="pages" model="jobs" row-key="uri">
    <description>Pages that are to be fetched</description>
    <setting name="lease">60</setting>
    <schema>
      <column name="uri" type="string" required="true"/>
      <column name="depth" type="uint8"/>
    </schema>
    <secondary-index name="key"><column name="uri"/></secondary-index>
  </table>
  <table name="mails" model="queue"/>
</context>
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as one:
        yield one


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tables.xml"
    path.write_text(PAGES)
    return path


def run(*words: str) -> Result:
    result = CliRunner().invoke(app, ["table", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.mark.req("SJ-30")
def test_a_file_is_declared_shown_and_written_again(daemon: Daemon, file: Path) -> None:
    create = ("create", "--file", str(file), "--to", daemon.url)
    would = run(*create, "--dry-run")
    assert would.stdout == "pages\tjobs\twould be made\nmails\tqueue\twould be made\n"
    assert run("list", "--to", daemon.url).stdout == ""
    assert run(*create).stdout == "pages\tjobs\tmade\nmails\tqueue\tmade\n"
    again = [json.loads(line) for line in run(*create, "--json").stdout.splitlines()]
    assert again == [
        {"name": "pages", "model": "jobs", "outcome": "same"},
        {"name": "mails", "model": "queue", "outcome": "same"},
    ]
    described = run("describe", "pages", "--to", daemon.url).stdout.splitlines()
    assert described[:2] == ["name\tpages", "kind\tjobs"]
    assert described[3:] == [
        "settings\tlease=60",
        "column\turi string required key",
        "column\tdepth uint8",
    ]
    shown = json.loads(run("describe", "pages", "--json", "--to", daemon.url).stdout)
    assert shown["columns"] == [
        {"name": "uri", "type": "string", "required": True, "key": True},
        {"name": "depth", "type": "uint8", "required": False, "key": False},
    ]
    exported = run("export", "pages", "mails", "--to", daemon.url).stdout
    assert exported == PAGES.replace(
        "    <description>Pages that are to be fetched</description>\n", ""
    )
    file.write_text(run("export", "--to", daemon.url).stdout)
    assert run(*create).stdout == "mails\tqueue\tsame\npages\tjobs\tsame\n"


@pytest.mark.req("SJ-30")
def test_the_page_does_what_it_says(
    daemon: Daemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "declarations.md").read_text()
    (text,) = re.findall(r"```xml\n(.*?)```", page, re.DOTALL)
    with_file, without = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "tables.xml").write_text(text)
    monkeypatch.chdir(tmp_path)
    exec(with_file.replace("fjord://127.0.0.1:17994", daemon.url), {})  # noqa: S102
    assert capsys.readouterr().out == "http://example.com/ 0\n"
    with fjord.connect(daemon.url) as db:
        exec(without, {"db": db})  # noqa: S102
        assert len(db.tables()) == 2


@pytest.mark.req("SJ-30")
def test_the_same_with_asyncio(daemon: Daemon, file: Path) -> None:
    async def main() -> list[str]:
        async with await fjord.aio.connect(daemon.url) as db:
            await db.create_tables(file)
            return [one.outcome for one in await db.create_tables(file)]

    assert asyncio.run(main()) == ["same", "same"]


@pytest.mark.req("SJ-30")
def test_a_table_is_declared_with_options(daemon: Daemon) -> None:
    words = (
        *("create", "pages", "--model", "jobs", "--column", "uri:string:required"),
        *("--column", "depth:uint8", "--key", "uri", "--set", "lease=60"),
        *("--to", daemon.url),
    )
    assert run(*words).stdout == "pages\tjobs\tmade\n"
    assert run(*words).stdout == "pages\tjobs\tsame\n"
    with fjord.connect(daemon.url) as db:
        db.create_jobs(
            "pages", columns={"uri": ("string", True), "depth": "uint8"}, key="uri", lease=60
        )
    other = run(*words, "--set", "timeouts_max=3")
    assert other.exit_code == 1
    assert "table pages already exists and differs: timeouts_max is 5, not 3" in other.stderr


@pytest.mark.req("SJ-30")
def test_all_that_is_wrong_is_said_and_nothing_is_sent(file: Path) -> None:
    file.write_text(PAGES.replace("uint8", "uint9").replace("60", "0"))
    done = run("create", "--file", str(file), "--to", "fjord://127.0.0.1:1")
    assert done.exit_code == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(f"fjord: {file}:5:5: lease is 0.001 to 2,592,000 seconds, not 0")
    assert second.startswith(f"fjord: {file}:8:7: there is no type 'uint9'; there are boolean")


@pytest.mark.req("SJ-30")
def test_all_that_is_wrong_with_options_is_said_and_nothing_is_sent() -> None:
    words = ("--column", "uri:strin", "--set", "leas=3", "--set", "period=week")
    done = run("create", "pages", *words, "--to", "fjord://127.0.0.1:1")
    assert done.exit_code == 2
    column, unknown, wrong = done.stderr.splitlines()
    assert column.startswith("fjord: --column: uri:strin: there is no type 'strin'")
    assert unknown.startswith("fjord: --set: leas=3: a table of model jobs has no setting 'leas'")
    assert wrong == "fjord: --set: period=week: period is hour or day or month"


@pytest.mark.req("SJ-30")
def test_a_table_that_differs_is_an_error_and_none_is_made(daemon: Daemon, file: Path) -> None:
    with fjord.connect(daemon.url) as db:
        db.create_jobs("mails", lease=30)
    done = run("create", "--file", str(file), "--to", daemon.url)
    assert done.exit_code == 1
    assert "mails already exists and differs: merge is true, not false; lease is 30" in done.stderr
    assert run("list", "--to", daemon.url).stdout == "mails\tjobs\t1\n"


@pytest.mark.req("SJ-30")
def test_a_table_with_a_period_is_changed_when_that_is_asked_for(daemon: Daemon) -> None:
    words = ("create", "pages", "--set", "period=day", "--to", daemon.url)
    assert run(*words).stdout == "pages\tjobs\tmade\n"
    other = (*words, "--column", "uri:string")
    assert run(*other).exit_code == 1
    assert run(*other, "--change", "--dry-run").stdout == "pages\tjobs\twould be changed\n"
    assert run(*other, "--change").stdout == "pages\tjobs\tchanged\n"
    assert run(*other, "--change").stdout == "pages\tjobs\tsame\n"
    assert "column\turi string" in run("describe", "pages", "--to", daemon.url).stdout
    without = run("create", "pages", "--change", "--to", daemon.url)
    assert without.exit_code == 1
    assert "table pages already exists and differs: it has a column uri" in without.stderr
    assert "only a jobs table with a period can be changed" in without.stderr
    assert "period is day, not none" in without.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create",), "give --file, or a name"),
        (("create", "t", "--file", "f.xml"), "give --file, or a name"),
        (("create", "--file", "f.xml", "--key", "a"), "give --file, or a name"),
        (("create", "--file", "none.xml"), "none.xml: No such file or directory"),
        (("create", "t", "--column", "a"), "--column: a: write a column as NAME:TYPE "),
        (("create", "t", "--column", "a:int8:key"), "write a column as NAME:TYPE or NAME:TYPE:"),
        (("create", "t", "--column", "a:int9"), "--column: a:int9: there is no type 'int9'"),
        (("create", "t", "--set", "lease"), "--set: lease: write a setting as NAME=VALUE"),
        (("create", "t", "--set", "leese=1"), "no setting 'leese'; there are debounce"),
        (("create", "t", "--set", "lease=0"), "--set: lease=0: lease is 0.001 to"),
        (("create", "t", "--key", "a"), "the key has a column 'a', which is not declared"),
        (("create", "t", "--model", "list"), "model 'list'; there are jobs, queue, stream, kv"),
    ],
)
def test_wrong_use_is_explained(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = run(*words, "--data", str(tmp_path / "data"))
    assert done.exit_code == 2
    assert said in done.stderr


def test_what_is_not_there_cannot_be_exported(tmp_path: Path) -> None:
    with fjord.open(tmp_path) as db:
        db.kv("words").set("a", 1)
    assert '<table name="words" model="kv"/>' in run("export", "--data", str(tmp_path)).stdout
    missing = run("export", "none", "--data", str(tmp_path))
    assert missing.exit_code == 1
    assert "there is no table none" in missing.stderr


def test_every_verb_has_an_example() -> None:
    for verb in ("create", "export"):
        assert f"Example: fjord table {verb}" in run(verb, "--help").stdout
