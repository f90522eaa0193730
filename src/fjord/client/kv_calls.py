"""The calls of a key/value table: what users ask for turned into commands, replies into values.

Pure, and shared by all shells: `Kv`, `AsyncKv` and transactions only run what is built here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict, Unpack

from fjord import limits, values
from fjord.client.calls import Call, done, expect, expect_rows
from fjord.client.entries import (
    PLAIN,
    AnyKey,
    Decoding,
    Entry,
    Key,
    Seconds,
    decode_value,
    duration_us,
    encode_key,
    encode_keys,
    microseconds,
    read_entry,
    read_values,
)
from fjord.client.pages import Span, Walk, read_entries, read_items, read_keys
from fjord.clock import Stamps
from fjord.columns import Strings, repeat
from fjord.commands import (
    Change,
    Delete,
    Entries,
    Get,
    Listen,
    Lock,
    Modify,
    Nop,
    Rename,
    Reply,
    Set,
    Touch,
    Unlock,
)
from fjord.errors import Code, LocalProtocolError
from fjord.values import Type, Value


class SetOptions(TypedDict, total=False):
    """How values are set."""

    ttl: Seconds | None  # lives so long, and again so long after each touch
    expires_at: datetime | None  # lives until then
    overwrite: bool  # False: refuse if a key is there; True unless given
    persist: bool  # False: in memory only, gone with the process; True unless given


class SetOneOptions(SetOptions, total=False):
    """How one value is set."""

    also: Iterable[Key] | None  # the value's further keys from now on; None leaves them


_SET_OPTIONS: Final = SetOptions.__optional_keys__


class KvCalls:
    """Builds the calls of one table."""

    def __init__(self, table: str, stamps: Stamps, decoding: Decoding = PLAIN) -> None:
        self.table = table
        self._stamps = stamps
        self._decoding = decoding

    # -- writes -----------------------------------------------------------------------------------

    def set(self, key: Key, value: Value, **options: Unpack[SetOneOptions]) -> Call[None]:
        also = options.pop("also", None)
        return self._set({key: value}, options, also)

    def set_many(self, items: Mapping[AnyKey, Value], **options: Unpack[SetOptions]) -> Call[None]:
        return self._set(items, options) if items else Call(Nop(), done)

    def _set(
        self,
        items: Mapping[AnyKey, Value],
        options: SetOptions,
        also: Iterable[Key] | None = None,
    ) -> Call[None]:
        encoded = list(map(values.encode, items.values()))
        command = Set(
            table=self.table,
            keys=Strings.of(encode_keys(items)),
            types=bytes([type_ for type_, _ in encoded]),
            values=Strings.of([data for _, data in encoded]),
            timestamps_us=repeat(self._stamps.next_us(), len(encoded)),
            also=None if also is None else self._keys(_listed(also)),
            **(_set_fields(options) if options else {}),
        )
        return Call(command, done)

    def delete_many(self, keys: Iterable[Key], *, purge: bool = False) -> Call[None]:
        encoded = encode_keys(_listed(keys))
        if not encoded:
            return Call(Nop(), done)
        command = Delete(
            table=self.table,
            keys=Strings.of(encoded),
            timestamp_us=self._stamps.next_us(),
            purge=purge,
        )
        return Call(command, done)

    def add(self, key: Key, amount: float) -> Call[Value]:
        type_, operand = values.encode(amount)
        if type_ not in (Type.INTEGER, Type.FLOAT):
            raise LocalProtocolError(Code.BAD_TYPE, "only an int or a float can be added")
        return self._modify(key, Change.ADD, operand, type_)

    def flip(self, key: Key) -> Call[Value]:
        return self._modify(key, Change.NOT)

    def truncate(self, key: Key, size: int) -> Call[Value]:
        _, operand = values.encode(size)
        return self._modify(key, Change.TRUNCATE, operand)

    def _modify(
        self, key: Key, change: Change, operand: bytes = b"", type_: int = Type.INTEGER
    ) -> Call[Value]:
        command = Modify(
            table=self.table,
            key=encode_key(key),
            change=change,
            operand=operand,
            operand_type=type_,
            timestamp_us=self._stamps.next_us(),
        )
        return Call(command, _first_value)

    def rename(self, key: Key, to: Key, *, overwrite: bool = False) -> Call[None]:
        command = Rename(
            table=self.table,
            key=encode_key(key),
            to=encode_key(to),
            timestamp_us=self._stamps.next_us(),
            overwrite=overwrite,
        )
        return Call(command, done)

    # -- reads ------------------------------------------------------------------------------------

    def get_many(
        self, keys: Iterable[AnyKey], *, skip_worked: bool = False
    ) -> Call[dict[AnyKey, Value]]:
        wanted = _listed(keys)
        if not wanted:
            return Call(Nop(), _nothing)
        command = Get(table=self.table, keys=self._keys(wanted), skip_worked=skip_worked)
        return Call(
            command,
            lambda reply: read_values(wanted, _entries(reply, len(wanted)), self._decoding),
        )

    def entry(self, key: Key) -> Call[Entry | None]:
        command = Get(table=self.table, keys=self._keys([key]))

        def read(reply: Reply) -> Entry | None:
            found = _entries(reply, 1)
            if found.types[0] == Entries.MISSING:
                return None
            return read_entry(found, 0, self._decoding)

        return Call(command, read)

    def exists(self, key: Key) -> Call[bool]:
        command = Get(table=self.table, keys=self._keys([key]), with_data=False)
        return Call(command, lambda reply: _entries(reply, 1).types[0] != Entries.MISSING)

    def touch_many(
        self,
        keys: Iterable[AnyKey],
        *,
        ttl: Seconds | None = None,
        expires_at: datetime | None = None,
    ) -> Call[dict[AnyKey, Value]]:
        until_us = microseconds(expires_at)
        if ttl is not None:
            until_us = max(until_us, self._stamps.next_us() + duration_us(ttl))
        return self._touch(_listed(keys), extend=True, expires_at_us=until_us)

    def take_many(self, keys: Iterable[AnyKey], *, seconds: Seconds) -> Call[dict[AnyKey, Value]]:
        until_us = self._stamps.next_us() + duration_us(seconds)
        return self._touch(_listed(keys), worked_until_us=until_us)

    def _touch(
        self,
        wanted: list[AnyKey],
        *,
        extend: bool = False,
        expires_at_us: int = 0,
        worked_until_us: int = 0,
    ) -> Call[dict[AnyKey, Value]]:
        if not wanted:
            return Call(Nop(), _nothing)
        command = Touch(
            table=self.table,
            keys=self._keys(wanted),
            extend=extend,
            expires_at_us=expires_at_us,
            worked_until_us=worked_until_us,
        )
        return Call(command, lambda reply: read_values(wanted, _entries(reply, len(wanted))))

    # -- pages ------------------------------------------------------------------------------------

    def items(self, span: Span[AnyKey]) -> Walk[tuple[AnyKey, Value]]:
        return Walk(self.table, span, read_items(span, self._decoding))

    def entries(self, span: Span[AnyKey]) -> Walk[tuple[AnyKey, Entry]]:
        return Walk(self.table, span, read_entries(span, self._decoding))

    def keys(self, span: Span[AnyKey]) -> Walk[AnyKey]:
        return Walk(self.table, span, read_keys(span), with_data=False)

    # -- locks and listening ----------------------------------------------------------------------

    def lock(self, keys: Iterable[Key]) -> Call[None]:
        return Call(Lock(table=self.table, keys=self._keys(_some(keys))), done)

    def unlock(self, keys: Iterable[Key]) -> Call[None]:
        return Call(Unlock(table=self.table, keys=self._keys(_some(keys))), done)

    def listen(self, keys: Iterable[Key]) -> Listen:
        return Listen(table=self.table, keys=self._keys(_some(keys)))

    def _keys(self, keys: Iterable[Key]) -> Strings:
        return Strings.of(encode_keys(keys))


def _set_fields(options: SetOptions) -> dict[str, Any]:
    """Returns options as the fields of a command."""
    if not options.keys() <= _SET_OPTIONS:
        unknown = ", ".join(sorted(options.keys() - _SET_OPTIONS))
        raise TypeError(f"set has no option {unknown}")
    return {
        "expires_at_us": microseconds(options.get("expires_at")),
        "ttl_us": duration_us(options.get("ttl")),
        "overwrite": options.get("overwrite", True),
        "persist": options.get("persist", True),
    }


def _listed(keys: Iterable[AnyKey]) -> list[AnyKey]:
    """Returns keys as a list; a lone key would be taken for one key a letter."""
    if isinstance(keys, str | bytes | bytearray | memoryview):
        raise LocalProtocolError(Code.BAD_TYPE, "several keys are a list; this is a single one")
    listed = list(keys)
    if len(listed) > limits.BATCH_ROWS_MAX:
        raise LocalProtocolError(
            Code.BAD_BATCH, f"a batch has at most {limits.BATCH_ROWS_MAX} keys; use smaller ones"
        )
    return listed


def _some(keys: Iterable[Key]) -> list[Key]:
    listed = _listed(keys)
    if not listed:
        raise LocalProtocolError(Code.EMPTY_KEY, "name at least one key")
    return listed


def _nothing(reply: Reply) -> dict[AnyKey, Value]:
    done(reply)
    return {}


def _entries(reply: Reply, rows: int) -> Entries:
    found = expect(reply, Entries)
    expect_rows(len(found.types), rows)
    return found


def _first_value(reply: Reply) -> Value:
    found = _entries(reply, 1)
    return decode_value(found.types[0], found.values[0])
