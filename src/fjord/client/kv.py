"""A key/value table: the calls of users turned into commands, and replies into Python values.

`KvCalls` is pure and shared; `Kv` and `fjord.aio`'s `AsyncKv` only run what it builds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from fjord import values
from fjord.client.calls import Call, Run, done
from fjord.clock import Stamps
from fjord.columns import Strings, repeat
from fjord.commands import Delete, Entries, Get, Nop, Reply, Set
from fjord.errors import Code, LocalProtocolError
from fjord.values import Value

Key = str | bytes
AnyKey = TypeVar("AnyKey", bound=Key)
Default = TypeVar("Default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A value and what is known of it."""

    value: Value
    type: values.Type
    written_at: datetime  # the writer's clock
    expires_at: datetime | None


class KvCalls:
    """Builds the calls of one table."""

    def __init__(self, table: str, stamps: Stamps) -> None:
        self._table = table
        self._stamps = stamps

    def set_many(
        self,
        items: Mapping[AnyKey, Value],
        *,
        expires_at: datetime | None = None,
        overwrite: bool = True,
        persist: bool = True,
    ) -> Call[None]:
        if not items:
            return Call(Nop(), done)
        encoded = list(map(values.encode, items.values()))
        command = Set(
            table=self._table,
            keys=Strings.of(encode_keys(items)),
            types=bytes([type_ for type_, _ in encoded]),
            values=Strings.of([data for _, data in encoded]),
            timestamps_us=repeat(self._stamps.next_us(), len(encoded)),
            expires_at_us=_microseconds(expires_at),
            overwrite=overwrite,
            persist=persist,
        )
        return Call(command, done)

    def get_many(self, keys: Iterable[AnyKey]) -> Call[dict[AnyKey, Value]]:
        wanted = list(keys)
        if not wanted:
            return Call(Nop(), lambda reply: {})
        command = Get(table=self._table, keys=Strings.of(encode_keys(wanted)))

        def read(reply: Reply) -> dict[AnyKey, Value]:
            assert isinstance(reply, Entries)
            rows = zip(wanted, reply.types, reply.values.rows(), strict=True)
            return {
                key: values.decode(type_, data)
                for key, type_, data in rows
                if type_ != Entries.MISSING
            }

        return Call(command, read)

    def entry(self, key: Key) -> Call[Entry | None]:
        command = Get(table=self._table, keys=Strings.of(encode_keys([key])))
        return Call(command, _read_entry)

    def delete_many(self, keys: Iterable[Key]) -> Call[None]:
        encoded = encode_keys(keys)
        if not encoded:
            return Call(Nop(), done)
        command = Delete(
            table=self._table,
            keys=Strings.of(encoded),
            timestamp_us=self._stamps.next_us(),
        )
        return Call(command, done)


class Kv:
    """A key/value table.  Every call returns when its effect is durable."""

    def __init__(self, run: Run, calls: KvCalls) -> None:
        self._run = run
        self._calls = calls

    def set(
        self,
        key: Key,
        value: Value,
        *,
        expires_at: datetime | None = None,
        overwrite: bool = True,
        persist: bool = True,
    ) -> None:
        """Gives `key` a value.

        Raises:
            ExistsError: if the key is there and `overwrite` is off.
        """
        self.set_many({key: value}, expires_at=expires_at, overwrite=overwrite, persist=persist)

    def get(self, key: Key, default: Default | None = None) -> Value | Default:
        """Returns the value of `key`, or `default` if there is none."""
        return self._run(self._calls.get_many([key])).get(key, default)

    def entry(self, key: Key) -> Entry | None:
        """Returns the value of `key` with its type and dates, None if there is none."""
        return self._run(self._calls.entry(key))

    def delete(self, key: Key) -> None:
        """Takes the value of `key` away; a missing key is no error."""
        self.delete_many([key])

    def set_many(
        self,
        items: Mapping[AnyKey, Value],
        *,
        expires_at: datetime | None = None,
        overwrite: bool = True,
        persist: bool = True,
    ) -> None:
        """Gives values to many keys, all or none, in one commit."""
        call = self._calls.set_many(
            items, expires_at=expires_at, overwrite=overwrite, persist=persist
        )
        self._run(call)

    def get_many(self, keys: Iterable[AnyKey]) -> dict[AnyKey, Value]:
        """Returns the values of those keys that have one."""
        return self._run(self._calls.get_many(keys))

    def delete_many(self, keys: Iterable[Key]) -> None:
        """Takes the values of many keys away, in one commit."""
        self._run(self._calls.delete_many(keys))


def encode_keys(keys: Iterable[Key]) -> list[bytes]:
    """Returns the bytes of keys.

    Raises:
        LocalProtocolError: if one is neither str nor bytes, or not UTF-8.
    """
    try:
        return [key.encode() if type(key) is str else _encode_key(key) for key in keys]
    except UnicodeEncodeError as error:
        raise LocalProtocolError(Code.BAD_VALUE, f"the key is not UTF-8: {error}") from error


def _encode_key(key: Key) -> bytes:
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key)
    raise LocalProtocolError(Code.BAD_TYPE, f"a key is str or bytes, not {type(key).__name__}")


def _read_entry(reply: Reply) -> Entry | None:
    assert isinstance(reply, Entries)
    if reply.types[0] == Entries.MISSING:
        return None
    return Entry(
        value=values.decode(reply.types[0], reply.values[0]),
        type=values.Type(reply.types[0]),
        written_at=_datetime(reply.timestamps_us[0]),
        expires_at=_datetime(reply.expires_at_us[0]) if reply.expires_at_us[0] else None,
    )


def _microseconds(moment: datetime | None) -> int:
    if moment is None:
        return 0
    microseconds = round(moment.timestamp() * 1_000_000)
    if microseconds <= 0:
        raise LocalProtocolError(Code.BAD_TIMEOUT, "an expiry is in the future")
    return microseconds


def _datetime(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, tz=UTC)
