"""Declaring a table before its first use: what is said of it must be so, the rest may be anything.

A table that is not there is made with the settings that are given.  One that is there is asked for
its own, and only those that are given are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from fjord.client.calls import Call, Steps, done
from fjord.client.node_calls import TableInfo, table_call
from fjord.commands import CreateTable
from fjord.declared.schema import Column, Schema
from fjord.errors import Code, ExistsError
from fjord.streams import SECOND_US

_COLUMNS_MAX: Final = 20  # that an error names


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is to be said of a table; it may be said again if that failed."""

    command: CreateTable
    given: Collection[str]  # the names of the settings that are given
    decode: Callable[[bytes], Any]  # reads the settings of such a table

    def steps(self) -> Steps[None]:
        """Makes the table, or finds that it is as it should be.

        Raises:
            ExistsError: if it is not; the text says what differs.
        """
        try:
            yield Call(self.command, done)
        except ExistsError:
            there: TableInfo = yield table_call(self.command.name)
            differing = self._differing(there.settings)
            if differing:
                text = f"table {there.name} is there with other settings: {'; '.join(differing)}"
                raise ExistsError(Code.EXISTS, text) from None

    def _differing(self, settings: bytes) -> list[str]:
        there, wanted = self.decode(settings), self.decode(self.command.settings)
        found: list[str] = []
        for name in self.given:
            if name == "columns":
                found += differing_columns(there.declared, wanted.declared)
            elif name == "key":
                found += differing_key(there.declared, wanted.declared)
            elif (one := _setting(there, name)) != (other := _setting(wanted, name)):
                found.append(f"{name} is {one}, not {other}")
        return found


def differing_columns(there: Schema, wanted: Schema) -> list[str]:
    """Says in which columns two tables differ, at most so many of them."""
    has = {column.name: _words(column) for column in there.columns}
    wants = {column.name: _words(column) for column in wanted.columns}
    found = [f"it has no column {name}" for name in wants.keys() - has.keys()]
    found += [f"it has a column {name}" for name in has.keys() - wants.keys()]
    found += [
        f"column {name} is {has[name]}, not {wants[name]}"
        for name in has.keys() & wants.keys()
        if has[name] != wants[name]
    ]
    if not found and there.names != wanted.names:
        names = [", ".join(one.names[:_COLUMNS_MAX]) for one in (there, wanted)]
        return [f"its columns are {names[0]}, not {names[1]}"]
    more = [f"and {len(found) - _COLUMNS_MAX} more"] if len(found) > _COLUMNS_MAX else []
    return sorted(found)[:_COLUMNS_MAX] + more


def differing_key(there: Schema, wanted: Schema) -> list[str]:
    """Says whether two tables have other columns as their key."""
    if there.key == wanted.key:
        return []
    has, wants = (", ".join(key) or "none" for key in (there.key, wanted.key))
    return [f"its key is {has}, not {wants}"]


def _words(column: Column) -> str:
    return f"{column.type}{' and required' if column.required else ''}"


def _setting(settings: Any, name: str) -> str:
    """Returns a setting as users give it; durations are kept in microseconds."""
    if hasattr(settings, name):
        return str(getattr(settings, name)) or "none"
    return f"{getattr(settings, f'{name}_us') / SECOND_US:.16g}"
