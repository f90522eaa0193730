"""Rows of declared columns, read a column at a time.

No row is made for that: a column is taken out of all of them at once, when it is asked for, and
the others are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fjord import ops, values
from fjord.client.schemas import Schemas
from fjord.columns import Strings
from fjord.declared.rows import Heads, Rows
from fjord.errors import Code, LocalProtocolError

_ROW: Final = bytes((values.ROW,))
_KINDS: Final = bytes((values.ROW, ops.TOMBSTONE))


class RowColumns:
    """The declared columns of messages that came together."""

    def __init__(self, table: str, parts: Iterable[tuple[bytes, Strings]], schemas: Schemas):
        """Takes types and values; a tombstone has no value in any column.

        Raises:
            LocalProtocolError: if there are values that are no rows.
            RemoteProtocolError: if what the server sent are no rows.
            UnknownSchemaError: if the server is to be asked first.
        """
        self._rows: Rows | None = None  # None: there are only tombstones, or nothing
        self._parts: list[tuple[bytes, Heads | None]] = []
        for types, column in parts:
            if types.strip(_KINDS):
                text = f"stream {table} has no declared columns; its messages are in `values`"
                raise LocalProtocolError(Code.BAD_TYPE, text)
            if types.strip(_ROW):
                pairs = zip(types, column.rows(), strict=True)
                column = Strings.of([row for type_, row in pairs if type_ == values.ROW])
            if self._rows is None and len(column):
                self._rows = schemas.rows_of(column[0])
            heads = self._rows.heads(column) if self._rows is not None and len(column) else None
            self._parts.append((types, heads))

    @property
    def names(self) -> list[str]:
        """The columns that there are; none if there is no row that says it."""
        return [] if self._rows is None else self._rows.schema.names

    def column(self, name: str) -> list[Any]:
        """Returns the values of a column, one for each message.

        Raises:
            LocalProtocolError: if there is no such column.
        """
        found: list[Any] = []
        place = 0 if self._rows is None else self._rows.place_of(name)
        for types, heads in self._parts:
            if self._rows is None or heads is None:
                found.extend([None] * len(types))
                continue
            read = self._rows.decode_column(heads, place)
            if heads.count < len(types):
                rest = iter(read)
                read = [next(rest) if type_ == values.ROW else None for type_ in types]
            found.extend(read)
        return found
