"""Log lines: one event each, whatever users have sent."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from fjord import limits
from fjord.server import logs

HOSTILE = "a\r\nERROR forged\x1b[31m\u202e \0 end"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Puts the root logger back as pytest had it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


def record(what: str, created: float, level: int = logging.INFO) -> logging.LogRecord:
    one = logging.LogRecord("fjord", level, "", 0, what, (), None)
    one.created = created
    return one


@pytest.mark.parametrize("form", logs.FORMATS)
def test_what_users_send_stays_in_one_line(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(form, logging.INFO)
    logs.note(logging.INFO, "closed", reason=HOSTILE)
    logging.getLogger("other").warning("said %s", HOSTILE)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.isascii()
        assert line.isprintable()


def test_text_is_words_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("text", logging.INFO)
    logs.note(logging.WARNING, "a sync was slow", took_ms=1500, path="two words", empty="")
    line = capsys.readouterr().err
    assert line.endswith('Z WARNING a sync was slow took_ms=1500 path="two words" empty=""\n')


def test_json_has_the_fields_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("json", logging.INFO)
    logs.note(logging.INFO, "serving", seq=7, data=HOSTILE)
    line = json.loads(capsys.readouterr().err)
    assert line.pop("time").endswith("Z")
    assert line == {"level": "info", "message": "serving", "seq": 7, "data": HOSTILE}


def test_a_bug_comes_with_its_trace_in_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("json", logging.INFO)
    try:
        raise ValueError("bug")
    except ValueError as error:
        logs.note(logging.CRITICAL, "stopping", error=error, trace=error)
    line = json.loads(capsys.readouterr().err)
    assert line["error"] == "bug"
    assert "ValueError: bug" in line["trace"]


def test_a_line_that_comes_too_often_is_counted_and_the_count_is_said() -> None:
    seldom = logs.Seldom()
    passed = [seldom.filter(record("closed", 100.0)) for _ in range(1000)]
    assert passed.count(True) == limits.LOG_LINES_MAX
    assert seldom.filter(record("other", 100.0))
    later = record("closed", 100.0 + limits.LOG_WINDOW_SECONDS)
    assert seldom.filter(later)
    assert later.__dict__["left_out"] == 1000 - limits.LOG_LINES_MAX
