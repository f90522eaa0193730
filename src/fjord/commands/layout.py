"""How commands and replies are declared: each is one record, with all of its properties.

A record is declared with `@command` or `@reply`; its fields, in the order in which they are sent,
with `field`.  Everything else follows from these rows: the codec (`codec`), what a batch may hold,
what a client may send again, what runs on a full disk, `fjord wire explain` and the tables of
docs/protocol.md.

A message above function 16 has a body, and every field of it is padded to a multiple of 8:

    request = name size u16, 2 zero bytes, rows u32, argument u64, name, padding, field*
    reply   = kind u16, 2 zero bytes, rows u32, field*
    field   = number | blob | column
    blob    = size u32, 4 zero bytes, bytes, padding
    column  = `rows` numbers, or rows + 1 offsets u32 and bytes; each padded
              counted: preceded by its own number of rows, u32 and 4 zero bytes

Numbers are big-endian, except in columns, which are data and little-endian.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, dataclass_transform


class Flag:
    """The bits of a message's flags; plain integers, since every message is tested for them."""

    KEY_16: Final = 1 << 0  # key and error sizes have 16 bits, not 8
    VALUE_8: Final = 1 << 1  # the value size has 8 bits
    VALUE_16: Final = 1 << 2  # ... 16 bits; both: 32 bits; neither: no value
    TIMEOUT: Final = 1 << 3  # a timeout follows the timestamp; above 16: each row has a date
    UPDATE_TIMEOUT: Final = 1 << 4  # the timeout is an expiry: extend it at least until then
    OVERWRITE: Final = 1 << 5  # replace an existing value; in replies: the value is locked
    WORKED_ON: Final = 1 << 6  # leave out values that are worked on; in replies: it is worked on
    QUERY_RANGE: Final = 1 << 7  # two keys
    QUERY_REGEX: Final = 1 << 8  # the key is an expression; both: the key is a cursor
    PERSIST: Final = 1 << 9
    DATA: Final = 1 << 10
    LISTEN: Final = 1 << 11  # report changes of this value
    PERSIST_SYNONYM: Final = 1 << 12  # accepted on SET, never sent
    COUNT: Final = 1 << 13  # a count follows
    TTL: Final = 1 << 14  # by how much a touch extends its life: a u64 after the timeout
    BODY: Final = 1 << 15  # in replies: a u32 length and a body follow the error
    NUMBER: Final = 1 << 15  # in requests above 16: the number of the call precedes the length


class Kind(NamedTuple):
    """The type of a field on the wire."""

    name: str  # in pages
    code: str = ""  # in a struct


NAME: Final = Kind("name")  # in the head: of the table
STAMP: Final = Kind("timestamp")  # in the header of the message
FLAG: Final = Kind("flag")  # a bit of the message's flags

U64: Final = Kind("u64", "Q")
TIME: Final = Kind("time", "Q")  # a u64: microseconds since 1970
SEQ: Final = Kind("seq", "Q")  # a u64, whose largest value means none; -1 in the record
U32: Final = Kind("u32", "I4x")
BOOL: Final = Kind("bool", "I4x")  # a u32, 0 or 1
UUID: Final = Kind("uuid", "16s")  # 16 bytes; zeros mean none, empty in the record
FIXED: Final = (U64, TIME, SEQ, U32, BOOL, UUID)

BLOB: Final = Kind("bytes")
TEXT: Final = Kind("text")  # UTF-8

U8S: Final = Kind("u8 column", "B7x")
U64S: Final = Kind("u64 column", "Q")
TIMES: Final = Kind("time column", "Q")
NUMBERS: Final = (U8S, U64S, TIMES)
STRINGS: Final = Kind("strings")
TEXTS: Final = Kind("texts")
OPS: Final = Kind("ops")  # strings, each of them an op of the journal
COLUMNS: Final = (*NUMBERS, STRINGS, TEXTS, OPS)
DATES: Final = Kind(
    "dates"
)  # TIMES with Flag.TIMEOUT, otherwise the timestamp of the message for all
NESTED: Final = Kind("columns")  # the columns of another record


_MISSING: Final = dataclasses.MISSING
_KEY: Final = "wire"


class Field(NamedTuple):
    """One field of a record."""

    name: str  # of the attribute
    kind: Kind
    shown: str  # its name in docs and `fjord wire explain`
    bit: int  # FLAG: this one; otherwise the field is present only with this bit
    default: object  # its value if absent
    argument: bool  # it stands in the head of a request
    counted: bool  # a column with a number of rows of its own
    of: Callable[..., Any] | None  # converts it after reading


def field(  # noqa: PLR0913 - each of them is a fact of its own
    kind: Kind | int,
    *,
    default: Any = _MISSING,
    shown: str = "",
    when: int = 0,
    argument: bool = False,
    counted: bool = False,
    of: Callable[..., Any] | None = None,
) -> Any:
    """Declares a field of a command or a reply.

    Args:
        kind: its type on the wire; an integer is a bit of the flags.
        shown: its name in docs, if not that of the attribute.
        when: present only with this bit, which is set unless the field has its default.
        argument: it is the argument in the head.
        counted: a column with its own number of rows.
        of: converts it after reading; the record of a nested one.
    """
    is_flag = isinstance(kind, int)
    facts = (FLAG if is_flag else kind, shown, kind if is_flag else when, argument, counted, of)
    return dataclasses.field(default=default, metadata={_KEY: facts})


class Retry(enum.Enum):
    """How a client retries a command after its connection broke.

    AS_IS     reads, writes that carry their timestamp, marks that only go forward: twice is the
              same as once; and NEXT, since jobs that were handed out to nobody come back when
              their leases are over
    NUMBERED  what else may be sent again has a number; the server keeps the answers to numbers,
              so a retry is applied once
    NEVER     what belongs to one connection (locks, listening), worked-on marks, since the answer
              to the first try may be lost with the work it gave out, and what has a large answer
    """

    AS_IS = enum.auto()
    NUMBERED = enum.auto()
    NEVER = enum.auto()


class InBatch(enum.Enum):
    """Whether a command may be part of a batch.

    NEVER     jobs that were handed out must not be taken back; what waits, or looks into blocks,
              would let all others wait; and some are no commands of tables
    PLAIN     in a batch, but not in one with a number, whose answer is kept: reads, and locks,
              which are gone with their connection
    NUMBERED  in any batch: writes
    """

    NEVER = enum.auto()
    PLAIN = enum.auto()
    NUMBERED = enum.auto()


class Merge(NamedTuple):
    """How commands of one group are decided together.

    They are of one type, and all their fields but for columns are the same.
    """

    is_possible: Callable[[Any], bool] = lambda command: True
    unique: str = ""  # a column whose rows have to differ
    # Makes a reply to each command out of the one to all of them.
    split: Callable[[Any, Sequence[Any]], Sequence[Reply]] = lambda reply, found: (
        [reply] * len(found)
    )


class Row:
    """All properties of a command or a reply."""

    def __init__(self, number: int, name: str, record: type) -> None:
        self.number = number  # of the function, or of the kind of reply
        self.name = name
        self.record = record
        # What is not declared with `field` holds other commands or replies: see `codec`.
        self.fields = tuple(
            _declared(one) for one in dataclasses.fields(record) if _KEY in one.metadata
        )
        self.flags = 0  # the bits that may be set
        for one in self.fields:
            self.flags |= Flag.TIMEOUT if one.kind is DATES else one.bit
        # Columns that have as many rows as the head says, and all else.
        plain = [one for one in self.fields if one.kind in (*COLUMNS, DATES) and not one.counted]
        self.columns = tuple(one.name for one in plain if not one.bit)
        self.scalars = tuple(one.name for one in self.fields if one.name not in self.columns)
        # Of those that hold nothing: what makes bytes of a record and back, set by `compiled`.
        self.encode: Callable[[Any], Any]
        self.decode: Callable[..., Any]
        self.size: Callable[[Any], int] = lambda record: 0  # of keys, values and other strings
        # Only of commands.
        self.answer: type[Reply] = Reply
        self.retry: Retry | Callable[[Any], Retry] = Retry.NEVER
        self.in_batch = InBatch.NEVER
        self.reads = False
        self.frees = False
        self.leases = False
        self.listens = False
        self.holds: Callable[[Row], bool] | None = None
        self.merge: Merge | None = None
        self.decide: Callable[[Any, Any, int], Any] = _undecided  # by `tables`
        # By `engine.cold`: what asks a block for the rest of the answer, and what lets go of all
        # that is in memory of blocks, once the command has run.
        self.look: Callable[[Any, Any, Any], Any] | None = None
        self.leave: Callable[[Any, Any], None] | None = None
        # What does something else than to run it: a session of the server, and Embedded.
        self.serve: Callable[[Any, Any, Any], None] | None = None
        self.execute: Callable[[Any, Any], Any] | None = None

    def __repr__(self) -> str:
        return f"<{self.name} {self.number}>"


def _undecided(command: object, state: object, now_us: int) -> object:
    raise TypeError(f"nobody decides {type(command).__name__}")


def _declared(found: dataclasses.Field[Any]) -> Field:
    kind, shown, bit, argument, counted, of = found.metadata[_KEY]
    shown = shown or found.name.removesuffix("_us").replace("_", " ")
    return Field(found.name, kind, shown, bit, found.default, argument, counted, of)


class Command:
    """The base of all commands.

    Nobody changes a command once it is made; they are not frozen only because freezing makes
    them twice as slow to make, and one is made for every request.
    """

    __slots__ = ()
    row: ClassVar[Row]
    wait_us = 0  # how long the server may wait before it replies; a field of some commands


class Reply:
    """The base of all replies."""

    __slots__ = ()
    row: ClassVar[Row]


# By number: of functions above 16 and NOP, and of kinds of replies.
FUNCTIONS: Final[dict[int, Row]] = {}
KINDS: Final[dict[int, Row]] = {}

Record = TypeVar("Record")


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def command(  # noqa: PLR0913 - likewise
    number: int,
    name: str,
    *,
    answer: type[Reply],
    retry: Retry | Callable[[Any], Retry] = Retry.AS_IS,
    in_batch: InBatch = InBatch.NEVER,
    reads: bool = False,
    frees: bool = False,
    leases: bool = False,
    listens: bool = False,
    holds: Callable[[Row], bool] | None = None,
    merge: Merge | None = None,
) -> Callable[[type[Record]], type[Record]]:
    """Declares a command.

    Args:
        number: of its function on the wire.
        name: of that function.
        answer: its reply, unless it is refused.
        retry: how a client may retry it, or a function that says so.
        in_batch: whether it may be part of a batch.
        reads: it needs no write transaction unless it decides ops.
        frees: it works on a full disk, since it frees space or needs almost none.
        leases: its reply has the ends of leases.
        listens: changes carry its identifier, which stays in use.
        holds: says which commands it may contain, if any.
        merge: how neighbours are decided together, if at all.
    """

    def declare(record: type[Record]) -> type[Record]:
        made, row = _made(number, name, record)
        row.answer, row.retry, row.in_batch = answer, retry, in_batch
        row.reads, row.frees, row.leases = reads, frees, leases
        row.listens, row.holds, row.merge = listens, holds, merge
        if in_batch is InBatch.NUMBERED or retry not in (Retry.AS_IS, Retry.NEVER):
            row.flags |= Flag.NUMBER
        FUNCTIONS[number] = row
        return made

    return declare


@dataclass_transform(kw_only_default=True)
def internal(
    *, frees: bool = False, size: Callable[[Any], int] | None = None
) -> Callable[[type[Record]], type[Record]]:
    """Declares a command or a reply that is used only inside the engine, and never sent."""

    def declare(record: type[Record]) -> type[Record]:
        made, row = _made(-1, record.__name__, record)
        row.frees = frees
        row.size = size or row.size
        return made

    return declare


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def reply(
    number: int, name: str, *, size: Callable[[Any], int] | None = None
) -> Callable[[type[Record]], type[Record]]:
    """Declares a kind of reply; one that holds others says about how large it is."""

    def declare(record: type[Record]) -> type[Record]:
        made, row = _made(number, name, record)
        row.size = size or row.size
        KINDS[number] = row
        return made

    return declare


def _made(number: int, name: str, record: type[Record]) -> tuple[type[Record], Row]:
    made = dataclasses.dataclass(slots=True, kw_only=True)(record)
    row = made.row = Row(number, name, made)  # type: ignore[attr-defined]
    return made, row


Registered = TypeVar("Registered", bound=Callable[..., Any])


def registers(fact: str) -> Callable[..., Callable[[Registered], Registered]]:
    """Returns what says, beside a function, of which commands it is a fact: see `Row`.

    looks = registers("look")

    @looks(Subscribe, Seek)
    def _locate(...): ...
    """

    def of(*records: type[Command] | type[Reply]) -> Callable[[Registered], Registered]:
        def register(function: Registered) -> Registered:
            for record in records:
                setattr(record.row, fact, function)
            return function

        return register

    return of
