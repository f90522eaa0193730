"""Documentation names everything that exists, and only things that exist."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import typer.main

import fjord
from fjord.cli.commands import app
from fjord.commands import FUNCTIONS
from fjord.errors import Code
from fjord.ops import Opcode
from fjord.wire import Function

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Pages with blocks of Python or shell that a reader would copy.
GUIDES = ("README.md", "CONTRIBUTING.md", "docs/cli.md", "docs/coming-from.md")
TARGETS = re.findall(r"^([a-z]+):(?!=)(.*)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@functools.cache
def page(name: str) -> str:
    return (ROOT / name).read_text()


def verbs() -> dict[str, list[str]]:
    """Returns the options of every verb of the command line, by the verb's full name."""
    return dict(_verbs(typer.main.get_command(app), "fjord"))


def _verbs(command: object, name: str) -> Iterator[tuple[str, list[str]]]:
    for verb, inner in getattr(command, "commands", {}).items():
        yield from _verbs(inner, f"{name} {verb}")
    if not hasattr(command, "commands"):
        options = [option for param in getattr(command, "params", []) for option in param.opts]
        yield name, [option for option in options if option.startswith("--")]


def words(name: str) -> set[str]:
    """Returns what a page writes as code, one word at a time."""
    code = re.findall(r"```.*?```|`[^`\n]+`", page(name), flags=re.DOTALL)
    return {word for piece in code for word in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", piece)}


@pytest.mark.parametrize(
    ("name", "members"),
    [
        pytest.param("docs/journal-format.md", Opcode.__members__, id="opcodes"),
        pytest.param("docs/protocol.md", Code.__members__, id="codes"),
        pytest.param("docs/protocol.md", Function.__members__, id="seed functions"),
        pytest.param("docs/protocol.md", [row.name for row in FUNCTIONS.values()], id="functions"),
    ],
)
def test_page_names_every(name: str, members: Iterable[str]) -> None:
    known = words(name)
    assert [member for member in members if member not in known] == []


def test_cli_page_has_every_verb_with_its_options() -> None:
    text = page("docs/cli.md")
    missing = [verb for verb in verbs() if f"`{verb}" not in text and f"## {verb}" not in text]
    missing += [
        f"{verb} {option}"
        for verb, options in verbs().items()
        for option in options
        if option not in text
    ]
    assert missing == []


def test_every_make_target_says_what_it_does() -> None:
    assert TARGETS
    assert [target for target, rest in TARGETS if "## " not in rest] == []


def test_make_targets_that_pages_name_exist() -> None:
    targets = {target for target, _ in TARGETS}
    named = {
        (path.name, target)
        for path in PAGES
        for target in re.findall(r"(?:^|`)make ([a-z]+)", path.read_text(), flags=re.MULTILINE)
    }
    assert [f"{name}: make {target}" for name, target in named if target not in targets] == []


def test_verbs_that_guides_name_exist() -> None:
    known = {verb.split()[1] for verb in verbs()}
    named = {
        (name, verb)
        for name in GUIDES
        for verb in re.findall(r"(?:^|[`/])fjord ([a-z]+)", page(name), flags=re.MULTILINE)
    }
    assert [f"{name}: fjord {verb}" for name, verb in named if verb not in known] == []


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {link}"
        for path in PAGES
        for link in re.findall(r"\]\(([^)#\s]+)", path.read_text())
        if "://" not in link and not (path.parent / link).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_files_that_pages_name_exist(name: str) -> None:
    named = re.findall(r"`((?:docs|scripts|tests|examples|src)/[\w./-]+)`", page(name))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_modules_that_the_architecture_names_exist() -> None:
    named = re.findall(r"`([\w/]+/\w+\.py)`", page("docs/architecture.md"))
    assert len(named) > 10
    assert [path for path in named if not (ROOT / "src" / "fjord" / path).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_in_pages_parses(path: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
        assert ast.parse(block).body


def test_changelog_has_this_version() -> None:
    assert re.search(
        rf"^## .*\b{re.escape(fjord.__version__)}\b", page("CHANGELOG.md"), re.MULTILINE
    )
