"""Tables declared in TOML: the same as in XML."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.declared import toml
from fjord.declared.declaration import FILE_BYTES_MAX, Declaration, Index, Problems
from fjord.declared.schema import Column
from fjord.errors import DeclarationError
from tests.unit.declared.declarations import MANY

PAGES = """
[table.pages]
model = "jobs"
row-key = ["uri"]
description = "Pages to fetch"
settings = { lease = 60, history = false }
secondary-index = ["key"]

[table.pages.columns]
uri = { type = "string", required = true, description = "where" }
depth = "uint8"

[table.mails]
model = "queue"
"""


def problems(text: str | bytes) -> list[str]:
    """Returns what is wrong with a file, less its name."""
    with pytest.raises(DeclarationError) as raised:
        toml.read(text.encode() if isinstance(text, str) else text, "f.toml")
    assert all(line.startswith("f.toml:") for line in raised.value.problems)
    return [line.removeprefix("f.toml:").strip() for line in raised.value.problems]


def written(tables: list[Declaration]) -> str:
    """Returns a file that declares tables; JSON's strings are TOML's."""
    return "".join(f"[table.{json.dumps(one.name)}]\n{_inside(one)}" for one in tables)


def _inside(one: Declaration) -> str:
    columns = ", ".join(
        f"{column.name} = {{ type = '{column.type}', required = {str(column.required).lower()} }}"
        for column in one.columns
    )
    settings = ", ".join(f"{_text(name)} = {_text(one.settings[name])}" for name in one.settings)
    lines = [
        f"model = {_text(one.model)}",
        f"row-key = {_text(list(one.key))}",
        f"description = {_text(one.description)}",
        f"secondary-index = {_text([index.name for index in one.indexes])}",
        f"columns = {{ {columns} }}",
        f"settings = {{ {settings} }}",
    ]
    return "\n".join([*lines, ""])


def _text(what: Any) -> str:
    return json.dumps(what, ensure_ascii=False).replace("\x7f", "\\u007f")


@pytest.mark.req("SJ-30")
def test_a_file_declares_tables() -> None:
    pages, mails = toml.read(PAGES.encode(), "f.toml")
    assert pages == Declaration(
        name="pages",
        model="jobs",
        columns=(Column("uri", "string", True), Column("depth", "uint8")),
        key=("uri",),
        indexes=(Index("key"),),
        settings={"lease": 60, "history": False},
        description="Pages to fetch",
    )
    assert mails == Declaration(name="mails", model="queue")
    assert toml.read(b"", "f.toml") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1", "there is no 'a'; a file has table.NAME only"),
        ("table = 1", "table is a table of TOML, not 1"),
        ("[[table]]", "table is a table of TOML, not [{}]"),
        ("[table]\na = 1", "table.a: table.a is a table of TOML, not 1"),
        ("[table.a]", "table.a: a table needs a model; there are jobs, queue, stream, kv"),
        ("[table.a]\nmodel = 1", "table.a: table a has model 1; there are jobs"),
        ("[table.a]\nmodel = 'kv'\nkey = 1", "table.a: there is no 'key'; there are columns"),
        ('[table."a\\n"]\nmodel = "kv"', "names no table"),
        ("[table.a]\nmodel = 'jobs'\nrow-key = 1", "table.a: a key is a list of columns, not 1"),
        ("[table.a]\nmodel = 'jobs'\nrow-key = 'x'", "which is not declared"),
        ("[table.a]\nmodel = 'kv'\ndescription = 1", "table.a: a description is text, not 1"),
        ("[table.a]\nmodel = 'kv'\nsettings = 1", "settings is a table of TOML, not 1"),
        ("[table.a]\nmodel = 'jobs'\nsecondary-index = 1", "is a list of names, not 1"),
        ("[table.a]\nmodel = 'jobs'\nsecondary-index = 'x'", "no index 'x'; it has key and"),
        ("[table.a]\nmodel = 'jobs'\ncolumns = { x = 1 }", "column 'x' is a table of TOML, not 1"),
        ("[table.a]\nmodel = 'jobs'\ncolumns = { x = { a = 1 } }", "there is no 'a'; there are"),
        ("[table.a]\nmodel = 'jobs'\ncolumns = { x = 'text' }", "there is no type 'text'"),
        ("[table.a]\nmodel = 'jobs'\ncolumns = { x = {} }", "there is no type None"),
        ("[table.a]\nmodel = \n", "2:9: this is no TOML: Invalid value"),
        ("[table.a]\n[table.a]", "2:9: this is no TOML: Cannot declare"),
        ("a = " + "[" * 100_000, "values are too deep in each other"),
        ("a = " + "9" * 10_000, "this is no TOML: Exceeds the limit"),
        ("\n" + "a." * 200_000 + "a = 1", "2:1: a line has at most 100 dots"),
        ("a." * 100 + "a = 1", "there is no 'a'; a file has table.NAME only"),
        (b"\xff", "TOML is UTF-8, and this is not"),
        (b"\0", "1:1: this is no TOML"),
        ("a" * (FILE_BYTES_MAX + 1), "a file of declarations has at most 1 MiB"),
        ("".join(f"[table.t{at}]\n" for at in range(1001)), "there are more than 1,000 tables"),
    ],
)
def test_what_is_wrong_is_said(text: str | bytes, said: str) -> None:
    assert said in "\n".join(problems(text))


def test_problems_may_be_gathered_by_the_caller() -> None:
    noted = Problems()
    found = toml.read(PAGES.replace("uint8", "uint9").encode(), "f.toml", noted)
    assert [one.name for one in found] == ["pages", "mails"]
    assert len(noted) == 1


@pytest.mark.req("SJ-30")
@given(MANY)
def test_any_declaration_can_be_written_in_toml(tables: list[Declaration]) -> None:
    found = toml.read(written(tables).encode(), "f.toml")
    assert [one.name for one in found] == [one.name for one in tables]
    for one, other in zip(found, tables, strict=True):
        assert (one.model, one.columns, one.key) == (other.model, other.columns, other.key)
        assert (one.settings, one.description) == (other.settings, other.description)


@given(st.text(max_size=60), st.integers(0, 300), st.integers(0, 40))
def test_any_file_is_read_or_explained(piece: str, at: int, length: int) -> None:
    text = PAGES[:at] + piece + PAGES[at + length :]
    said: list[str] = []
    try:
        toml.read(text.encode(), "f.toml")
    except DeclarationError as error:
        said = error.problems
    assert all(line.startswith("f.toml:") and line.isprintable() for line in said)
