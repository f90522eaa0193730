"""The facts of a command or an op stand in its row: nothing else is kept by either.

What is one more fact of some commands is an argument of `@command`, or is registered beside the
function that does it (`decides`, `registers`).  A table, a set or a chain of tests that lists
commands is a second place for such facts, and the next command would be forgotten there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fjord
from fjord import commands
from fjord.commands import Command

# Says what a name or an attribute counts as: the key that it stands for, None if it is none.
IsKey = Callable[[ast.expr], str | None]

SOURCES = Path(fjord.__file__).parent
# `commands` is the one place of commands, `tables.meaning` that of ops; `kestrel` has its own ops.
_ELSEWHERE = ("commands", "kestrel")
_MEANING = "tables/meaning.py"

_COMMANDS = {
    name
    for name, found in vars(commands).items()
    if isinstance(found, type) and issubclass(found, Command) and found is not Command
}
_MAPS = ("dict", "dict.fromkeys", "frozenset", "set")


def command_of(node: ast.expr) -> str | None:
    """Returns the command that a name stands for, also behind `commands.`."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "commands":
        return node.attr if node.attr in _COMMANDS else None
    return node.id if isinstance(node, ast.Name) and node.id in _COMMANDS else None


def member_of(enumeration: str) -> IsKey:
    """Returns what tells the members of an enumeration: `Function.GET`, or `Opcode.KV_SET`."""

    def member(node: ast.expr) -> str | None:
        if not isinstance(node, ast.Attribute) or not node.attr.isupper():
            return None
        owner = ast.unparse(node.value).rpartition(".")[2]
        return node.attr if owner == enumeration else None

    return member


def keyed(source: str, what: str) -> list[tuple[int, list[str]]]:
    """Returns the lines of a module where two or more keys are listed, and which."""
    return list(_keyed(listing(source), what))


def listing(source: str) -> list[tuple[ast.AST, list[ast.expr]]]:
    """Returns what of a module lists something, and what it lists."""
    nodes = ast.walk(ast.parse(source))
    return [(node, parts) for node in nodes if len(parts := list(_parts(node))) > 1]


def _keyed(
    found: list[tuple[ast.AST, list[ast.expr]]], what: str
) -> Iterator[tuple[int, list[str]]]:
    for node, parts in found:
        names = {name for part in parts if (name := KEYS[what](part)) is not None}
        if len(names) > 1:
            assert isinstance(node, ast.expr | ast.stmt)
            yield node.lineno, sorted(names)


def _parts(node: ast.AST) -> Iterator[ast.expr]:
    """Yields what a node lists, if it is a table, a set or a chain of tests."""
    match node:
        case ast.Dict(keys=keys):
            yield from (key for key in keys if key is not None)
        case (
            ast.Set(elts=parts)
            | ast.Compare(
                ops=[ast.In() | ast.NotIn()],
                comparators=[ast.Tuple(elts=parts) | ast.List(elts=parts)],
            )
        ):
            yield from parts
        case ast.Call(func=called, args=[given, *_]) if ast.unparse(called) in _MAPS:
            yield from _given(given)
        case ast.Match(cases=cases):
            for one in cases:
                yield from _matched(one.pattern)
        case ast.If():
            yield from _tested(node)


def _given(node: ast.expr) -> Iterator[ast.expr]:
    """Yields the keys of what a map is made of: (A, B), or [(A, 1), (B, 2)]."""
    for part in getattr(node, "elts", ()):
        yield part.elts[0] if isinstance(part, ast.Tuple) and part.elts else part


def _matched(pattern: ast.pattern) -> Iterator[ast.expr]:
    for part in ast.walk(pattern):
        if isinstance(part, ast.MatchClass):
            yield part.cls
        elif isinstance(part, ast.MatchValue):
            yield part.value


def _tested(node: ast.If) -> Iterator[ast.expr]:
    """Yields with what an `if` and its `elif`s compare: a type, or an instance of one."""
    branch: ast.stmt | None = node
    while isinstance(branch, ast.If):
        match branch.test:
            case ast.Compare(ops=[ast.Is() | ast.Eq()], comparators=[what]):
                yield what
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, what]):
                yield what
        branch = branch.orelse[0] if len(branch.orelse) == 1 else None


def modules() -> Iterator[tuple[str, str]]:
    """Yields the path and the source of all modules that are written by hand."""
    for path in sorted(SOURCES.rglob("*.py")):
        where, source = path.relative_to(SOURCES), path.read_text()
        if (
            not any(one in where.as_posix() for one in _ELSEWHERE)
            and "@generated" not in source[:400]
        ):
            yield where.as_posix(), source


KEYS = {"command": command_of, "function": member_of("Function"), "opcode": member_of("Opcode")}


def test_nothing_is_kept_by_command_function_or_opcode_outside_of_their_rows() -> None:
    listed = [(where, listing(source)) for where, source in modules()]
    found = [
        (what, where, kept) for where, one in listed for what in KEYS for kept in _keyed(one, what)
    ]
    assert [one for one in found if one[:2] != ("opcode", _MEANING)] == []
    assert found


@pytest.mark.parametrize(
    "planted",
    [
        *("sizes = {Push: 1, Append: 2}", "waits = {commands.Next, commands.Read}"),
        *("waits = frozenset({Next, Read})", "waits = frozenset((Next, Read))"),
        *("sizes = dict([(Push, 1), (Append, 2)])", "sizes = dict.fromkeys([Push, Append], 0)"),
        "waits = type(command) in (Next, Read)",
        "match command:\n    case Push():\n        pass\n    case Append():\n        pass",
        "match command:\n    case Push() | Append():\n        pass",
        "if type(command) is Push:\n    pass\nelif type(command) is Append:\n    pass",
        "if isinstance(command, Push):\n    pass\nelif isinstance(command, Append):\n    pass",
    ],
)
def test_what_is_kept_by_command_is_found(planted: str) -> None:
    assert {(line, len(names)) for line, names in keyed(planted, "command")} == {(1, 2)}
