from __future__ import annotations

from pathlib import Path

import pytest

from fjord.testing import scenario
from fjord.testing.scenario import ScenarioError

TEXT = """# A story.

say hello
----
hello

# Nothing is answered to silence.
silent
say again
----
again
"""


def answer(command: str) -> str:
    verb, _, rest = command.partition(" ")
    return rest if verb == "say" else ""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "story.txt"
    path.write_text(text)
    return path


def test_steps_are_commands_a_rule_and_an_answer() -> None:
    first, second = scenario.parse(TEXT)
    assert (first.line, first.commands, first.expected) == (3, ("say hello",), "hello")
    assert (second.commands, second.expected) == (("silent", "say again"), "again")


def test_a_story_that_goes_as_told_passes(tmp_path: Path) -> None:
    assert scenario.run(written(tmp_path, TEXT), answer) == 2


def test_another_answer_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT.replace("----\nhello", "----\nbye"))
    with pytest.raises(ScenarioError, match=r"story.txt:3: say hello"):
        scenario.run(path, answer)


def test_a_step_without_a_rule_is_an_error() -> None:
    with pytest.raises(ScenarioError, match="line 1"):
        list(scenario.parse("say hello\n\nsay more\n"))


def test_rewriting_writes_the_answers_as_they_are(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT.replace("----\nhello", "----\nbye"))
    scenario.run(path, answer, rewrite=True)
    assert path.read_text() == TEXT
