"""What can be wrong with a command on streams, and the code that says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fjord import commands, kinds, limits, streams
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.errors import Code
from fjord.streams import Mode, Start
from fjord.tables import catalog
from fjord.tables import rules as row_rules
from fjord.tables.kv import rules
from fjord.tables.state import State, Table
from fjord.values import Type

_STRING: Final = bytes([Type.STRING])


def settings_of(table: Table) -> streams.Settings:
    return streams.decode_settings(table.settings)


def is_latest(table: Table) -> bool:
    return settings_of(table).mode is Mode.LATEST


def find(state: State, name: str) -> Table | Refusal:
    """Returns the stream of that name."""
    table = catalog.find(state, name, kinds.Kind.STREAM)
    if table is None:
        return Refusal(code=Code.NOT_FOUND, text=f"there is no stream {name}")
    return table


def find_map(state: State, name: str) -> Table | Refusal | None:
    """Returns the table of that name if it has one value a key; None if there is none."""
    table = state.tables.get(name)
    if table is not None and table.kind is kinds.Kind.STREAM:
        text = f"stream {name} keeps every message; only mode latest has one for each key"
        return table if is_latest(table) else Refusal(code=Code.WRONG_KIND, text=text)
    return catalog.find(state, name, kinds.Kind.KV)


def append_problem(command: commands.Append, now_us: int) -> Refusal | None:
    rows, data = len(command.types), command.values.data
    if not len(command.keys) == len(command.values) == rows:
        return Refusal(code=Code.BAD_BATCH, text="keys, types and values differ in number")
    if not 0 < rows <= limits.BATCH_ROWS_MAX:
        text = f"a batch has 1 to {limits.BATCH_ROWS_MAX} rows"
        return Refusal(code=Code.BAD_BATCH, text=text)
    if len(data) + len(command.keys.data) > limits.BATCH_BYTES_MAX:
        text = f"the keys and values of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    # Where all of them together are no larger than one may be, there is nothing to measure.
    if len(data) > limits.VALUE_BYTES_MAX < max(command.values.lengths()):
        text = f"a value has at most {limits.VALUE_BYTES_MAX} bytes"
        return Refusal(code=Code.VALUE_TOO_LARGE, text=text)
    if len(command.keys.data) > limits.KV_KEY_BYTES_MAX < max(command.keys.lengths()):
        text = f"a key has at most {limits.KV_KEY_BYTES_MAX} bytes"
        return Refusal(code=Code.KEY_TOO_LONG, text=text)
    return _dates_problem(command.timestamps_us, rows, now_us)


def _dates_problem(dates: Sequence[int] | None, rows: int, now_us: int) -> Refusal | None:
    """Looks at dates in every mode, though a log has no use for them."""
    if dates is None:
        return None
    if len(dates) != rows:
        return Refusal(code=Code.BAD_BATCH, text="messages and their dates differ in number")
    return rules.timestamp_problem(min(dates), now_us) or rules.timestamp_problem(
        max(dates), now_us
    )


def values_problem(command: commands.Append, table: Table) -> Refusal | None:
    """Looks at single values only where their types, or columns, say that it matters."""
    types, settings = command.types, settings_of(table)
    if not settings.columns and not types.strip(_STRING) and _is_text(command.values):
        return None
    return row_rules.problem(types, command.values, settings.declared)


def _is_text(column: Strings) -> bool:
    """Says whether all strings are ASCII; others are looked at one by one."""
    data = column.data
    return (data if isinstance(data, bytes) else bytes(data)).isascii()


def start_problem(start: int, at: int) -> Refusal | None:
    if start not in set(Start):
        text = "a start is the beginning, the end, a seq or a moment"
        return Refusal(code=Code.BAD_RANGE, text=text)
    if start == Start.TIME and at < limits.TIMESTAMP_US_MIN:
        return Refusal(code=Code.BAD_TIMESTAMP, text="a moment is in Unix microseconds")
    return None


def count_of(count: int, most: int) -> int:
    """Returns how many are wanted at most; 0 stands for the most there may be."""
    return min(count or most, most)
