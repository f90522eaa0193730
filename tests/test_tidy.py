"""The house style, as far as a program can see it and ruff does not check it already.

Ruff holds line length, print, bare except, eval, leftover notes and names in Python.  Here is the
rest: sizes, which module may use what, what a test must have, and words that no file may hold.
Every rule lists all that it finds, so that one run shows all there is to do.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("tidy")  # files are parsed once

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "scripts", "benchmarks", "examples", "docs", ".ci")

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 800
LINE_CHARACTERS_MAX = 100

GRAB_BAGS = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}

# Parts that compute and touch nothing of the machine.
PURE = (
    "wire/",
    "tables/",
    "commands/",
    "declared/",
    "columns.py",
    "errors.py",
    "kinds.py",
    "layouts.py",
    "limits.py",
    "opcodes.py",
    "ops.py",
    "values.py",
)
MACHINE = {"asyncio", "io", "logging", "os", "pathlib", "socket", "subprocess", "threading"}

# Where in the package a standard module may be imported.
SHELLS = ("aio.py", "cli/", "client/", "forwarder.py", "server/", "spark/", "testing/", "worker.py")
KESTREL = tuple(
    f"kestrel/{name}.py" for name in ("backends", "importer", "server", "service", "session")
)
HOMES: dict[str, tuple[str, ...]] = {
    "time": ("clock.py",),
    "random": ("testing/",),
    "secrets": ("disk.py",),
    "uuid": ("disk.py", "cli/", "client/", "spark/"),
    "asyncio": (*SHELLS, *KESTREL),
    "socket": (*SHELLS, *KESTREL),
    "dbm": (),
    "marshal": (),
    "pickle": (),
    "shelve": (),
}

# Calls that belong to one module: the clock is passed in, and so is the disk.
FILES = ("client/spool/", "disk.py", "index/lmdb.py")
CALLS: dict[str, tuple[str, ...]] = {
    "datetime.now": ("clock.py",),
    "datetime.utcnow": ("clock.py",),
    "date.today": ("clock.py",),
    "open": (*FILES, *SHELLS, "kestrel/service.py"),
    "os.open": FILES,
    "os.write": FILES,
    "os.pwrite": FILES,
    "os.fsync": FILES,
    "os.fdatasync": FILES,
    "os.rename": FILES,
    "os.replace": FILES,
    "os.remove": FILES,
    "os.unlink": FILES,
    "os.urandom": ("disk.py",),
}

# A call with such a name is a check too.
CHECKING = re.compile(r"^_?(assert|check|expect|raises|warns|fail$|run_state_machine)")

# Built from pieces, so that this file does not hold them.
UNWANTED = {
    "a note for later": re.compile("|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"])),
    "a path of one machine": re.compile(
        r"(?<![\w.])/(" + "|".join(["wo" + "rk", "ro" + "ot"]) + ")/"
    ),
    "the host of a package registry": re.compile(
        "|".join(["pypi" + r"\.org", "python" + "hosted", "npm" + "js", "anaconda" + r"\.org"])
    ),
}


@dataclass(frozen=True, slots=True)
class Source:
    """One parsed Python file."""

    name: str  # path from the root of the project
    lines: int
    nodes: list[ast.AST]

    @property
    def inside(self) -> str:
        """The path inside the package, or nothing for a file that is not of it."""
        return self.name.removeprefix("src/fjord/") if self.name.startswith("src/fjord/") else ""

    def at(self, node: ast.AST) -> str:
        return f"{self.name}:{getattr(node, 'lineno', 0)}"


@functools.cache
def texts() -> dict[str, str]:
    """Returns the text of every file of the project by its path."""
    paths = [path for path in ROOT.iterdir() if path.is_file()]
    paths += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    found = {}
    for path in sorted(paths):
        if "__pycache__" in path.parts:
            continue
        data = path.read_bytes()
        if b"\0" not in data:  # samples of binary formats are not text
            found[path.relative_to(ROOT).as_posix()] = data.decode()
    return found


@functools.cache
def sources() -> list[Source]:
    """Returns every Python file, scripts without an ending included."""
    return [
        Source(name, text.count("\n"), list(ast.walk(ast.parse(text))))
        for name, text in texts().items()
        if name.endswith(".py") or re.match(r"#!.*python", text)
    ]


@pytest.fixture(scope="module", autouse=True)
def forgotten_sources() -> Iterator[None]:
    """Millions of nodes would cost all later tests of the process a part of their time."""
    yield
    sources.cache_clear()


def imports(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Yields the top-level name of everything that a file imports."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node, (node.module or "").split(".")[0]


def calls(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    """Yields the last two parts of the name of everything that is called."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node, ".".join(ast.unparse(node.func).split(".")[-2:])


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def check_none(found: Iterable[str]) -> None:
    listed = list(found)
    if listed:
        pytest.fail("\n".join(listed), pytrace=False)


def test_functions_are_short() -> None:
    check_none(
        f"{source.at(node)} {node.name} has {lines} lines, the most is {FUNCTION_LINES_MAX}"
        for source in sources()
        for node in functions(source)
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    )


def test_modules_are_short() -> None:
    check_none(
        f"{source.name} has {source.lines} lines, the most is {MODULE_LINES_MAX}"
        for source in sources()
        if source.lines > MODULE_LINES_MAX and "@generated by" not in texts()[source.name][:200]
    )


def test_no_module_is_a_grab_bag() -> None:
    check_none(
        f"{source.name}: name it after what it holds"
        for source in sources()
        if GRAB_BAGS & {*Path(source.name).parts, Path(source.name).stem}
    )


def test_pure_parts_touch_nothing_of_the_machine() -> None:
    check_none(
        f"{source.at(node)} imports {name}, but this part is pure"
        for source in sources()
        if source.inside.startswith(PURE)
        for node, name in imports(source)
        if name in MACHINE
    )


def test_homes_exist() -> None:
    named = {*PURE, *FILES, *(place for places in HOMES.values() for place in places)}
    named.update(place for places in CALLS.values() for place in places)
    check_none(f"there is no {name}" for name in named if not (ROOT / "src/fjord" / name).exists())


def test_standard_modules_stay_in_their_homes() -> None:
    check_none(
        f"{source.at(node)} imports {name}; its place is {', '.join(HOMES[name]) or 'nowhere'}"
        for source in sources()
        if source.inside
        for node, name in imports(source)
        if name in HOMES and not source.inside.startswith(HOMES[name])
    )


def test_clock_and_disk_are_passed_in() -> None:
    check_none(
        f"{source.at(node)} calls {name}; its place is {', '.join(CALLS[name])}"
        for source in sources()
        if source.inside
        for node, name in calls(source.nodes)
        if name in CALLS and not source.inside.startswith(CALLS[name])
    )


def test_tests_do_not_sleep() -> None:
    check_none(
        f"{source.at(node)}: wait for what happens, not for time to pass"
        for source in sources()
        if source.name.startswith("tests/")
        for node, name in calls(source.nodes)
        if name in {"time.sleep", "sleep"}
    )


def test_tests_use_no_mock_library() -> None:
    check_none(
        f"{source.at(node)}: use the fakes of fjord.testing"
        for source in sources()
        if source.name.startswith("tests/")
        for node in source.nodes
        if isinstance(node, ast.Import | ast.ImportFrom) and "mock" in ast.unparse(node)
    )


def test_every_test_checks_something() -> None:
    check_none(
        f"{source.at(node)} {node.name} checks nothing"
        for source in sources()
        if source.name.startswith("tests/")
        for node in _tests_without_checks(source)
    )


def _tests_without_checks(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yields tests that neither assert, nor call what does, nor feed all sorts of input."""
    checking = {node.name for node in functions(source) if _checks(node, set())}
    for node in functions(source):
        fuzzes = any(ast.unparse(mark).startswith("given(") for mark in node.decorator_list)
        if node.name.startswith("test_") and not fuzzes and not _checks(node, checking):
            yield node


def _checks(function: ast.AST, checking: set[str]) -> bool:
    nodes = list(ast.walk(function))
    called = {name.rsplit(".", maxsplit=1)[-1] for _, name in calls(nodes)}
    return (
        any(isinstance(node, ast.Assert) for node in nodes)
        or any(CHECKING.match(name) for name in called)
        or not called.isdisjoint(checking)
    )


@pytest.mark.parametrize("what", UNWANTED)
def test_no_file_holds(what: str) -> None:
    check_none(
        f"{name}:{number} holds {what}: {match[0]}"
        for name, text in texts().items()
        for number, line in enumerate(text.splitlines(), start=1)
        if (match := UNWANTED[what].search(line))
    )


def test_lines_are_short_and_clean() -> None:
    long_lines = (".md", ".lock", ".txt", ".json", ".xml", ".py")  # ruff measures Python
    check_none(
        f"{name}:{number} has {len(line)} characters or ends with a space"
        for name, text in texts().items()
        for number, line in enumerate(text.splitlines(), start=1)
        if line != line.rstrip()
        or (len(line) > LINE_CHARACTERS_MAX and not name.endswith(long_lines))
    )


def test_files_end_with_one_newline() -> None:
    check_none(
        name
        for name, text in texts().items()
        if text and (not text.endswith("\n") or text.endswith("\n\n"))
    )


def test_scripts_can_be_run() -> None:
    check_none(
        f"{name} needs a first line that names its interpreter, and the right to execute"
        for name, text in texts().items()
        if name.startswith(("scripts/", ".ci/"))
        if not (text.startswith("#!") and os.access(ROOT / name, os.X_OK))
    )
