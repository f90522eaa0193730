"""Every error that Fjord raises, and every code that travels on the wire.

    FjordError
    ├── ProtocolError
    │   ├── LocalProtocolError    you asked for something that the protocol cannot carry
    │   └── RemoteProtocolError   the peer sent bytes that are not the protocol
    ├── RefusedError              the command was understood and refused; nothing was changed
    │   ├── NotFoundError
    │   ├── ExistsError
    │   ├── LockedError
    │   ├── StaleError
    │   ├── StaleSchemaError
    │   └── DiskFullError
    ├── CorruptionError           stored bytes are not what was written: file and offset
    ├── DurabilityError           the disk could not promise that data is kept; the node stops
    ├── DirectoryError            the data directory cannot be opened
    │   └── DirectoryInUseError   another process writes to it
    ├── ClosedError               the database or the connection was closed, or forked
    ├── UnavailableError          the daemon cannot be reached, or does not answer in time
    ├── DeclarationError          a file that declares tables is wrong: file, line and column
    └── UsageError                the command line was given something that it cannot mean

The docstring of a class is its default message and says what to do about it.  Rules of tables
raise `RefusedError`.  The engine makes a reply of it (`commands.Refusal`), which is raised again
where a user's call returns.
"""

from __future__ import annotations

import enum
from typing import ClassVar


class Code(enum.StrEnum):
    """The first word of every error text on the wire."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name

    NOT_FOUND = enum.auto()  # the key, or the table, does not exist
    EXISTS = enum.auto()  # overwrite was not asked for and the key is there
    READ_ONLY = enum.auto()  # the database was opened for reading
    WRONG_KIND = enum.auto()  # the table is of another kind than the command
    LOCKED = enum.auto()  # another client has locked the key, or this one has already
    NOT_OWNER = enum.auto()  # the key is not locked by this client
    TYPE_MISMATCH = enum.auto()  # a value of this type cannot be changed in that way
    OVERFLOW = enum.auto()  # the result does not fit its type
    STALE_XID = enum.auto()  # the lease was over, or the job is done; somebody else may have it
    STALE_EPOCH = enum.auto()  # somebody has moved the subscriber meanwhile; read from its mark
    SNAPSHOT_GONE = enum.auto()  # it was closed, or its time is over; open another one
    STAGE_GONE = enum.auto()  # it was never there, or its time is over; run the batch again
    FORKED = enum.auto()  # the history that was read up to here is not that of this journal
    # A number so old that its answer is no longer known; or a writer is not where the
    # sender thinks it is.
    STALE_NUMBER = enum.auto()
    STALE_SCHEMA = enum.auto()  # a row has the columns that the table had before; ask for them
    QUOTA = enum.auto()  # a bound on how much may be kept is reached
    DISK_FULL = enum.auto()  # nothing was written; it works again when there is space
    EMPTY_KEY = enum.auto()
    KEY_TOO_LONG = enum.auto()
    BAD_NAME = enum.auto()
    BAD_TYPE = enum.auto()  # a type that there is not here, or a void that has data
    BAD_VALUE = enum.auto()  # the bytes do not fit their type
    BAD_VALUE_SIZE = enum.auto()
    VALUE_TOO_LARGE = enum.auto()
    BAD_TIMESTAMP = enum.auto()  # 0, or too far ahead of the server's clock
    BAD_TIMEOUT = enum.auto()
    BAD_BATCH = enum.auto()  # the columns of a batch do not fit each other
    BAD_RANGE = enum.auto()
    BAD_COUNT = enum.auto()
    BAD_SIZE = enum.auto()  # a value is only ever made shorter
    BAD_REGEX = enum.auto()
    BAD_SETTINGS = enum.auto()  # a table cannot be declared like that
    BAD_DOMAIN = enum.auto()  # too long, or asked for where the table has no fairness
    BAD_CURSOR = enum.auto()  # not a cursor that this server gave out
    CURSOR_EXPIRED = enum.auto()  # the server that gave it out has been started again since
    BAD_MAGIC = enum.auto()
    BAD_VERSION = enum.auto()
    BAD_FLAGS = enum.auto()
    UNKNOWN_FUNCTION = enum.auto()
    FORBIDDEN = enum.auto()  # a function that only a server may send
    DUPLICATE_ID = enum.auto()  # the identifier is that of a request still in flight
    TOO_LARGE = enum.auto()  # a message longer than the protocol allows
    BUSY = enum.auto()  # a bound of the server is reached; try again
    READ_TIMEOUT = enum.auto()  # a message was begun and not finished in time
    IDLE_TIMEOUT = enum.auto()  # nothing was asked for a long time; connect again
    SLOW_CONSUMER = enum.auto()  # changes are not taken as fast as they come
    CORRUPT = enum.auto()  # what was asked for is damaged on disk, and therefore not served
    FAILED = enum.auto()  # the server hit a bug or a broken file; its log says which


class FjordError(Exception):
    """Something went wrong in Fjord."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class ProtocolError(FjordError):
    """The bytes on a connection do not follow docs/protocol.md."""

    def __init__(self, code: Code, text: str = "") -> None:
        super().__init__(f"{code}: {text}" if text else str(code))
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type[ProtocolError], tuple[Code, str]]:
        return type(self), (self.code, self.text)


class LocalProtocolError(ProtocolError):
    """The call asks for something that the protocol cannot carry; change the call."""


class RemoteProtocolError(ProtocolError):
    """The peer does not speak FJ version 1; check the address and both versions."""


class RefusedError(FjordError):
    """The command was refused and nothing was changed; the text says why."""

    by_code: ClassVar[dict[Code, type[RefusedError]]] = {}

    def __init__(self, code: Code, text: str = "") -> None:
        super().__init__(f"{code}: {text}" if text else str(code))
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type[RefusedError], tuple[Code, str]]:
        return type(self), (self.code, self.text)

    @classmethod
    def of(cls, code: Code, text: str) -> RefusedError:
        """Returns the most exact class of refusal for `code`."""
        return cls.by_code.get(code, RefusedError)(code, text)


class NotFoundError(RefusedError):
    """There is no such key; write it first, or use get() with a default."""


class ExistsError(RefusedError):
    """The key is there already; pass overwrite=True to replace it."""


class LockedError(RefusedError):
    """The key is locked; wait until its holder has unlocked it, or has gone."""


class StaleError(RefusedError):
    """A lease was over, or a subscriber was moved: this came too late, and nothing was done."""


class StaleSchemaError(RefusedError):
    """The table has other columns by now; nothing was written. Ask for them, and write again."""


class DiskFullError(RefusedError):
    """The disk is full; nothing was written. Free some space and try again."""


RefusedError.by_code.update(
    {
        Code.NOT_FOUND: NotFoundError,
        Code.EXISTS: ExistsError,
        Code.LOCKED: LockedError,
        Code.STALE_XID: StaleError,
        Code.STALE_EPOCH: StaleError,
        Code.STALE_SCHEMA: StaleSchemaError,
        Code.DISK_FULL: DiskFullError,
    }
)


class CorruptionError(FjordError):
    """Stored bytes are damaged; restore the named file from a replica or a backup."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(
            f"{path} is damaged at byte {offset}: {reason}. "
            "Nothing was thrown away; restore this file from a replica or a backup."
        )
        self.path = path
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[type[CorruptionError], tuple[str, int, str]]:
        return type(self), (self.path, self.offset, self.reason)


class DurabilityError(FjordError):
    """The disk failed to keep what was written. Check the disk, then start again."""


class DirectoryError(FjordError):
    """The data directory cannot be opened; check that it is one, and who may read it."""


class DirectoryInUseError(DirectoryError):
    """Another process writes to this directory; stop it, or open with read_only=True."""


class ClosedError(FjordError):
    """This database is closed; open it again."""


class UnavailableError(FjordError):
    """The daemon cannot be reached; check the address and that `fjord serve` runs."""


class DeclarationError(FjordError):
    """What declares tables is wrong; each line of this text says where, and what is allowed."""

    @property
    def problems(self) -> list[str]:
        return str(self).split("\n")


class UsageError(FjordError):
    """The command was used in a wrong way; --help says how it is used."""
