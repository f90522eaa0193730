"""Tables declared in TOML: the same as in XML, with the types of TOML.

    [table.pages]
    model = "jobs"
    row-key = ["uri"]
    description = "Pages to fetch"
    settings = { lease = 60 }
    secondary-index = ["key"]

    [table.pages.columns]
    uri = { type = "string", required = true }
    depth = "uint8"

The parser tells where only of what is no TOML; of all else the names say where it is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from fjord.declared import declaration
from fjord.declared.declaration import TABLES_MAX, Declaration, Draft, Place, Problems, shown

_AT: Final = re.compile(r" \(at line (\d+), column (\d+)\)$")
# The parser takes the square of the parts of a key, and a key is on one line.
_DOTS_MAX: Final = 100
_TABLE: Final = frozenset(
    {"model", "row-key", "description", "settings", "secondary-index", "columns"}
)
_COLUMN: Final = frozenset({"type", "required", "description"})


def read(data: bytes, source: str, problems: Problems | None = None) -> list[Declaration]:
    """Returns the tables that a file declares; see `xml.read`.

    Raises:
        DeclarationError: if something is wrong; the text has all of it.
    """
    declaration.check_size(source, len(data))
    noted = Problems() if problems is None else problems
    tables = _parse(data, source, noted)
    for name in sorted(tables.keys() - {"table"}):
        noted.add(Place(source), f"there is no {shown(name)}; a file has table.NAME only")
    named = _mapping(tables.get("table", {}), Place(source), "table", noted)
    if len(named) > TABLES_MAX:
        noted.add(Place(source), f"there are more than {TABLES_MAX:,} tables")
        named = {}
    drafts = [_draft(name, given, source, noted) for name, given in named.items()]
    found = declaration.checked(drafts, noted)
    if problems is None:
        noted.check()
    return found


def _parse(data: bytes, source: str, problems: Problems) -> Mapping[str, Any]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.count(b".") > _DOTS_MAX:
            problems.add(Place(source, number, 1), f"a line has at most {_DOTS_MAX} dots")
            return {}
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError:
        problems.add(Place(source), "TOML is UTF-8, and this is not")
    except RecursionError:
        problems.add(Place(source), "values are too deep in each other")
    except tomllib.TOMLDecodeError as error:
        text = str(error)
        at = _AT.search(text)
        place = Place(source, int(at[1]), int(at[2])) if at else Place(source)
        text = declaration.plain(_AT.sub("", text))
        problems.add(place, f"this is no TOML: {text}")
    except ValueError as error:  # such as a number that is too long
        problems.add(Place(source), f"this is no TOML: {declaration.plain(str(error))}")
    return {}


def _draft(name: str, given: Any, source: str, problems: Problems) -> Draft:
    where = f"table.{name}"
    place = Place(source, name=where if where.isprintable() else repr(where))
    draft = Draft(place=place, name=name)
    table = _mapping(given, place, where, problems)
    _check_names(table, _TABLE, place, problems)
    if "model" not in table:
        problems.add(place, f"a table needs a model; there are {', '.join(declaration.MODELS)}")
    draft.model = table.get("model")
    draft.key = table.get("row-key", ())
    description = table.get("description", "")
    if isinstance(description, str):
        draft.description = declaration.plain(description)
    else:
        problems.add(place, f"a description is text, not {shown(description)}")
    for setting, value in _mapping(table.get("settings", {}), place, "settings", problems).items():
        draft.settings.append((place, setting, value))
    for index in _names(table.get("secondary-index", ()), place, problems):
        draft.indexes.append((place, index, []))
    for column, value in _mapping(table.get("columns", {}), place, "columns", problems).items():
        if isinstance(value, str):
            value = {"type": value}
        parts = _mapping(value, place, f"column {shown(column)}", problems)
        _check_names(parts, _COLUMN, place, problems)
        draft.columns.append((place, column, parts.get("type"), parts.get("required", False)))
    return draft


def _names(given: Any, place: Place, problems: Problems) -> list[str]:
    found = [given] if isinstance(given, str) else given
    if isinstance(found, list | tuple) and all(isinstance(one, str) for one in found):
        return list(found)
    problems.add(place, f"secondary-index is a list of names, not {shown(given)}")
    return []


def _mapping(given: Any, place: Place, what: str, problems: Problems) -> Mapping[str, Any]:
    if isinstance(given, dict):
        return given
    problems.add(place, f"{what} is a table of TOML, not {shown(given)}")
    return {}


def _check_names(
    given: Mapping[str, Any], known: frozenset[str], place: Place, problems: Problems
) -> None:
    for name in sorted(given.keys() - known):
        problems.add(place, f"there is no {shown(name)}; there are {', '.join(sorted(known))}")
