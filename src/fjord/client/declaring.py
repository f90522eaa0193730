"""Declaring a table before its first use: what is said of it must be so, the rest may be anything.

A table that is not there is made with the settings that are given.  One that is there is asked for
its own, and only those that are given are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from fjord.client.calls import Call, Steps, done
from fjord.client.node_calls import TableInfo, table_call
from fjord.commands import CreateTable
from fjord.errors import Code, ExistsError
from fjord.streams import SECOND_US


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
        pairs = [(name, _setting(there, name), _setting(wanted, name)) for name in self.given]
        return [f"{name} is {one}, not {other}" for name, one, other in pairs if one != other]


def _setting(settings: Any, name: str) -> str:
    """Returns a setting as users give it; durations are kept in microseconds."""
    if hasattr(settings, name):
        return str(getattr(settings, name))
    return f"{getattr(settings, f'{name}_us') / SECOND_US:.16g}"
