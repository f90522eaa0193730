"""Scenario files: commands with their expected answers, replayed by a test.

    # A comment.

    set settings greeting hello
    ----
    done

    get settings greeting
    ----
    "hello"

A step is one or more lines of commands, a line of four dashes, and the expected answer, up to an
empty line.  `rewrite` writes the actual answers to the file; commit such a change only if you
understand every line of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_RULE = "----"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Some commands and the expected answer."""

    line: int  # of the first command, for messages
    preamble: tuple[str, ...]  # comments and empty lines before it, kept by a rewrite
    commands: tuple[str, ...]
    expected: str


class ScenarioError(AssertionError):
    """An answer differs from the scenario."""


def parse(text: str) -> Iterator[Step]:
    """Yields the steps of a scenario.

    Raises:
        ScenarioError: if a step has no rule of four dashes.
    """
    lines = text.splitlines()
    position = 0
    while position < len(lines):
        preamble, position = _take(lines, position, _is_filler)
        if position == len(lines):
            return
        first = position
        commands, position = _take(lines, position, lambda line: bool(line) and line != _RULE)
        if position == len(lines) or lines[position] != _RULE:
            raise ScenarioError(f"line {first + 1}: a step needs a line of four dashes")
        expected, position = _take(lines, position + 1, bool)
        yield Step(
            line=first + 1,
            preamble=tuple(preamble),
            commands=tuple(line for line in commands if not line.startswith("#")),
            expected="\n".join(expected),
        )


def run(path: Path, answer: Callable[[str], str], *, rewrite: bool = False) -> int:
    """Runs a scenario: `answer` is called with each command and returns its answer.

    Returns:
        How many steps matched.

    Raises:
        ScenarioError: at the first step whose answers differ.
    """
    told = []
    for step in parse(path.read_text()):
        found = "\n".join(line for line in map(answer, step.commands) if line)
        if found != step.expected and not rewrite:
            raise ScenarioError(
                f"{path.name}:{step.line}: {' ; '.join(step.commands)}\n"
                f"expected:\n{step.expected}\nfound:\n{found}"
            )
        told.append(_written(step, found))
    if rewrite:
        path.write_text("\n\n".join(told) + "\n")
    return len(told)


def _written(step: Step, found: str) -> str:
    preamble = list(step.preamble)
    while preamble and not preamble[0]:
        preamble.pop(0)
    answer = [found] if found else []
    return "\n".join([*preamble, *step.commands, _RULE, *answer])


def _is_filler(line: str) -> bool:
    return not line or line.startswith("#")


def _take(
    lines: list[str], position: int, wanted: Callable[[str], bool]
) -> tuple[Iterable[str], int]:
    taken = []
    while position < len(lines) and wanted(lines[position]):
        taken.append(lines[position])
        position += 1
    return taken, position
