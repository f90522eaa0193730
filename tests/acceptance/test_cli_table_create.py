"""`fjord table create`, `export` and `describe` of declared tables, against a real daemon."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import fjord
from tests.acceptance.daemon import Daemon
from tests.acceptance.shell import run

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


pytestmark = [pytest.mark.usefixtures("empty"), pytest.mark.req("SJ-30")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tables.xml"
    path.write_text(PAGES)
    return path


def test_a_file_is_declared_shown_and_written_again(daemon: Daemon, file: Path) -> None:
    create = ("create", "--file", str(file), "--to", daemon.url)
    would = run("table", *create, "--dry-run")
    assert would.stdout == "pages\tjobs\twould be made\nmails\tqueue\twould be made\n"
    assert run("table", "list", "--to", daemon.url).stdout == ""
    assert run("table", *create).stdout == "pages\tjobs\tmade\nmails\tqueue\tmade\n"
    again = [json.loads(line) for line in run("table", *create, "--json").stdout.splitlines()]
    assert again == [
        {"name": "pages", "model": "jobs", "outcome": "same"},
        {"name": "mails", "model": "queue", "outcome": "same"},
    ]
    described = run("table", "describe", "pages", "--to", daemon.url).stdout.splitlines()
    assert described[:2] == ["name\tpages", "kind\tjobs"]
    assert described[3:] == [
        "settings\tlease=60",
        "column\turi string required key",
        "column\tdepth uint8",
    ]
    shown = json.loads(run("table", "describe", "pages", "--json", "--to", daemon.url).stdout)
    assert shown["columns"] == [
        {"name": "uri", "type": "string", "required": True, "key": True},
        {"name": "depth", "type": "uint8", "required": False, "key": False},
    ]
    exported = run("table", "export", "pages", "mails", "--to", daemon.url).stdout
    assert exported == PAGES.replace(
        "    <description>Pages that are to be fetched</description>\n", ""
    )
    file.write_text(run("table", "export", "--to", daemon.url).stdout)
    assert run("table", *create).stdout == "mails\tqueue\tsame\npages\tjobs\tsame\n"


def test_the_page_does_what_it_says(
    daemon: Daemon,
    db: fjord.Database,
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
    exec(without, {"db": db})  # noqa: S102
    assert len(db.tables()) == 2


def test_a_table_is_declared_with_options(daemon: Daemon) -> None:
    words = (
        *("create", "pages", "--model", "jobs", "--column", "uri:string:required"),
        *("--column", "depth:uint8", "--key", "uri", "--set", "lease=60"),
        *("--to", daemon.url),
    )
    assert run("table", *words).stdout == "pages\tjobs\tmade\n"
    assert run("table", *words).stdout == "pages\tjobs\tsame\n"
    with fjord.connect(daemon.url) as db:
        db.create_jobs(
            "pages", columns={"uri": ("string", True), "depth": "uint8"}, key="uri", lease=60
        )
    other = run("table", *words, "--set", "timeouts_max=3")
    assert other.exit_code == 1
    assert "table pages already exists and differs: timeouts_max is 5, not 3" in other.stderr


def test_all_that_is_wrong_is_said_and_nothing_is_sent(file: Path) -> None:
    file.write_text(PAGES.replace("uint8", "uint9").replace("60", "0"))
    done = run("table", "create", "--file", str(file), "--to", "fjord://127.0.0.1:1")
    assert done.exit_code == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(f"fjord: {file}:5:5: lease is 0.001 to 2,592,000 seconds, not 0")
    assert second.startswith(f"fjord: {file}:8:7: there is no type 'uint9'; there are boolean")


def test_a_table_with_a_period_is_changed_when_that_is_asked_for(daemon: Daemon) -> None:
    words = ("create", "pages", "--set", "period=day", "--to", daemon.url)
    assert run("table", *words).stdout == "pages\tjobs\tmade\n"
    other = (*words, "--column", "uri:string")
    assert run("table", *other).exit_code == 1
    assert run("table", *other, "--change", "--dry-run").stdout == "pages\tjobs\twould be changed\n"
    assert run("table", *other, "--change").stdout == "pages\tjobs\tchanged\n"
    assert run("table", *other, "--change").stdout == "pages\tjobs\tsame\n"
    assert "column\turi string" in run("table", "describe", "pages", "--to", daemon.url).stdout
    without = run("table", "create", "pages", "--change", "--to", daemon.url)
    assert without.exit_code == 1
    assert "table pages already exists and differs: it has a column uri" in without.stderr
    assert "only a jobs table with a period can be changed" in without.stderr
    assert "period is day, not none" in without.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create",), "give --file, or a name"),
        (("create", "--file", "f.xml", "--key", "a"), "give --file, or a name"),
        (("create", "--file", "none.xml"), "none.xml: No such file or directory"),
        (("create", "t", "--column", "a"), "--column: a: write a column as NAME:TYPE "),
        (("create", "t", "--set", "lease"), "--set: lease: write a setting as NAME=VALUE"),
        (("create", "t", "--set", "lease=0"), "--set: lease=0: lease is 0.001 to"),
        (("create", "t", "--key", "a"), "the key has a column 'a', which is not declared"),
        (("create", "t", "--model", "list"), "model 'list'; there are jobs, queue, stream, kv"),
    ],
)
def test_wrong_use_is_explained(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = run("table", *words, "--data", str(tmp_path / "data"))
    assert done.exit_code == 2
    assert said in done.stderr
