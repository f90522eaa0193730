"""What can be wrong with a key/value command, and the code that says so."""

from __future__ import annotations

import math
import struct

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Change, Refusal
from fjord.errors import Code
from fjord.tables import rules
from fjord.values import Type


def keys_problem(keys: Strings) -> Refusal | None:
    lengths = keys.lengths()
    if not lengths or len(lengths) > limits.BATCH_ROWS_MAX:
        text = f"a batch has 1 to {limits.BATCH_ROWS_MAX} rows"
        return Refusal(code=Code.BAD_BATCH, text=text)
    if len(keys.data) > limits.BATCH_BYTES_MAX:
        text = f"the keys of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    if not min(lengths):
        return Refusal(code=Code.EMPTY_KEY, text="a key has at least one byte")
    if max(lengths) > limits.KV_KEY_BYTES_MAX:
        text = f"a key has at most {limits.KV_KEY_BYTES_MAX} bytes"
        return Refusal(code=Code.KEY_TOO_LONG, text=text)
    return None


def delete_problem(command: commands.Delete, now_us: int) -> Refusal | None:
    problem = keys_problem(command.keys)
    if problem is not None:
        return problem
    stamps = command.timestamps_us
    if stamps is None:
        return timestamp_problem(command.timestamp_us, now_us)
    if len(stamps) != len(command.keys):
        return Refusal(code=Code.BAD_BATCH, text="keys and dates differ in number")
    return timestamp_problem(min(stamps), now_us) or timestamp_problem(max(stamps), now_us)


def set_problem(command: commands.Set, now_us: int) -> Refusal | None:
    problem = keys_problem(command.keys)
    if problem is not None:
        return problem
    stamps, rows, values_ = command.timestamps_us, len(command.types), command.values
    if not (len(command.keys.offsets) == len(values_.offsets) == rows + 1 == len(stamps) + 1):
        return Refusal(code=Code.BAD_BATCH, text="keys, types and values differ in number")
    if len(command.keys.data) + len(values_.data) > limits.BATCH_BYTES_MAX:
        text = f"the keys and values of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    # Where all values together are no larger than one may be, there is nothing to measure.
    if len(values_.data) > limits.VALUE_BYTES_MAX < max(values_.lengths()):
        text = f"a value has at most {limits.VALUE_BYTES_MAX} bytes"
        return Refusal(code=Code.VALUE_TOO_LARGE, text=text)
    if command.expires_at_us or command.ttl_us:
        problem = _moment_problem(command.expires_at_us, now_us) or _ttl_problem(command.ttl_us)
        if problem is not None:
            return problem
    dates = stamps if isinstance(stamps, tuple) else list(stamps)  # lists are faster to go through
    newest_us = now_us + limits.TIMESTAMP_AHEAD_US_MAX
    if min(dates) < limits.TIMESTAMP_US_MIN or max(dates) > newest_us:
        return timestamp_problem(0, now_us)
    problem = rules.plain_problem(command.types, command.values)
    return problem or (None if command.also is None else _also_problem(command))


def _also_problem(command: commands.Set) -> Refusal | None:
    assert command.also is not None
    if len(command.types) != 1:
        return Refusal(code=Code.BAD_BATCH, text="further keys are given to one key at a time")
    if not command.persist and command.also:
        return Refusal(code=Code.BAD_BATCH, text="with persist=0 a value has one key")
    if len(command.also) > limits.ALSO_MAX:
        return Refusal(code=Code.BAD_COUNT, text=f"a value has at most {limits.ALSO_MAX} more keys")
    return keys_problem(command.also) if command.also else None


def touch_problem(command: commands.Touch, now_us: int) -> Refusal | None:
    problem = keys_problem(command.keys)
    if problem is not None:
        return problem
    if command.extend:
        problem = _moment_problem(command.expires_at_us, now_us)
    return problem or _moment_problem(command.worked_until_us, now_us)


def modify_problem(command: commands.Modify, now_us: int) -> Refusal | None:
    problem = key_problem(command.key) or timestamp_problem(command.timestamp_us, now_us)
    if problem is not None or command.change == Change.NOT:
        return problem
    if len(command.operand) != 8:
        return Refusal(code=Code.BAD_VALUE, text="an operand has exactly 8 bytes")
    if command.operand_type == Type.INTEGER:
        return None
    if command.operand_type != Type.FLOAT or command.change == Change.TRUNCATE:
        return Refusal(code=Code.BAD_TYPE, text="a number is added, and a size is an integer")
    if not math.isfinite(struct.unpack("<d", command.operand)[0]):
        return Refusal(code=Code.BAD_VALUE, text="an infinity, or no number, cannot be added")
    return None


def rename_problem(command: commands.Rename, now_us: int) -> Refusal | None:
    return (
        key_problem(command.key)
        or key_problem(command.to)
        or timestamp_problem(command.timestamp_us, now_us)
    )


def range_problem(command: commands.Range) -> Refusal | None:
    for bound in (command.start, command.stop):
        problem = key_problem(bound) if bound else None
        if problem is not None:
            return problem
    if command.stop and command.start > command.stop:
        return Refusal(code=Code.BAD_RANGE, text="a range begins before it ends")
    if command.count < 0:
        return Refusal(code=Code.BAD_COUNT, text="a count is 0 or more; 0 is the server's maximum")
    if len(command.regex) > limits.REGEX_BYTES_MAX:
        text = f"a regular expression has at most {limits.REGEX_BYTES_MAX} bytes"
        return Refusal(code=Code.BAD_REGEX, text=text)
    return None


def key_problem(key: bytes) -> Refusal | None:
    return keys_problem(Strings.of([key]))


def _moment_problem(moment_us: int, now_us: int) -> Refusal | None:
    """A moment is in time to come, and not too far ahead; 0 stands for none."""
    if not moment_us or now_us < moment_us <= now_us + limits.EXPIRY_AHEAD_US_MAX:
        return None
    return Refusal(code=Code.BAD_TIMEOUT, text="an expiry is from now to 30 days ahead")


def _ttl_problem(ttl_us: int) -> Refusal | None:
    if 0 <= ttl_us <= limits.EXPIRY_AHEAD_US_MAX:
        return None
    return Refusal(code=Code.BAD_TIMEOUT, text="a TTL is at most 30 days")


def timestamp_problem(timestamp_us: int, now_us: int) -> Refusal | None:
    if limits.TIMESTAMP_US_MIN <= timestamp_us <= now_us + limits.TIMESTAMP_AHEAD_US_MAX:
        return None
    text = (
        "a timestamp is in microseconds since 1970, after 2001, and at most 60 s ahead; "
        f"the server's time is {now_us}"
    )
    return Refusal(code=Code.BAD_TIMESTAMP, text=text)
