"""Tables of a spool: the writes of a connection, without its answers.

What one row needs is packed here, field by field, since this is what a front end waits for; many
rows are one command, built as for a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn, Unpack

from fjord import limits, values
from fjord.client.calls import check_name, check_names
from fjord.client.entries import (
    AnyKey,
    Key,
    duration_us,
    encode_domain,
    encode_key,
    microseconds,
)
from fjord.client.job_calls import JobCalls
from fjord.client.job_push import PushColumns, PushOptions, check_priority, due_us
from fjord.client.job_times import moment_us
from fjord.client.kv_calls import KvCalls, SetOneOptions, SetOptions
from fjord.client.schemas import NoSchemas, no_rows
from fjord.client.spool.record import HEAD, Kind, of_command
from fjord.client.stream_calls import StreamCalls
from fjord.clock import Stamps
from fjord.columns import repeat
from fjord.commands import Append, Command, Delete, Nop, Push, Set
from fjord.errors import Code, LocalProtocolError
from fjord.jobs import PRIORITY_MAX, Priority
from fjord.values import Value

Write = Callable[[bytes, int], None]  # a record, and when it was written

_PUSH_OPTIONS: Final = PushOptions.__optional_keys__
_SET_OPTIONS: Final = SetOneOptions.__optional_keys__ | SetOptions.__optional_keys__
_EMPTY: Final = "a key has at least one byte"
_VALUE: Final = f"a value has at most {limits.VALUE_BYTES_MAX} bytes"
_pack = HEAD.pack
# As plain numbers, which are packed faster than members of an enum.
_PUSH, _APPEND, _SET, _DELETE = map(int, (Kind.PUSH, Kind.APPEND, Kind.SET, Kind.DELETE))
_PRIORITY: Final = int(Priority.DEFAULT)
# An expiry that comes from a TTL ends such a stretch, so that many values expire together and the
# forwarder sends them as one command.
_EXPIRY_STEP_US: Final = 100_000


class _Table:
    """What the tables share."""

    def __init__(self, write: Write, stamps: Stamps, table: str) -> None:
        self._write = write
        self._stamps = stamps
        self._next_us = stamps.next_us
        self._name = check_name(table)
        self._table = table.encode()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"a spool only writes, and nobody answers: it has no {name}; use fjord.connect for that"
        )


class SpoolJobs(_Table):
    """A jobs table to push to; like `fjord.Jobs`."""

    def push(self, key: Key, value: Value = None, **options: Unpack[PushOptions]) -> None:
        """Adds a job, or merges it with the one that waits under the same key; see `Jobs.push`.

        Raises:
            DiskFullError: if the disk is full; nothing was written then.
            ValueError: if an option cannot be meant.
        """
        try:
            type_, data = values.encode(value)
            name = encode_key(key)
        except LocalProtocolError as error:
            raise (no_rows() if _is_row(key, value) else error) from None
        if len(name) > limits.JOB_KEY_BYTES_MAX or len(data) > limits.VALUE_BYTES_MAX:
            raise _too_large(name, data, limits.JOB_KEY_BYTES_MAX)
        stamp_us = self._next_us()
        if not options:
            priority, due, expires_us, domain = _PRIORITY, 0, 0, b""
        else:
            priority, due, expires_us, domain = _job_fields(options, stamp_us)
        table = self._table
        head = _pack(
            _PUSH, type_, priority, len(table), len(name), len(domain), stamp_us, due, expires_us
        )
        self._write(head + table + name + domain + data, stamp_us)

    def push_many(
        self, jobs: Iterable[Mapping[str, Any]] | None = None, **columns: Unpack[PushColumns]
    ) -> None:
        """Adds jobs, all or none; see `Jobs.push_many`."""
        calls = JobCalls(self._name, self._stamps, NoSchemas)
        command = calls.push_many(jobs, **columns).command
        if isinstance(command, Push):
            stamp_us = command.timestamps_us[0]
            if command.relative:
                dates = [delay and stamp_us + delay for delay in command.process_at_us]
                command = replace(command, process_at_us=dates, relative=False)
            _write_command(self._write, command, stamp_us)


class SpoolStream(_Table):
    """A stream to append to; like `fjord.Stream`."""

    def append(self, value: Value, key: Key = "") -> None:
        """Adds a message; see `Stream.append`.  Its seq is not known before it arrives.

        Raises:
            DiskFullError: if the disk is full; nothing was written then.
        """
        try:
            type_, data = values.encode(value)
            name = encode_key(key) if key else b""
        except LocalProtocolError as error:
            raise (no_rows() if _is_row(key, value) else error) from None
        if len(name) > limits.KV_KEY_BYTES_MAX or len(data) > limits.VALUE_BYTES_MAX:
            raise _too_large(name, data, limits.KV_KEY_BYTES_MAX)
        stamp_us = self._next_us()
        table = self._table
        head = _pack(_APPEND, type_, 0, len(table), len(name), 0, stamp_us, 0, 0)
        self._write(head + table + name + data, stamp_us)

    def append_many(self, values: Iterable[Value], keys: Iterable[Key] | None = None) -> None:
        """Adds messages in order; see `Stream.append_many`.

        As on a connection, many are several parts: those before the one that fails are written.
        """
        for call in StreamCalls(self._name, NoSchemas).append_parts(values, keys):
            command = call.command
            assert isinstance(command, Append)
            stamp_us = self._next_us()
            dates = repeat(stamp_us, len(command.types))
            _write_command(self._write, replace(command, timestamps_us=dates), stamp_us)


class SpoolKv(_Table):
    """A key/value table to write to; like `fjord.Kv`."""

    def set(self, key: Key, value: Value, **options: Unpack[SetOneOptions]) -> None:
        """Gives `key` a value; see `Kv.set`.

        Raises:
            DiskFullError: if the disk is full; nothing was written then.
            ValueError: if an option asks for an answer, or for a value that is not kept.
        """
        if options and options.get("also") is not None:
            _check_options(options)
            self._write_set(self._calls().set(key, value, **options).command)
            return
        type_, data = values.encode(value)
        name = encode_key(key)
        if not 0 < len(name) <= limits.KV_KEY_BYTES_MAX or len(data) > limits.VALUE_BYTES_MAX:
            raise _too_large(name, data, limits.KV_KEY_BYTES_MAX)
        stamp_us = self._next_us()
        ttl_us, expires_us = _life(options, stamp_us) if options else (0, 0)
        table = self._table
        head = _pack(_SET, type_, 0, len(table), len(name), 0, stamp_us, ttl_us, expires_us)
        self._write(head + table + name + data, stamp_us)

    def set_many(self, items: Mapping[AnyKey, Value], **options: Unpack[SetOptions]) -> None:
        """Gives values to many keys, all or none; see `Kv.set_many`."""
        _check_options(options)
        self._write_set(self._calls().set_many(items, **options).command)

    def delete(self, key: Key) -> None:
        """Takes the value of `key` away; see `Kv.delete`."""
        name = encode_key(key)
        if not 0 < len(name) <= limits.KV_KEY_BYTES_MAX:
            raise _too_large(name, b"", limits.KV_KEY_BYTES_MAX)
        stamp_us = self._next_us()
        table = self._table
        head = _pack(_DELETE, 0, 0, len(table), len(name), 0, stamp_us, 0, 0)
        self._write(head + table + name, stamp_us)

    def delete_many(self, keys: Iterable[Key]) -> None:
        """Takes the values of many keys away, in one commit."""
        command = self._calls().delete_many(keys).command
        if isinstance(command, Delete):
            _write_command(self._write, command, command.timestamp_us)

    def _calls(self) -> KvCalls:
        return KvCalls(self._name, self._stamps)

    def _write_set(self, command: Command) -> None:
        if isinstance(command, Nop):
            return  # set_many of nothing
        assert isinstance(command, Set)
        stamp_us = command.timestamps_us[0]
        expires_us = _expiry(command.ttl_us, command.expires_at_us, stamp_us)
        command = replace(command, expires_at_us=expires_us)
        _write_command(self._write, command, stamp_us)


def _is_row(*given: object) -> bool:
    return any(isinstance(one, Mapping) for one in given)


def _write_command(write: Write, command: Push | Append | Set | Delete, stamp_us: int) -> None:
    """Writes a command of many rows; what the daemon would refuse for its size is refused here."""
    keys = command.keys
    size = len(keys.data)
    is_push = type(command) is Push
    key_bytes_max = limits.JOB_KEY_BYTES_MAX if is_push else limits.KV_KEY_BYTES_MAX
    lengths = keys.lengths()
    if isinstance(command, Set | Delete) and not min(lengths):
        raise LocalProtocolError(Code.EMPTY_KEY, _EMPTY)
    if max(lengths) > key_bytes_max:
        raise LocalProtocolError(Code.KEY_TOO_LONG, f"a key has at most {key_bytes_max} bytes")
    if not isinstance(command, Delete):
        size += len(command.values.data)
        if max(command.values.lengths()) > limits.VALUE_BYTES_MAX:
            raise LocalProtocolError(Code.VALUE_TOO_LARGE, _VALUE)
    if isinstance(command, Push):
        size += len(command.domains.data)
    elif isinstance(command, Set) and command.also is not None:
        size += len(command.also.data)
    if len(keys) > limits.BATCH_ROWS_MAX or size > limits.BATCH_BYTES_MAX:
        raise LocalProtocolError(
            Code.TOO_LARGE,
            f"one call has at most {limits.BATCH_ROWS_MAX} rows and {limits.BATCH_BYTES_MAX} bytes "
            "of keys and values; use smaller ones",
        )
    write(of_command(command, stamp_us), stamp_us)


def _job_fields(options: PushOptions, stamp_us: int) -> tuple[int, int, int, bytes]:
    """Returns priority, process date, expiry and domain of a job that has options."""
    if not options.keys() <= _PUSH_OPTIONS:
        check_names("push", options, _PUSH_OPTIONS)
    priority, due, expires_us, domain = options.get("priority", _PRIORITY), 0, 0, b""
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        priority = check_priority(priority)
    delay, process_at = options.get("delay"), options.get("process_at")
    if delay is not None or process_at is not None:
        due, is_relative = due_us(delay, process_at)
        if due and is_relative:
            due += stamp_us
    if (expires_at := options.get("expires_at")) is not None:
        expires_us = moment_us(expires_at, "expires_at")
    if (given := options.get("domain")) is not None:
        domain = encode_domain(given)
        if len(domain) > limits.DOMAIN_BYTES_MAX:
            raise LocalProtocolError(
                Code.BAD_DOMAIN, f"a domain has at most {limits.DOMAIN_BYTES_MAX} bytes"
            )
    return priority, due, expires_us, domain


def _life(options: SetOneOptions, stamp_us: int) -> tuple[int, int]:
    """Returns TTL and expiry of a value that has options."""
    _check_options(options)
    ttl_us = duration_us(options.get("ttl"))
    return ttl_us, _expiry(ttl_us, microseconds(options.get("expires_at")), stamp_us)


def _expiry(ttl_us: int, expires_us: int, stamp_us: int) -> int:
    """Returns when a value expires that was written at a moment; 0 = never."""
    latest_us = stamp_us + limits.EXPIRY_AHEAD_US_MAX
    if ttl_us > limits.EXPIRY_AHEAD_US_MAX or expires_us > latest_us:
        raise LocalProtocolError(Code.BAD_TIMEOUT, "a value expires at most 30 days from now")
    if expires_us or not ttl_us:
        return expires_us
    exact_us = stamp_us + ttl_us
    return min(exact_us + -exact_us % _EXPIRY_STEP_US, latest_us)


def _check_options(options: Mapping[str, Any]) -> None:
    if not options.keys() <= _SET_OPTIONS:
        check_names("set", options, _SET_OPTIONS)
    if not options.get("overwrite", True):
        raise ValueError("a spool cannot say whether a key was there: overwrite is True")
    if not options.get("persist", True):
        raise ValueError("what is in a spool is kept on disk: persist is True")


def _too_large(key: bytes, value: bytes, key_bytes_max: int) -> LocalProtocolError:
    if len(value) > limits.VALUE_BYTES_MAX:
        return LocalProtocolError(Code.VALUE_TOO_LARGE, _VALUE)
    if len(key) > key_bytes_max:
        return LocalProtocolError(Code.KEY_TOO_LONG, f"a key has at most {key_bytes_max} bytes")
    return LocalProtocolError(Code.EMPTY_KEY, _EMPTY)
