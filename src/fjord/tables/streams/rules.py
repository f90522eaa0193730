"""What is wrong with a command on streams is refused, with the code that says so."""

from __future__ import annotations

from typing import Final

from fjord import commands, kinds, limits, streams
from fjord.columns import Strings
from fjord.errors import Code, RefusedError
from fjord.streams import Mode, Start
from fjord.tables import catalog, rules
from fjord.tables.state import State, Table
from fjord.values import Type

_STRING: Final = bytes([Type.STRING])


def settings_of(table: Table) -> streams.Settings:
    return streams.decode_settings(table.settings)


def is_latest(table: Table) -> bool:
    return settings_of(table).mode is Mode.LATEST


def find(state: State, name: str) -> Table:
    """Returns the stream of that name."""
    table = catalog.find(state, name, kinds.Kind.STREAM)
    if table is None:
        raise RefusedError(Code.NOT_FOUND, f"there is no stream {name}")
    return table


def find_map(state: State, name: str) -> Table | None:
    """Returns the table of that name if it has one value a key; None if there is none."""
    table = state.tables.get(name)
    if table is None or table.kind is not kinds.Kind.STREAM:
        return catalog.find(state, name, kinds.Kind.KV)
    if not is_latest(table):
        text = f"stream {name} keeps every message; only mode latest has one for each key"
        raise RefusedError(Code.WRONG_KIND, text)
    return table


def check_append(command: commands.Append, now_us: int) -> None:
    rows, keys, dates = len(command.types), command.keys, command.timestamps_us
    if not len(keys) == len(command.values) == rows:
        raise RefusedError(Code.BAD_BATCH, "keys, types and values differ in number")
    rules.check_rows(rows)
    rules.check_sizes(keys, command.values)
    if len(keys.data) > limits.KV_KEY_BYTES_MAX < max(keys.lengths()):
        text = f"a key has at most {limits.KV_KEY_BYTES_MAX} bytes"
        raise RefusedError(Code.KEY_TOO_LONG, text)
    if dates is not None:  # they are looked at in every mode, though a log has no use for them
        if len(dates) != rows:
            raise RefusedError(Code.BAD_BATCH, "messages and their dates differ in number")
        rules.check_timestamps(dates, now_us)


def check_values(command: commands.Append, table: Table) -> None:
    """Looks at single values only where their types, or columns, say that it matters."""
    types, settings = command.types, settings_of(table)
    if settings.columns or types.strip(_STRING) or not _is_text(command.values):
        rules.check_values(types, command.values, settings.declared)


def _is_text(column: Strings) -> bool:
    """Says whether all strings are ASCII; others are looked at one by one."""
    data = column.data
    return (data if isinstance(data, bytes) else bytes(data)).isascii()


def check_start(start: int, at: int) -> None:
    if start not in set(Start):
        raise RefusedError(Code.BAD_RANGE, "a start is the beginning, the end, a seq or a moment")
    if start == Start.TIME and at < limits.TIMESTAMP_US_MIN:
        raise RefusedError(Code.BAD_TIMESTAMP, "a moment is in Unix microseconds")


def count_of(count: int, most: int) -> int:
    """Returns how many are wanted at most; 0 stands for the most there may be."""
    return min(count or most, most)
