"""The columns of declared tables, as far as a client knows them.

A table's handle fetches them from the server when it first meets a row that it cannot write or
read, and repeats the operation.  This takes several calls, written once as steps that every shell
follows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fjord import jobs, streams, values
from fjord.client.calls import Call, Result, Steps, check_dicts, not_a
from fjord.client.declared_tables import TableInfo, table_call
from fjord.client.entries import Encoded, decode_value
from fjord.declared import rows as declared_rows
from fjord.declared.rows import Rows
from fjord.declared.schema import Schema
from fjord.errors import Code, FjordError, LocalProtocolError, NotFoundError, StaleSchemaError

RowMap = Mapping[str, Any]  # a value of each column, by name
Columns = Mapping[str, Sequence[Any]]  # the values of each column, by name

_ROW: Final = bytes((values.ROW,))
_NUMBER_BYTES: Final = 2  # of the schema, in front of each row
NO_COLUMNS: Final = declared_rows.of(Schema())
# Tables whose columns a database remembers; those of tables not used for long are fetched again.
_TABLES_MAX: Final = 1024


class UnknownSchemaError(FjordError):
    """The columns of the table have just changed; read or write again."""


ReadSettings = Callable[[bytes], jobs.Settings | streams.Settings]
SchemasOf = Callable[[str, ReadSettings], "Schemas"]


def shared() -> SchemasOf:
    """Returns a function that gives all handles of one table the same `Schemas`."""
    return functools.lru_cache(maxsize=_TABLES_MAX)(Schemas)


class Schemas:
    """The columns of one table's rows, in all their versions."""

    def __init__(self, table: str, read_settings: ReadSettings) -> None:
        self._table = table
        self._read_settings = read_settings
        self.current: Rows | None = None  # None: not fetched yet
        self._known: dict[bytes, Rows] = {}  # by the number that rows begin with
        self._id = 0  # of the table; one that was created again has another

    def forget(self) -> None:
        self.current = None

    # -- asking the server ------------------------------------------------------------------------

    def learning(self) -> Steps[None]:
        """Fetches the columns; a missing table has none."""
        try:
            table: TableInfo = yield table_call(self._table)
        except NotFoundError:
            self.current = NO_COLUMNS
            return
        settings = self._read_settings(table.settings)
        if table.id != self._id:
            self._id, self._known = table.id, {}
        self.current = declared_rows.of(settings.declared)
        for schema in (*settings.earlier_declared, settings.declared):
            self._known[schema.number.to_bytes(_NUMBER_BYTES, "little")] = declared_rows.of(schema)

    def building(self, build: Callable[[], Result]) -> Steps[Result]:
        """Builds a call that may hold rows; calls `build` again once the columns are known."""
        before = self.current
        try:
            return build()
        except UnknownSchemaError:
            yield from self.learning()
        except (LocalProtocolError, TypeError):
            if before is None:
                raise  # the columns were not to blame
            yield from self.learning()
            if self.current is before:
                raise
        return build()

    def writing(self, build: Callable[[], Call[Result]]) -> Steps[Result]:
        """Runs a call that may hold rows, and again if the table's columns have changed."""
        call = yield from self.building(build)
        try:
            found: Result = yield call
        except StaleSchemaError:
            yield from self.learning()
            found = yield build()
        return found

    def reading(self, call: Call[Result]) -> Steps[Result]:
        """Runs a read that may return rows."""
        try:
            found: Result = yield call
        except UnknownSchemaError:
            yield from self.learning()
            found = yield call
        return found

    # -- writing ----------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The columns of new rows; empty if the table has none.

        Raises:
            UnknownSchemaError: if they must be fetched from the server first.
        """
        if self.current is None:
            raise UnknownSchemaError
        return self.current.schema.names

    @property
    def has_key(self) -> bool:
        """Whether keys are made of columns; False while the columns are unknown."""
        return self.current is not None and bool(self.current.schema.key)

    def encode(self, rows: Sequence[RowMap]) -> tuple[Encoded, Encoded]:
        """Returns encoded rows, and their keys if the table has key columns.

        Raises:
            UnknownSchemaError: if the columns must be fetched from the server first.
            LocalProtocolError: if the rows do not fit this table.
            TypeError: if they are not rows.
        """
        check_dicts("each value, where one is a row,", "a dict", rows)
        found, keys = self._rows().encode(rows)
        return Encoded(found), Encoded(keys)

    def encode_columns(self, columns: Columns) -> tuple[Encoded, Encoded]:
        """Like `encode`, for rows given as a list for each column."""
        for name, column in columns.items():
            if isinstance(column, str | bytes) or not isinstance(column, Sequence):
                raise not_a(f"column {name}", "a list of values", column)
        found, keys = self._rows().encode_columns(columns)
        return Encoded(found), Encoded(keys)

    def _rows(self) -> Rows:
        if self.current is None:
            raise UnknownSchemaError
        if not self.current.schema.columns:
            self.forget()  # it may have some once it is created
            text = f"table {self._table} has no declared columns, so it takes no rows"
            raise LocalProtocolError(Code.BAD_TYPE, text)
        return self.current

    # -- reading ----------------------------------------------------------------------------------

    def lacks(self, types: bytes, column: Sequence[bytes]) -> bool:
        """Says whether columns must be fetched to read the rows among these values."""
        if values.ROW not in types:
            return False
        begun = {
            data[:_NUMBER_BYTES]
            for type_, data in zip(types, column, strict=True)
            if type_ == values.ROW
        }
        return not self._known.keys() >= begun

    def decode(self, type_: int, data: bytes) -> Any:
        """Returns a value, or a row as a dict.

        Raises:
            UnknownSchemaError: if the columns must be fetched from the server first.
        """
        if type_ != values.ROW:
            return decode_value(type_, data)
        return self.rows_of(data).decode([data])[0]

    def decode_all(
        self,
        types: bytes,
        column: Sequence[bytes],
        plain: Callable[[int, bytes], Any] = decode_value,
    ) -> list[Any]:
        """Like `decode` for many values, with rows of one schema together; `plain` reads others."""
        if types and not types.strip(_ROW):
            own: list[Any] | None = self.rows_of(column[0]).decode_own(column)
            if own is not None:
                return own
        places: dict[bytes, list[int]] = {}
        found: list[Any] = [None] * len(column)
        for place, (type_, data) in enumerate(zip(types, column, strict=True)):
            if type_ == values.ROW:
                places.setdefault(data[:_NUMBER_BYTES], []).append(place)
            else:
                found[place] = plain(type_, data)
        for number, those in places.items():
            rows = self._of(number).decode([column[place] for place in those])
            for place, row in zip(those, rows, strict=True):
                found[place] = row
        return found

    def rows_of(self, row: bytes) -> Rows:
        return self._of(row[:_NUMBER_BYTES])

    def _of(self, number: bytes) -> Rows:
        known = self._known.get(number)
        if known is None:
            self.forget()
            raise UnknownSchemaError
        return known


class NoSchemas(Schemas):
    """For a spool, which cannot ask the server: it refuses rows."""

    @property
    def names(self) -> list[str]:
        return []

    def _rows(self) -> Rows:
        raise no_rows()


def no_rows() -> LocalProtocolError:
    text = "a spool takes no rows, since it cannot ask the server for columns; use fjord.connect"
    return LocalProtocolError(Code.BAD_TYPE, text)
