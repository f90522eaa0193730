"""What is wrong with a key/value command is refused, with the code that says so."""

from __future__ import annotations

import math
import struct

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Change
from fjord.errors import Code, RefusedError
from fjord.tables import rules
from fjord.tables.rules import check_keys, check_timestamps
from fjord.values import Type


def check_delete(command: commands.Delete, now_us: int) -> None:
    check_keys(command.keys)
    stamps = command.timestamps_us
    if stamps is not None and len(stamps) != len(command.keys):
        raise RefusedError(Code.BAD_BATCH, "keys and dates differ in number")
    check_timestamps((command.timestamp_us,) if stamps is None else stamps, now_us)


def check_set(command: commands.Set, now_us: int) -> None:
    check_keys(command.keys)
    stamps, rows = command.timestamps_us, len(command.types)
    offsets = command.values.offsets
    if not (len(command.keys.offsets) == len(offsets) == rows + 1 == len(stamps) + 1):
        raise RefusedError(Code.BAD_BATCH, "keys, types and values differ in number")
    rules.check_sizes(command.keys, command.values)
    if command.expires_at_us or command.ttl_us:
        _check_moment(command.expires_at_us, now_us)
        if not 0 <= command.ttl_us <= limits.EXPIRY_AHEAD_US_MAX:
            raise RefusedError(Code.BAD_TIMEOUT, "a TTL is at most 30 days")
    check_timestamps(stamps, now_us)
    rules.check_plain_values(command.types, command.values)
    if command.also is not None:
        _check_also(command, command.also)


def _check_also(command: commands.Set, also: Strings) -> None:
    if len(command.types) != 1:
        raise RefusedError(Code.BAD_BATCH, "further keys are given to one key at a time")
    if not command.persist and also:
        raise RefusedError(Code.BAD_BATCH, "with persist=0 a value has one key")
    if len(also) > limits.ALSO_MAX:
        raise RefusedError(Code.BAD_COUNT, f"a value has at most {limits.ALSO_MAX} more keys")
    if also:
        check_keys(also)


def check_touch(command: commands.Touch, now_us: int) -> None:
    check_keys(command.keys)
    if command.extend:
        _check_moment(command.expires_at_us, now_us)
    _check_moment(command.worked_until_us, now_us)


def check_modify(command: commands.Modify, now_us: int) -> None:
    _check_key(command.key)
    check_timestamps((command.timestamp_us,), now_us)
    if command.change == Change.NOT:
        return
    if len(command.operand) != 8:
        raise RefusedError(Code.BAD_VALUE, "an operand has exactly 8 bytes")
    if command.operand_type == Type.INTEGER:
        return
    if command.operand_type != Type.FLOAT or command.change == Change.TRUNCATE:
        raise RefusedError(Code.BAD_TYPE, "a number is added, and a size is an integer")
    if not math.isfinite(struct.unpack("<d", command.operand)[0]):
        raise RefusedError(Code.BAD_VALUE, "an infinity, or no number, cannot be added")


def check_rename(command: commands.Rename, now_us: int) -> None:
    _check_key(command.key)
    _check_key(command.to)
    check_timestamps((command.timestamp_us,), now_us)


def check_range(command: commands.Range) -> None:
    for bound in (command.start, command.stop):
        if bound:
            _check_key(bound)
    if command.stop and command.start > command.stop:
        raise RefusedError(Code.BAD_RANGE, "a range begins before it ends")
    if command.count < 0:
        raise RefusedError(Code.BAD_COUNT, "a count is 0 or more; 0 is the server's maximum")
    if len(command.regex) > limits.REGEX_BYTES_MAX:
        text = f"a regular expression has at most {limits.REGEX_BYTES_MAX} bytes"
        raise RefusedError(Code.BAD_REGEX, text)


def _check_key(key: bytes) -> None:
    check_keys(Strings.of([key]))


def _check_moment(moment_us: int, now_us: int) -> None:
    """Refuses a moment that is over, or too far ahead; 0 stands for none."""
    if moment_us and not now_us < moment_us <= now_us + limits.EXPIRY_AHEAD_US_MAX:
        raise RefusedError(Code.BAD_TIMEOUT, "an expiry is from now to 30 days ahead")
