"""What can be wrong with a key/value command, and the code that says so."""

from __future__ import annotations

from fjord import commands, limits, values
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.errors import Code

_BUFFER = bytes([values.Type.BUFFER])


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
    return keys_problem(command.keys) or timestamp_problem(command.timestamp_us, now_us)


def set_problem(command: commands.Set, now_us: int) -> Refusal | None:
    problem = keys_problem(command.keys)
    if problem is not None:
        return problem
    lengths, stamps, rows = command.values.lengths(), command.timestamps_us, len(command.types)
    if not (len(command.keys.offsets) - 1 == len(lengths) == len(stamps) == rows):
        return Refusal(code=Code.BAD_BATCH, text="keys, types and values differ in number")
    if len(command.keys.data) + len(command.values.data) > limits.BATCH_BYTES_MAX:
        text = f"the keys and values of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    if max(lengths) > limits.VALUE_BYTES_MAX:
        text = f"a value has at most {limits.VALUE_BYTES_MAX} bytes"
        return Refusal(code=Code.VALUE_TOO_LARGE, text=text)
    expires_us = command.expires_at_us
    if expires_us and not now_us < expires_us <= now_us + limits.EXPIRY_AHEAD_US_MAX:
        return Refusal(code=Code.BAD_TIMEOUT, text="an expiry is from now to 30 days ahead")
    if not min(stamps) > 0 or max(stamps) > now_us + limits.TIMESTAMP_AHEAD_US_MAX:
        return timestamp_problem(0, now_us)
    return _values_problem(command)


def _values_problem(command: commands.Set) -> Refusal | None:
    if not command.types.strip(_BUFFER):
        return None
    for type_, value in zip(command.types, command.values.rows(), strict=True):
        problem = values.problem(type_, value)
        if problem is not None:
            return Refusal(code=problem[0], text=problem[1])
    return None


def timestamp_problem(timestamp_us: int, now_us: int) -> Refusal | None:
    if 0 < timestamp_us <= now_us + limits.TIMESTAMP_AHEAD_US_MAX:
        return None
    text = (
        "a timestamp is in microseconds since 1970, not 0, and at most 60 s ahead; "
        f"the server's time is {now_us}"
    )
    return Refusal(code=Code.BAD_TIMESTAMP, text=text)
