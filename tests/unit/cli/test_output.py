"""How results are shown."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.cli import output
from fjord.cli.arguments import Node
from fjord.text import escaped, type_name, value_text
from tests.unit.client.shell_calls import NOW


@given(st.text())
def test_escaped_text_stays_on_one_line_and_controls_nothing(text: str) -> None:
    assert escaped(text).isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain \u00e5", "plain \u00e5"),
        ("a\tb\nc", r"a\tb\nc"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\udcff", r"\udcff"),
    ],
)
def test_only_what_cannot_be_printed_is_escaped(text: str, expected: str) -> None:
    assert escaped(text) == expected


def test_rows_are_lines_with_tabs_or_objects(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", "1"), ("b\n", "2")]
    names = ("key", "value")
    for as_json, found in ((False, rows), (True, rows[:1])):
        Node(as_json=as_json).print_all(
            found, lambda row: dict(zip(names, row, strict=True)), names, tuple
        )
    assert capsys.readouterr().out == 'a\t1\nb\\n\t2\n{"key": "a", "value": "1"}\n'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, '"nan"'),
        (math.inf, '"inf"'),
        (-math.inf, '"-inf"'),
        (0.5, "0.5"),
        (b"z", '{"base64": "eg=="}'),
        ("\udcff", '{"base64": "/w=="}'),
        ("\u00e5", '"\\u00e5"'),
        ([math.nan, {"inner": b""}], '["nan", {"inner": {"base64": ""}}]'),
        ((True, None, 1), "[true, null, 1]"),
    ],
)
def test_json_is_strict_whatever_is_in_it(
    capsys: pytest.CaptureFixture[str], value: object, expected: str
) -> None:
    output.print_json({"value": value})
    assert capsys.readouterr().out == f'{{"value": {expected}}}\n'


def test_a_row_is_an_object_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"uri": "\u00e5", "at": NOW, "body": b"\xff", "score": math.inf, "n": 2**200}
    text = (
        f'{{"uri": "\u00e5", "at": "{NOW.isoformat()}", "body": {{"base64": "/w=="}}, '
        f'"score": "inf", "n": {2**200}}}'
    )
    assert (value_text(row), type_name(row)) == (text, "row")
    output.print_value(row)
    output.print_json({"value": row})
    plain, as_json = capsys.readouterr().out.splitlines()
    assert plain == text
    assert json.loads(as_json) == {"value": json.loads(text)}
