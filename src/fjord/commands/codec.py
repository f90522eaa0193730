"""Bodies of messages, from the rows of commands and replies: see `layout` for what they look like.

The functions of each row are in `compiled`, which `scripts/codec` writes: a loop over the fields of
a message would cost more than the fields themselves.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any, Final

from fjord import columns, limits
from fjord.columns import PADDING, Buffer, Strings, aligned
from fjord.commands.layout import FUNCTIONS, KINDS, Command, Flag, Reply, Row
from fjord.commands.session import Batch, Refusal, Replies
from fjord.commands.staging import Stage
from fjord.commands.streams import AsOf, Read
from fjord.errors import Code

HEAD = struct.Struct(">HHIQ")  # size of the name, zeros, rows, argument
REPLY_HEAD = struct.Struct(">HHI")  # kind, zeros, rows
INNER = struct.Struct(">HHIQ")  # function, flags, length, timestamp
COUNT = struct.Struct(">I4x")
UUID_BYTES: Final = 16
NONE: Final = 2**64 - 1  # stands for -1

Encoded = tuple[Row, int, int, list[Buffer]]  # row, flags, timestamp, body in pieces


# -- requests -------------------------------------------------------------------------------------


def encode(command: Command) -> Encoded:
    """Returns the row, the flags, the timestamp and the body of a command.

    The body is in pieces, which the sender joins once.

    Raises:
        struct.error, ValueError, OverflowError, TypeError: if something in it does not fit.
    """
    row = type(command).row
    return row, *row.encode(command)


def decode(row: Row, flags: int, timestamp_us: int, body: Buffer) -> Command | Refusal:
    """Returns the command of a body, or what is wrong with it."""
    if flags & ~row.flags:
        return _bad(unknown_flag(row.flags, flags, row.name))
    try:
        if row.holds is not None:
            return _decode_held(row, body)
        command: Command | Refusal = row.decode(body, flags, timestamp_us)
    except (ValueError, struct.error) as error:
        return _bad(str(error))
    return command


def unknown_flag(known: int, flags: int, by: str) -> str:
    """Returns an error text for the first unknown flag; empty if there is none."""
    wrong = flags & ~known
    if not wrong:
        return ""
    bit = (wrong & -wrong).bit_length() - 1
    return f"bit {bit} ({FLAG_NAMES[1 << bit]}) is not known to {by}"


FLAG_NAMES: Final[dict[int, str]] = {
    bit: name for name, bit in vars(Flag).items() if not name.startswith("_") and name != "BODY"
}


def _bad(text: str) -> Refusal:
    return Refusal(code=Code.BAD_BATCH, text=text)


# -- commands that hold others --------------------------------------------------------------------
#
#     body  = head (rows: how many commands; argument: of AS_OF the snapshot), inner*
#     inner = function u16, flags u16, length u32, timestamp u64, body, padding


def _encode_held(command: Command) -> tuple[int, int, list[Buffer]]:
    row = type(command).row
    argument, held = _held(command)
    parts: list[Buffer] = [HEAD.pack(0, 0, len(held), argument)]
    for one in held:
        inner, flags, timestamp_us, body = encode(one)
        if not row.holds(inner):  # type: ignore[misc]
            raise ValueError(f"{row.name} holds no {inner.name}")
        size = sum(map(len, body))
        parts += (INNER.pack(inner.number, flags, size, timestamp_us), *body, PADDING[size & 7])
    return 0, 0, parts


Batch.row.encode = Stage.row.encode = AsOf.row.encode = _encode_held


def _held(command: Command) -> tuple[int, Sequence[Command]]:
    if isinstance(command, Stage):
        return 0, (command.rows,)
    if isinstance(command, AsOf):
        return command.snapshot, command.commands
    assert isinstance(command, Batch)
    return 0, command.commands


def _decode_held(row: Row, body: Buffer) -> Command | Refusal:
    table, count, argument, view, at = read_head(body)
    if table:
        raise ValueError(NO_TABLE)
    if row.record is Stage and count != 1:
        raise ValueError(f"{row.name} has 1 command")
    if not 1 <= count <= limits.BATCH_COMMANDS_MAX:
        raise ValueError(f"{row.name} has 1 to {limits.BATCH_COMMANDS_MAX} commands")
    found: list[Any] = []
    rows = 0
    for position in range(1, count + 1):
        command, end = _decode_inner(row, view, at)
        if isinstance(command, Refusal):
            text = f"command {position} of the batch: {command.text}"
            return Refusal(code=command.code, text=text)
        found.append(command)
        rows += HEAD.unpack_from(view, at + INNER.size)[2]
        at = end
    if at != len(view):
        raise ValueError(TOO_LONG)
    if rows > limits.BATCH_ROWS_MAX:
        raise ValueError(f"a batch has at most {limits.BATCH_ROWS_MAX} rows in all its commands")
    if row.record is AsOf:
        return AsOf(snapshot=argument, commands=found)
    if argument:
        raise ValueError(NO_ARGUMENT)
    return Stage(rows=found[0]) if row.record is Stage else Batch(commands=found)


def _decode_inner(outer: Row, view: memoryview, at: int) -> tuple[Command | Refusal, int]:
    number, flags, size, timestamp_us = INNER.unpack_from(view, at)
    begin = at + INNER.size
    end = begin + size
    if end > len(view):
        return _bad("its body is cut short"), end
    row = FUNCTIONS.get(number)
    if row is None or not outer.holds(row):  # type: ignore[misc]
        return _bad(f"function {number} has no place in {outer.name}"), end
    if flags & Flag.NUMBER:
        return _bad("a command of a batch has no number of its own"), end
    command = decode(row, flags, timestamp_us, view[begin:end])
    if isinstance(command, Read) and command.wait_us:
        text = "nothing new comes as of a snapshot: wait is 0"
        return Refusal(code=Code.BAD_TIMEOUT, text=text), end
    return command, aligned(end)


# -- replies --------------------------------------------------------------------------------------
#
#     replies = head (rows: how many), inner*
#     inner   = length u32, 4 zero bytes, reply, padding


def encode_reply(reply: Reply) -> list[Buffer]:
    """Returns the body of a reply, in pieces."""
    return type(reply).row.encode(reply)  # type: ignore[no-any-return]


def _encode_replies(held: Replies) -> list[Buffer]:
    parts: list[Buffer] = [REPLY_HEAD.pack(Replies.row.number, 0, len(held.replies))]
    for one in held.replies:
        body = encode_reply(one)
        size = sum(map(len, body))
        parts += (COUNT.pack(size), *body, PADDING[size & 7])
    return parts


Replies.row.encode = _encode_replies


def decode_reply(body: Buffer) -> Reply:
    """Returns the reply of a body.

    Raises:
        ValueError, struct.error: if it is invalid.
    """
    kind, zeros, rows = REPLY_HEAD.unpack_from(body)
    row = KINDS.get(kind)
    if row is None or zeros:
        raise ValueError(f"a reply of kind {kind}")
    if rows > limits.BATCH_ROWS_MAX:
        raise ValueError(f"a reply has at most {limits.BATCH_ROWS_MAX} rows")
    return row.decode(memoryview(body), rows)  # type: ignore[no-any-return]


def _decode_replies(view: memoryview, rows: int) -> Replies:
    found = []
    at = REPLY_HEAD.size
    for _ in range(rows):
        (size,) = COUNT.unpack_from(view, at)
        at += COUNT.size
        if at + size > len(view):
            raise ValueError("a reply in a batch is cut short")
        inner = view[at : at + size]
        if bytes(inner[:2]) == _REPLIES_KIND:
            raise ValueError(NESTED_REPLIES)
        found.append(decode_reply(inner))
        at = aligned(at + size)
    if at != len(view):
        raise ValueError(TOO_LONG)
    return Replies(replies=found)


Replies.row.decode = _decode_replies
_REPLIES_KIND: Final = Replies.row.number.to_bytes(2, "big")


def data_bytes(record: Command | Reply) -> int:
    """Returns the approximate bytes of keys, values and other strings in a record."""
    return type(record).row.size(record)


# -- used by `compiled` ---------------------------------------------------------------------------

NO_TABLE: Final = "no name of a table belongs here"
NO_ARGUMENT: Final = "the argument must be 0 here"
NO_ROWS: Final = "rows must be 0 here"
TOO_LONG: Final = "the body is longer than its fields"
UNEVEN: Final = "the columns differ in number"
NESTED_REPLIES: Final = "replies in replies"


def read_head(body: Buffer) -> tuple[str, int, int, memoryview, int]:
    """Returns table, rows and argument of a body, the body, and the offset of its fields."""
    size, zeros, rows, argument = HEAD.unpack_from(body)
    end = HEAD.size + size
    if end > len(body):
        raise ValueError("the name of the table is cut short")
    if zeros:
        raise ValueError("bytes 2 and 3 of a body are 0")
    if rows > limits.BATCH_ROWS_MAX:
        raise ValueError(f"a batch has at most {limits.BATCH_ROWS_MAX} rows")
    table = str(body[HEAD.size : end], "ascii", "replace")
    return table, rows, argument, memoryview(body), (end + 7) & ~7


def read_count(view: memoryview, at: int) -> tuple[int, int]:
    (count,) = COUNT.unpack_from(view, at)
    if count > limits.BATCH_ROWS_MAX:
        raise ValueError(f"a column has at most {limits.BATCH_ROWS_MAX} rows")
    return count, at + COUNT.size


def read_blob(view: memoryview, at: int) -> tuple[bytes, int]:
    (size,) = COUNT.unpack_from(view, at)
    begin = at + COUNT.size
    end = begin + size
    if end > len(view):
        raise ValueError("a string is cut short")
    return bytes(view[begin:end]), (end + 7) & ~7


def read_text(view: memoryview, at: int) -> tuple[str, int]:
    found, at = read_blob(view, at)
    return found.decode(errors="backslashreplace"), at


def read_texts(view: memoryview, at: int, rows: int) -> tuple[list[str], int]:
    found, at = columns.decode_strings(view, at, rows)
    return [one.decode(errors="backslashreplace") for one in found], at


def texts(found: Sequence[str]) -> Strings:
    return Strings.of([one.encode() for one in found])


def uuid(name: bytes) -> bytes:
    if len(name) not in (0, UUID_BYTES):
        raise ValueError(f"a name of {UUID_BYTES} bytes is needed, not {len(name)}")
    return name


def seq(number: int) -> int:
    if number == NONE:
        raise ValueError("the seq is too large")
    return NONE if number == -1 else number


def is_set(number: int) -> bool:
    if number > 1:
        raise ValueError("a boolean is 0 or 1")
    return bool(number)


def given(value: Any, name: str) -> Any:
    if not value:
        raise ValueError(f"{name} is 0, which means none: clear its bit")
    return value


def dates(stamps_us: Sequence[int]) -> tuple[int, int, bytes]:
    """Returns when entries were written: the flag, the timestamp of the message, and a column.

    A message has one timestamp, and that is enough for nearly all; only who passes on what others
    have written has more.
    """
    if not stamps_us:
        return 0, 0, b""
    first = stamps_us[0]
    found = array("Q", stamps_us) if isinstance(stamps_us, memoryview) else stamps_us
    if found.count(first) == len(found):
        return 0, first, b""
    return Flag.TIMEOUT, 0, columns.encode_u64(stamps_us)
