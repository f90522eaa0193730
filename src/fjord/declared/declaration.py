"""Declarations of tables, and their checks.

A reader of a file makes a `Draft` of each table, with the place of everything in it.  `checked`
turns drafts into declarations, and collects all errors, not only the first.  The client checks
settings before anything is sent, since it knows their ranges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fjord import kinds, limits
from fjord.commands import name_problem
from fjord.declared import schema
from fjord.declared.schema import COLUMNS_MAX, Column
from fjord.errors import DeclarationError

FILE_BYTES_MAX: Final = limits.MIB
TABLES_MAX: Final = 1000
PROBLEMS_MAX: Final = 20  # more are only counted
INDEXES_MAX: Final = 16  # in a declaration; each is named once
_SHOWN_CHARACTERS: Final = 60
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT: Final = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,40})?|\.[0-9]{1,40})(e[+-]?[0-9]{1,3})?")


class Model(NamedTuple):
    """What tables of a model can have."""

    columns: bool
    key: bool
    indexes: tuple[str, ...]  # those that exist, besides the order in which rows are kept


MODELS: Final[dict[str, Model]] = {
    kinds.Kind.JOBS: Model(columns=True, key=True, indexes=("key", "expiration")),
    "queue": Model(columns=True, key=False, indexes=("expiration",)),
    kinds.Kind.STREAM: Model(columns=True, key=True, indexes=()),
    kinds.Kind.KV: Model(columns=False, key=False, indexes=()),
}


class Location(NamedTuple):
    """A place in a file: its line, or its name if no line is known."""

    source: str
    line: int = 0
    column: int = 0
    name: str = ""

    def __str__(self) -> str:
        at = f"{self.source}:{self.line}:{self.column}" if self.line else self.source
        return f"{at}: {self.name}" if self.name else at


class Index(NamedTuple):
    """A secondary index, and its columns if given."""

    name: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One table."""

    name: str
    model: str  # one of MODELS
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()  # names of columns
    indexes: tuple[Index, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""  # for readers of the file; not stored
    # The place of the table, and of each of its settings.
    place: Location = field(default=Location("declaration"), compare=False)
    setting_places: Mapping[str, Location] = field(default_factory=dict, compare=False)


@dataclass(slots=True, kw_only=True)
class Draft:
    """An unchecked declaration; each part has its place."""

    place: Location
    name: str | None = None
    model: Any = None
    key: Any = ()
    description: str = ""
    # Of columns: name, type and whether it is required.
    columns: list[tuple[Location, Any, Any, Any]] = field(default_factory=list)
    settings: list[tuple[Location, str, Any]] = field(default_factory=list)
    indexes: list[tuple[Location, str, list[str]]] = field(default_factory=list)


class Problems:
    """A bounded list of errors."""

    def __init__(self) -> None:
        self._shown: list[tuple[Location, str]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, place: Location, text: str) -> None:
        self._count += 1
        if self._count <= PROBLEMS_MAX:
            self._shown.append((place, text))

    def check(self) -> None:
        """Raises an error if there are problems.

        Raises:
            DeclarationError: if there are any; the text has a line for each.
        """
        if not self._count:
            return
        lines = [f"{place}: {text}" for place, text in sorted(self._shown)]
        if self._count > PROBLEMS_MAX:
            lines.append(f"{self._shown[0][0].source}: and {self._count - PROBLEMS_MAX} more")
        raise DeclarationError("\n".join(lines))


def checked(drafts: Iterable[Draft], problems: Problems) -> list[Declaration]:
    """Returns the valid declarations of drafts; errors are added to the problems."""
    found: list[Declaration] = []
    places: dict[str, Location] = {}
    for draft in drafts:
        if draft.name in places:
            at = places[draft.name]
            there = f" in line {at.line}" if at.line else ""
            problems.add(draft.place, f"table {draft.name} was already declared{there}")
            continue
        made = _checked(draft, problems)
        if made is not None:
            places[made.name] = draft.place
            found.append(made)
    return found


def check_size(source: str, size: int) -> None:
    """Checks the size of a file before it is parsed.

    Raises:
        DeclarationError: if it is too large.
    """
    if size > FILE_BYTES_MAX:
        raise DeclarationError(f"{source}: a file of declarations has at most 1 MiB")


def plain(text: str) -> str:
    """Returns text with its whitespace normalised."""
    return " ".join(text.split())


def scalar(text: str) -> bool | int | float | str:
    """Parses a setting: true or false, a number, or text."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def word(value: object) -> str:
    """Returns a setting as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown(what: object) -> str:
    """Returns text from a file for a message: on one line, and not too long."""
    text = repr(what)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _checked(draft: Draft, problems: Problems) -> Declaration | None:
    """Returns the declaration of a draft, if its name and its model are valid."""
    if draft.name is None or draft.model is None:
        return None  # already reported
    refused = name_problem(draft.name)
    if refused is not None:
        problems.add(draft.place, f"{shown(draft.name)} is not a valid table name: {refused.text}")
        return None
    if not isinstance(draft.model, str) or draft.model not in MODELS:
        models = ", ".join(MODELS)
        text = f"table {draft.name} has model {shown(draft.model)}; there are {models}"
        problems.add(draft.place, text)
        return None
    columns = _columns(draft, problems)
    return Declaration(
        name=draft.name,
        model=draft.model,
        columns=columns,
        key=_key(draft, columns, problems),
        indexes=_indexes(draft, problems),
        settings=_settings(draft, problems),
        description=draft.description,
        place=draft.place,
        setting_places={name: place for place, name, _ in draft.settings},
    )


def _columns(draft: Draft, problems: Problems) -> tuple[Column, ...]:
    if draft.columns and not MODELS[draft.model].columns:
        those = ", ".join(name for name, model in MODELS.items() if model.columns)
        text = f"a table of model {draft.model} has no columns; {those} have"
        problems.add(draft.columns[0][0], text)
        return ()
    if len(draft.columns) > COLUMNS_MAX:
        at = draft.columns[COLUMNS_MAX][0]
        problems.add(at, f"a table has at most {COLUMNS_MAX} columns")
    found: dict[str, Column] = {}
    for place, name, type_, required in draft.columns[:COLUMNS_MAX]:
        problem = schema.name_problem(name) or schema.type_problem(type_)
        if problem is None and not isinstance(required, bool):
            problem = f"whether column {name} is required is true or false, not {shown(required)}"
        if problem is None and name.lower() in found:
            problem = f"there are two columns {name}; names are case-insensitive"
        if problem is None:
            found[name.lower()] = Column(name, type_, required)
        else:
            problems.add(place, problem)
    return tuple(found.values())


def _key(draft: Draft, columns: Sequence[Column], problems: Problems) -> tuple[str, ...]:
    """Returns the key, without reporting invalid columns again."""
    key = (draft.key,) if isinstance(draft.key, str) else draft.key
    if not isinstance(key, list | tuple) or not all(isinstance(name, str) for name in key):
        problems.add(draft.place, f"a key is a list of columns, not {shown(draft.key)}")
        return ()
    if key and not MODELS[draft.model].key:
        those = " and ".join(name for name, model in MODELS.items() if model.key)
        text = f"a table of model {draft.model} has no key columns; {those} have"
        problems.add(draft.place, text)
        return ()
    good = {column.name for column in columns}
    bad = {name for _, name, _, _ in draft.columns if isinstance(name, str)} - good
    count = len(problems)
    for name in dict.fromkeys(name for name in key if name not in bad):
        try:
            schema.read(columns, name)
        except ValueError as error:
            problems.add(draft.place, str(error))
    if len(problems) == count and not bad.intersection(key):
        try:
            return schema.read(columns, key).key
        except ValueError as error:
            problems.add(draft.place, str(error))
    return ()


def _indexes(draft: Draft, problems: Problems) -> tuple[Index, ...]:
    """Returns the indexes, which can only name existing ones."""
    known = MODELS[draft.model].indexes
    found: dict[str, Index] = {}
    for place, name, columns in draft.indexes[:INDEXES_MAX]:
        problem = None
        if name not in known:
            there = f"it has {' and '.join(known)}" if known else "it has none"
            problem = f"a table of model {draft.model} has no index {shown(name)}; {there}"
        elif name in found:
            problem = f"there are two indexes {name}"
        elif columns and name != "key":
            problem = f"the columns of index {name} cannot be chosen; leave them out"
        elif columns and columns != _names(draft.key):
            problem = "index key has the columns of row-key, in their order"
        if problem is None:
            found[name] = Index(name, tuple(columns))
        else:
            problems.add(place, problem)
    if len(draft.indexes) > INDEXES_MAX:
        problems.add(draft.indexes[INDEXES_MAX][0], f"there are more than {INDEXES_MAX} indexes")
    return tuple(found.values())


def _names(key: Any) -> list[Any]:
    return [key] if isinstance(key, str) else list(key)


def _settings(draft: Draft, problems: Problems) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, name, value in draft.settings:
        if name in found:
            problems.add(place, f"setting {shown(name)} was already given")
        found[name] = value
    return found
