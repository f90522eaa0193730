"""docs/declarations.md says what the code does."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fjord.client import declared_tables
from fjord.client.declared_tables import JobSettings, StreamSettings
from fjord.declared import declaration, rows, xml
from fjord.declared.declaration import MODELS, Declaration
from fjord.declared.schema import COLUMNS_MAX, KEY_COLUMNS_MAX, TYPES, Schema
from fjord.errors import DeclarationError

PAGE = (Path(__file__).parents[3] / "docs" / "declarations.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def tables() -> list[Declaration]:
    return xml.read(block("xml").encode(), "tables.xml")


@pytest.mark.req("SJ-30")
def test_the_example_is_two_tables_and_can_be_made() -> None:
    assert [(one.name, one.model) for one in tables()] == [("pages", "jobs"), ("mails", "queue")]
    assert [command.kind for _, command in declared_tables.creations(tables())] == [2, 2]


def test_the_rows_are_as_they_are_written() -> None:
    pages = tables()[0]
    made = rows.of(Schema(pages.columns, pages.key))
    row = {"uri": "http://a/", "depth": 3}
    seen = datetime(2026, 1, 31, 12, tzinfo=UTC)
    encoded, keys = made.encode([row, row | {"seen": seen}])
    shown = dict(line.split(maxsplit=1) for line in block("hex").splitlines())
    assert [bytes.fromhex(shown[name]) for name in ("without", "with")] == encoded
    assert keys == [b"http://a/"] * 2
    assert made.decode(encoded) == [row | {"seen": None}, row | {"seen": seen}]


def test_the_page_has_every_type_model_index_and_setting() -> None:
    settings = JobSettings.__optional_keys__ | StreamSettings.__optional_keys__
    words = {*TYPES, *MODELS, *(settings - {"columns", "key"})}
    words |= {index for model in MODELS.values() for index in model.indexes}
    named = set(re.findall(r"`([\w.]+)`", PAGE))
    assert sorted(words - named) == []


def test_the_page_has_the_bounds() -> None:
    for text in (
        f"at most {declaration.PROBLEMS_MAX},",
        f"at most {declaration.FILE_BYTES_MAX // 2**20} MiB, {declaration.TABLES_MAX:,} tables",
        f"{COLUMNS_MAX} columns per table",
        f"{xml.DEPTH_MAX} levels of elements",
        f"`row-key` names at most {KEY_COLUMNS_MAX} columns",
    ):
        assert text in PAGE.replace("\n", " ")


def test_the_errors_are_as_they_are_said() -> None:
    text = block("xml").replace("60", "0").replace("uint8", "uint9")
    problems = declaration.Problems()
    found = xml.read(text.encode(), "tables.xml", problems)
    with pytest.raises(DeclarationError) as types:
        problems.check()
    with pytest.raises(DeclarationError) as settings:
        declared_tables.creations(found)
    shown = re.findall(r"^tables\.xml:.*", PAGE, re.MULTILINE)
    assert shown[0] == settings.value.problems[0]
    assert types.value.problems[0].startswith(shown[1].removesuffix("..."))
