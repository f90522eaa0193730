"""Declarations: what all kinds of files have in common."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from fjord.declared import declaration
from fjord.declared.declaration import INDEXES_MAX, Declaration, Draft, Index, Location, Problems
from fjord.declared.schema import Column
from fjord.errors import DeclarationError

AT = Location("f.xml", 3, 5)
URI = (AT, "uri", "string", True)
DEPTH = (AT, "depth", "uint8", False)


def check(**parts: Any) -> tuple[list[Declaration], list[str]]:
    """Returns what a draft declares, and what is wrong with it."""
    draft = Draft(**{"place": AT, "name": "pages", "model": "jobs", **parts})
    problems = Problems()
    found = declaration.checked([draft], problems)
    try:
        problems.check()
    except DeclarationError as error:
        return found, error.problems
    return found, []


@pytest.mark.req("SJ-30")
def test_a_draft_becomes_a_declaration() -> None:
    found, problems = check(
        key=["uri"],
        columns=[URI, DEPTH],
        settings=[(Location("f.xml", 9, 1), "lease", 60)],
        indexes=[(AT, "key", ["uri"]), (AT, "expiration", [])],
        description="pages to fetch",
    )
    assert problems == []
    assert found == [
        Declaration(
            name="pages",
            model="jobs",
            columns=(Column("uri", "string", True), Column("depth", "uint8")),
            key=("uri",),
            indexes=(Index("key", ("uri",)), Index("expiration")),
            settings={"lease": 60},
            description="pages to fetch",
        )
    ]
    assert found[0].place == AT
    assert found[0].setting_places == {"lease": Location("f.xml", 9, 1)}
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.req("SJ-30")
@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"name": "a b"}, "'a b' is not a valid table name: a name is 1 to 128"),
        ({"name": "x" * 5000}, "xxx... is not a valid table name"),
        ({"model": "table"}, "model 'table'; there are jobs, queue, stream, kv"),
        ({"model": 7}, "model 7; there are jobs"),
        ({"columns": [(AT, "key", "string", False)]}, "a built-in column key"),
        ({"columns": [(AT, "a", "text", False)]}, "there is no type 'text'; there are boolean"),
        ({"columns": [(AT, "a", "int8", "yes")]}, "is true or false, not 'yes'"),
        ({"columns": [DEPTH, (AT, "Depth", "int8", False)]}, "there are two columns Depth"),
        ({"columns": [(AT, f"c{at}", "int8", False) for at in range(257)]}, "at most 256 columns"),
        ({"columns": [DEPTH], "key": ["uri"]}, "a column 'uri', which is not declared"),
        ({"columns": [DEPTH], "key": "depth"}, "so it must be required"),
        ({"columns": [(AT, "a", "float32", True)], "key": ["a"]}, "which cannot be a key"),
        ({"columns": [URI], "key": ["uri", "uri"]}, "each once"),
        ({"columns": [URI], "key": [7]}, r"a key is a list of columns, not \[7\]"),
        ({"model": "kv", "columns": [URI]}, "model kv has no columns; jobs, queue, stream have"),
        ({"model": "queue", "columns": [URI], "key": ["uri"]}, "no key columns; jobs and stream"),
        ({"indexes": [(AT, "date", [])]}, "no index 'date'; it has key and expiration"),
        ({"model": "stream", "indexes": [(AT, "key", [])]}, "no index 'key'; it has none"),
        ({"indexes": [(AT, "key", []), (AT, "key", [])]}, "there are two indexes key"),
        ({"indexes": [(AT, "expiration", ["a"])]}, "cannot be chosen"),
        ({"columns": [URI], "indexes": [(AT, "key", ["uri"])]}, "has the columns of row-key"),
        ({"indexes": [(AT, "key", [])] * (INDEXES_MAX + 1)}, "more than 16 indexes"),
        ({"settings": [(AT, "lease", 1), (AT, "lease", 2)]}, "'lease' was already given"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        _, problems = check(**parts)
        assert not problems, "\n".join(problems)
    assert all(line.startswith("f.xml:3:5: ") for line in check(**parts)[1])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("true", True), ("false", False), ("True", "True"), ("60", 60), ("-1", -1)),
        *(("0.5", 0.5), (".5", 0.5), ("5.", 5.0), ("1e-06", 1e-06)),
        ("0.0005513505944557306", 0.0005513505944557306),
        *(("", ""), ("none", "none"), ("nan", "nan"), ("1_0", "1_0"), ("9" * 19, "9" * 19)),
        ("\u0663", "\u0663"),
    ],
)
def test_a_text_stands_for_a_value(text: str, value: object) -> None:
    found = declaration.scalar(text)
    assert (type(found), found) == (type(value), value)
