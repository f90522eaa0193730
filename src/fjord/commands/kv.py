"""Commands of key/value tables, and their replies."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

from fjord import limits
from fjord.columns import Strings
from fjord.commands.layout import *
from fjord.commands.session import Done, Refusal
from fjord.errors import Code
from fjord.values import Type

# -- replies --------------------------------------------------------------------------------------


@reply(2, "entries")
class Entries(Reply):
    """Values in the order of the requested keys; a missing one has type MISSING."""

    MISSING = 0xFF
    # Bits of a state.
    LOCKED = 1
    WORKED_ON = 2

    types: bytes = field(U8S, shown="type")
    states: bytes = field(U8S, shown="state")
    timestamps_us: Sequence[int] = field(TIMES, shown="timestamp")  # last modified, by its writer
    expires_at_us: Sequence[int] = field(TIMES)  # 0 = never
    created_us: Sequence[int] = field(TIMES)
    accessed_us: Sequence[int] = field(TIMES)  # last marked or touched, 0 = never
    ttls_us: Sequence[int] = field(U64S, shown="ttl")  # 0 = none
    values: Strings = field(STRINGS, shown="value")


@reply(3, "page")
class Page(Reply):
    """Existing entries in key order, possibly none."""

    next_key: bytes = field(BLOB)  # where the next page begins; empty: there is no more
    keys: Strings = field(STRINGS, shown="key")
    entries: Entries = field(NESTED, of=Entries)


class Changed(NamedTuple):
    """A change for a listener: the new value of a key.

    Of a jobs table: the key is empty, the value the string `ARRIVED` or `DUE`, and the timestamp
    the moment.
    """

    table: str
    key: bytes
    type: int  # Entries.MISSING: it is gone
    value: bytes
    timestamp_us: int
    expires_at_us: int


# -- commands -------------------------------------------------------------------------------------


@command(
    32,
    "SET_MANY",
    answer=Done,
    retry=lambda command: Retry.AS_IS if command.overwrite else Retry.NUMBERED,
    in_batch=InBatch.NUMBERED,
    merge=Merge(
        is_possible=lambda set_: set_.overwrite and set_.persist and set_.also is None,
        unique="keys",
    ),
)
class Set(Command):
    """Sets the values of keys, all or none."""

    table: str = field(NAME)
    expires_at_us: int = field(TIME, argument=True, default=0)  # 0 = never, or now + ttl_us
    overwrite: bool = field(Flag.OVERWRITE, default=True)  # False: refuse if any key is there
    persist: bool = field(Flag.PERSIST, default=True)  # False: memory only, gone with the process
    ttl_us: int = field(U64, when=Flag.TTL, default=0)  # how long a touch lets it live; 0 = not
    timestamps_us: Sequence[int] = field(DATES)  # the client's, one a key; the largest one wins
    types: bytes = field(U8S, shown="type")
    keys: Strings = field(STRINGS, shown="key")
    values: Strings = field(STRINGS, shown="value")
    # The value's further keys from now on, with one key only.
    also: Strings | None = field(
        STRINGS, counted=True, when=Flag.COUNT, default=None, shown="further key"
    )


@command(33, "GET_MANY", answer=Entries, in_batch=InBatch.PLAIN, reads=True)
class Get(Command):
    """Returns the values of keys."""

    table: str = field(NAME)
    with_data: bool = field(Flag.DATA, default=True)  # False: a probe, types and dates only
    skip_worked: bool = field(Flag.WORKED_ON, default=False)  # leave out what is worked on
    keys: Strings = field(STRINGS, shown="key")


@command(
    34,
    "DELETE_MANY",
    answer=Done,
    # A purge leaves no tombstone that could tell a second try from a first one.
    retry=lambda command: Retry.NUMBERED if command.purge else Retry.AS_IS,
    in_batch=InBatch.NUMBERED,
    frees=True,
)
class Delete(Command):
    """Deletes the values of keys; a missing key is no error."""

    table: str = field(NAME)
    purge: bool = field(Flag.OVERWRITE, default=False)  # without a tombstone, removed everywhere
    timestamp_us: int = field(STAMP)  # for nothing where each key has its own
    timestamps_us: Sequence[int] | None = field(
        TIMES, when=Flag.TIMEOUT, default=None, shown="date"
    )
    keys: Strings = field(STRINGS, shown="key")


@command(
    35,
    "TOUCH_MANY",
    answer=Entries,
    # The reply to the first try may be lost, and the taken work with it.
    retry=lambda command: Retry.NEVER if command.worked_until_us else Retry.AS_IS,
    in_batch=InBatch.NUMBERED,
)
class Touch(Command):
    """Returns the values of keys, and extends their life or marks them as worked on."""

    table: str = field(NAME)
    expires_at_us: int = field(TIME, argument=True, default=0)  # with `extend`: at least until then
    with_data: bool = field(Flag.DATA, default=True)
    extend: bool = field(Flag.UPDATE_TIMEOUT, default=False)  # to `expires_at_us`, or by their TTL
    worked_until_us: int = field(TIME, default=0)  # those worked on already are left out
    keys: Strings = field(STRINGS, shown="key")


class Change(enum.IntEnum):
    """How `Modify` changes a value; the numbers are those of the functions."""

    ADD = 5  # adds the operand, an integer or a float
    NOT = 6  # flips a boolean
    TRUNCATE = 7  # keeps the first bytes, as many as the operand says

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ValueError("a change is 5 (ADD), 6 (NOT) or 7 (TRUNCATE)")


# What an answer has beside the value.
_ANSWER_BYTES: Final = 1024


def _retry_of_modify(modify: Modify) -> Retry:
    # The answer is the new value, and the server keeps no large ones.
    if modify.change is Change.TRUNCATE:
        size = int.from_bytes(modify.operand, "little", signed=True)
        if size > limits.ANSWER_KEPT_BYTES_MAX - _ANSWER_BYTES:
            return Retry.NEVER
    return Retry.NUMBERED


@command(36, "MODIFY", answer=Entries, retry=_retry_of_modify, in_batch=InBatch.NUMBERED)
class Modify(Command):
    """Changes the value of a key in place, and returns the new one."""

    table: str = field(NAME)
    change: Change = field(U64, argument=True, of=Change)
    timestamp_us: int = field(STAMP)
    operand_type: int = field(U32, default=int(Type.INTEGER))
    key: bytes = field(BLOB)
    operand: bytes = field(BLOB, default=b"")  # 8 bytes: a number, or a size (an integer)

    def checked(self) -> Modify | Refusal:
        """Returns the command with an operand of 8 bytes, or what is wrong with it."""
        operand = widened(self.change, self.operand_type, self.operand)
        if isinstance(operand, Refusal):
            return operand
        self.operand = operand
        return self


_OPERAND_SIZES: Final = {Type.INTEGER: (1, 2, 4, 8), Type.FLOAT: (8,)}


def widened(change: Change, type_: int, data: bytes) -> bytes | Refusal:
    """Returns the 8 bytes of an operand, widening integers of 1, 2 and 4 bytes.

    Stored integers have 8 bytes; whoever counts in bytes should not have to fill up the rest.
    """
    if change is Change.NOT:
        return Refusal(code=Code.BAD_VALUE, text="NOT has no operand") if data else data
    types = (Type.INTEGER, Type.FLOAT) if change is Change.ADD else (Type.INTEGER,)
    if type_ not in types:
        wanted = " or ".join(f"{int(one)} ({one.name.lower()})" for one in types)
        return Refusal(code=Code.BAD_TYPE, text=f"{change.name} takes an operand of type {wanted}")
    sizes = _OPERAND_SIZES[Type(type_)]
    if len(data) not in sizes:
        text = f"an operand of type {type_} has {', '.join(map(str, sizes))} bytes"
        return Refusal(code=Code.BAD_VALUE, text=text)
    if len(data) == 8:
        return data
    return int.from_bytes(data, "little", signed=True).to_bytes(8, "little", signed=True)


@command(37, "RENAME_KEY", answer=Done, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED)
class Rename(Command):
    """Gives a value another key; everything else stays."""

    table: str = field(NAME)
    timestamp_us: int = field(STAMP)
    overwrite: bool = field(Flag.OVERWRITE, default=False)  # False: refuse if `to` has a value
    key: bytes = field(BLOB)
    to: bytes = field(BLOB, shown="new key")


@command(38, "LOCK_MANY", answer=Done, retry=Retry.NEVER, in_batch=InBatch.PLAIN, frees=True)
class Lock(Command):
    """Locks keys for writing until they are unlocked or the client disconnects."""

    table: str = field(NAME)
    keys: Strings = field(STRINGS, shown="key")


@command(39, "UNLOCK_MANY", answer=Done, retry=Retry.NEVER, in_batch=InBatch.PLAIN, frees=True)
class Unlock(Command):
    """Unlocks keys that this client has locked."""

    table: str = field(NAME)
    keys: Strings = field(STRINGS, shown="key")


@command(40, "RANGE", answer=Page, in_batch=InBatch.PLAIN, reads=True)
class Range(Command):
    """Returns entries in key order, a bounded page at a time."""

    table: str = field(NAME)
    count: int = field(U64, argument=True, default=0)  # at most so many; 0 = the server's maximum
    with_data: bool = field(Flag.DATA, default=True)
    skip_worked: bool = field(Flag.WORKED_ON, default=False)
    start: bytes = field(BLOB, default=b"")  # the first key that counts
    stop: bytes = field(BLOB, default=b"")  # the first that no longer counts; empty = to the end
    regex: bytes = field(BLOB, default=b"")  # RE2: only keys in which it is found


@command(41, "LISTEN_MANY", answer=Done, retry=Retry.NEVER, listens=True)
class Listen(Command):
    """Reports every change of these keys from now on."""

    table: str = field(NAME)
    keys: Strings = field(STRINGS, shown="key")


@command(42, "UNLISTEN", answer=Done, retry=Retry.NEVER)
class Unlisten(Command):
    """Stops reporting changes."""

    identifier: int = field(U64, argument=True)  # of the LISTEN request
