"""`fjord wire explain`: bytes in, a table or JSON out."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from fjord.cli.wire import app

VECTOR = "464a000100021234022200060a24181e4000016b020276"
SPACED = "46 4a 00 01 00 02 12 34 02 22\n 00 06 0a 24 18 1e 40 00 01 6b\t02 02 76\n"


def run(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, ["explain", *arguments], input=typed)


@pytest.mark.req("FJ-50")
@pytest.mark.parametrize(("argument", "typed"), [(VECTOR, ""), (SPACED, ""), ("-", SPACED)])
def test_a_message_is_shown_field_by_field(argument: str, typed: str) -> None:
    result = run(argument, typed=typed)
    assert result.exit_code == 0
    for word in (
        "4\t00 02\tfunction\t2, SET",
        "OVERWRITE",
        "2 (string)",
        "00 06 0a 24 18 1e 40 00",
    ):
        assert word in result.output


def test_json_has_every_byte() -> None:
    result = run(VECTOR, "--json")
    assert result.exit_code == 0
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert "".join(line["bytes"] for line in lines) == VECTOR
    assert lines[7] == {
        "offset": 19,
        "bytes": "6b",
        "field": "key",
        "meaning": "k",
        "problem": False,
    }


@pytest.mark.parametrize(
    "arguments",
    [("xyz",), ("464",), ("46", "--reply-to", "SOMETHING"), ("4",), ("",), (" ",), ("-",)],
)
def test_wrong_use_is_one_sentence(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.exception is None or isinstance(result.exception, SystemExit)
