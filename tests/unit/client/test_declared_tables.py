"""Tables that files declare: settings, what is there already, and back again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fjord
from fjord import limits
from fjord.client import declared_tables
from fjord.client.declared_tables import (
    JobSettings,
    Made,
    StreamSettings,
    TableInfo,
    declaration_of,
)
from fjord.declared.declaration import MODELS, Declaration, Index
from fjord.declared.schema import Column
from fjord.errors import DeclarationError, ExistsError, FjordError

PAGES = """<context>
  <table name="pages" model="jobs" row-key="uri">
    <setting name="lease">60</setting>
    <schema>
      <column name="uri" type="string" required="true"/>
      <column name="depth" type="uint8"/>
    </schema>
  </table>
  <table name="mails" model="queue"/>
  <table name="profiles" model="stream">
    <setting name="mode">latest</setting>
    <setting name="history">false</setting>
  </table>
  <table name="words" model="kv"/>
</context>
"""
URI = Column("uri", "string", True)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[fjord.Database]:
    with fjord.open(tmp_path / "data") as one:
        yield one


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tables.xml"
    path.write_text(PAGES)
    return path


def creation(**parts: Any) -> tuple[int, bytes]:
    given = {"name": "t", "model": "jobs", **parts}
    ((_, command),) = declared_tables.creations([Declaration(**given)])
    return command.kind, command.settings


def problems(**parts: Any) -> list[str]:
    with pytest.raises(DeclarationError) as raised:
        creation(**parts)
    return raised.value.problems


@pytest.mark.req("SJ-30")
def test_a_file_makes_its_tables_once(db: fjord.Database, file: Path) -> None:
    names = ["pages", "mails", "profiles", "words"]
    models = ["jobs", "queue", "stream", "kv"]
    would = db.create_tables(file, dry_run=True)
    assert would == [Made(*one, "made") for one in zip(names, models, strict=True)]
    assert db.tables() == []
    assert db.create_tables(str(file)) == would
    assert [one.outcome for one in db.create_tables(file)] == ["same"] * 4
    assert {one.name: one.kind for one in db.tables()} == {
        "pages": "jobs",
        "mails": "jobs",
        "profiles": "stream",
        "words": "kv",
    }
    db.create_jobs("pages", columns=[URI, Column("depth", "uint8")], key="uri", lease=60)
    db.create_jobs("mails", merge=False)
    db.create_stream("profiles", mode="latest", history=False)


@pytest.mark.req("SJ-01", "SJ-17", "SJ-30")
def test_a_row_has_its_own_columns_and_those_of_every_job(db: fjord.Database, file: Path) -> None:
    db.create_tables(file)
    db.jobs("pages").push({"uri": "http://example.com/a", "depth": 3}, priority=7)
    (job,) = db.jobs("pages").next(10)
    assert job.value == {"uri": "http://example.com/a", "depth": 3}
    assert (job.key, job.priority, job.timeouts) == ("http://example.com/a", 7, 0)
    assert job.process_at is not None
    file.write_text(PAGES.replace('name="depth"', 'name="priority"'))
    with pytest.raises(DeclarationError, match="6:7: every table has a built-in column priority"):
        db.create_tables(file)
    with pytest.raises(fjord.ProtocolError, match="column depth is uint8"):
        db.jobs("pages").push({"uri": "http://example.com/b", "depth": 256})


@pytest.mark.req("SJ-30")
def test_a_table_that_differs_is_named_and_none_is_made(db: fjord.Database, file: Path) -> None:
    db.create_jobs("pages", columns={"uri": ("string", True), "size": "int64"}, key="uri", lease=30)
    db.kv("mails").set("a", 1)
    with pytest.raises(ExistsError) as raised:
        db.create_tables(file)
    for part in (
        f"{file}:2:3: table pages already exists and differs: ",
        "it has a column size; it has no column depth; lease is 30, not 60",
        f"{file}:9:3: table mails already exists and differs: it is a kv table, not queue",
    ):
        assert part in str(raised.value)
    assert [one.name for one in db.tables()] == ["mails", "pages"]


@pytest.mark.req("SJ-04", "SJ-30")
def test_a_table_with_a_period_may_be_changed(db: fjord.Database) -> None:
    old = Declaration(name="t", model="jobs", settings={"period": "day"})
    new = replace(old, columns=(URI,), key=("uri",))
    other = Declaration(name="u", model="kv")
    db.create_tables([old])
    db.jobs("t").push("a", b"free")
    with pytest.raises(ExistsError, match="it has no column uri; its key is none, not uri"):
        db.create_tables([other, new])
    made = [Made("u", "kv", "made"), Made("t", "jobs", "changed")]
    assert db.create_tables([other, new], change=True, dry_run=True) == made
    assert declaration_of(db.table("t")).columns == ()
    assert db.create_tables([other, new], change=True) == made
    assert declaration_of(db.table("t")).columns == (URI,)
    assert db.create_tables([new], change=True) == [Made("t", "jobs", "same")]
    db.jobs("t").push({"uri": "b"})
    assert [one.value for one in db.jobs("t").next(10)] == [b"free", {"uri": "b"}]
    for wrong in (
        Declaration(name="t", model="jobs"),
        Declaration(name="t", model="stream"),
        replace(old, model="queue"),
        replace(old, settings={"period": "day", "fairness": "domain"}),
    ):
        said = "table t already exists and differs: .* (only a jobs table with a period"
        with pytest.raises(ExistsError, match=said.replace("(", r"\(")):
            db.create_tables([wrong, Declaration(name="v", model="kv")], change=True, dry_run=True)
        with pytest.raises(ExistsError, match="table t already exists and differs"):
            db.create_tables([wrong, Declaration(name="v", model="kv")], change=True)
    assert [one.name for one in db.tables()] == ["t", "u"]


@pytest.mark.req("SJ-30")
@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"settings": {"leese": 60}}, "no setting 'leese'; there are debounce, "),
        ({"settings": {"columns": 1}}, "no setting 'columns'"),
        ({"settings": {"lease": 0}}, "lease is 0.001 to 2,592,000 seconds, not 0"),
        (
            {"settings": {"lease": "an hour"}},
            "lease is a number of seconds, such as 60 or 0.5, not ",
        ),
        ({"settings": {"lease": float("inf")}}, "lease"),
        ({"settings": {"lease": 1e300}}, "lease"),
        ({"settings": {"timeouts_max": 256}}, "timeouts_max is a whole number from 0 to "),
        ({"settings": {"merge": "yes"}}, "merge is true or false"),
        ({"settings": {"fairness": "all"}}, "fairness is none or domain"),
        ({"model": "queue", "settings": {"merge": True}}, "model queue has no setting 'merge'"),
        ({"model": "kv", "settings": {"lease": 1}}, "model kv has no setting 'lease'; it has none"),
        ({"model": "stream", "settings": {"mode": "new"}}, "mode is log or latest"),
        ({"model": "stream", "settings": {"history": False}}, "a stream of mode log has history"),
        ({"model": "list"}, "there is no model 'list'"),
        ({"columns": (Column("a", "text"),)}, "there is no type 'text'"),
    ],
)
def test_settings_are_checked_before_anything_is_sent(parts: dict[str, Any], said: str) -> None:
    (only,) = problems(**parts)
    assert only.startswith("declaration: ")
    assert said in only


@pytest.mark.req("SJ-30")
def test_each_setting_that_is_wrong_is_said_where_it_stands(file: Path) -> None:
    text = PAGES.replace("60", "0").replace("latest", "newest").replace("uint8", "uint9")
    file.write_text(text.replace('<table name="words"', '<table name="words" a="1"'))
    with pytest.raises(DeclarationError) as raised:
        declared_tables.read_file(file)
    places = [line.removeprefix(f"{file}:").split(":")[0] for line in raised.value.problems]
    assert places == ["3", "6", "11", "12", "14"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tables.xml", "<context></context>", "it declares no table; write one like <table name="),
        ("tables.ini", "[table.pages]", "declare tables in XML"),
    ],
)
def test_a_file_that_declares_nothing_is_refused(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DeclarationError) as raised:
        declared_tables.read_file(path)
    (only,) = raised.value.problems
    assert only.startswith(f"{path}: {said}")


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"none\.xml: No such file"):
        declared_tables.read_file(tmp_path / "none.xml")
    with pytest.raises(DeclarationError, match="Is a directory"):
        declared_tables.read_file(tmp_path)


def test_no_more_of_a_file_is_read_than_it_may_have() -> None:
    with pytest.raises(
        DeclarationError, match="/dev/zero: a file of declarations has at most 1 MiB"
    ):
        declared_tables.read_file("/dev/zero")


SETTINGS = {
    "jobs": {
        "merge": st.booleans(),
        "fairness": st.sampled_from(["none", "domain"]),
        "lease": st.integers(1, 10**6) | st.floats(0.01, 1e6),
        "timeouts_max": st.integers(0, limits.TIMEOUTS_MAX),
        "debounce": st.integers(0, 10**6),
        "history": st.booleans(),
        "period": st.sampled_from(["hour", "day", "month"]),
        "drained": st.sampled_from(["delete", "truncate", "reset"]),
        "secure": st.booleans(),
    },
    "stream": {
        "mode": st.just("latest"),
        "history": st.booleans(),
        "block_rows": st.integers(1, 1000),
        "block_age": st.integers(1, 10**6),
        "retention": st.integers(0, 10**6),
        "retention_bytes": st.integers(0, 2**60),
    },
    "kv": {},
}
SETTINGS["queue"] = {name: of for name, of in SETTINGS["jobs"].items() if name != "merge"}


@st.composite
def tables(draw: st.DrawFn) -> Declaration:
    model = draw(st.sampled_from(list(MODELS)))
    settings = draw(st.fixed_dictionaries({}, optional=SETTINGS[model]))
    if settings.get("history") is False and model == "stream":
        settings["mode"] = "latest"
    columns = (
        (URI, Column("depth", "uint8")) if MODELS[model].columns and draw(st.booleans()) else ()
    )
    key = ("uri",) if columns and MODELS[model].key and draw(st.booleans()) else ()
    return Declaration(name="t", model=model, columns=columns, key=key, settings=settings)


@pytest.mark.req("SJ-30")
@given(tables())
def test_a_table_that_is_there_can_be_declared_again(table: Declaration) -> None:
    ((_, command),) = declared_tables.creations([table])
    kinds = {1: "kv", 2: "jobs", 3: "stream"}
    there = TableInfo(name="t", kind=kinds[command.kind], id=1, settings=command.settings)
    found = declaration_of(there)
    assert [again for _, again in declared_tables.creations([found])] == [command]
    assert (found.columns, found.key) == (table.columns, table.key)
    assert found.indexes == (
        (Index("key", ("uri",)),) if table.key and found.model == "jobs" else ()
    )


def test_settings_are_those_of_the_client() -> None:
    known = JobSettings.__optional_keys__ | StreamSettings.__optional_keys__
    assert {name for of in SETTINGS.values() for name in of} <= known


def test_a_table_of_a_later_version_is_said() -> None:
    for table in (
        TableInfo(name="t", kind="9", id=1),
        TableInfo(name="t", kind="jobs", id=1, settings=b'{"speed":9}'),
    ):
        with pytest.raises(FjordError, match="table t is not known in this version"):
            declaration_of(table)
