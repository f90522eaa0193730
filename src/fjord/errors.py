"""Every error that Fjord raises, and every code that travels on the wire.

    FjordError
    ├── ProtocolError
    │   ├── LocalProtocolError    the call does not fit the protocol
    │   └── RemoteProtocolError   the peer sent invalid bytes
    ├── RefusedError              the command was understood and refused; nothing has changed
    │   ├── NotFoundError
    │   ├── ExistsError
    │   ├── LockedError
    │   ├── StaleError
    │   ├── StaleSchemaError
    │   └── DiskFullError
    ├── CorruptionError           stored bytes are damaged: file and offset
    ├── DurabilityError           the disk failed to keep data; the node stops
    ├── DirectoryError            the data directory cannot be opened
    │   └── DirectoryInUseError   another process writes to it
    ├── ClosedError               the database or the connection was closed, or forked
    ├── UnavailableError          the daemon cannot be reached, or does not reply in time
    ├── DeclarationError          a declaration of tables is wrong: file, line and column
    └── UsageError                wrong use of the command line

The docstring of a class is its default message and says what to do about it.  Rules of tables
raise `RefusedError`.  The engine turns it into a reply (`commands.Refusal`), which the client
raises again.
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
    EXISTS = enum.auto()  # the key exists, and overwriting was not requested
    READ_ONLY = enum.auto()  # the database was opened for reading
    WRONG_KIND = enum.auto()  # the command is for tables of another kind
    LOCKED = enum.auto()  # another client, or this one, has locked the key
    NOT_OWNER = enum.auto()  # the key is not locked by this client
    TYPE_MISMATCH = enum.auto()  # a value of this type cannot be changed like this
    OVERFLOW = enum.auto()  # the result does not fit its type
    STALE_XID = enum.auto()  # the lease expired, or the job is done; another worker may have it
    STALE_EPOCH = enum.auto()  # the subscriber was moved meanwhile; read from its mark
    SNAPSHOT_GONE = enum.auto()  # it was closed, or has expired; open another one
    STAGE_GONE = enum.auto()  # it never existed, or has expired; run the batch again
    FORKED = enum.auto()  # the history that was read so far is not that of this journal
    # The number is so old that its reply is no longer known; or a writer is not where the
    # sender thinks it is.
    STALE_NUMBER = enum.auto()
    STALE_SCHEMA = enum.auto()  # a row has earlier columns of the table; fetch the current ones
    QUOTA = enum.auto()  # a bound on stored data is reached
    DISK_FULL = enum.auto()  # nothing was written; retry when there is space
    EMPTY_KEY = enum.auto()
    KEY_TOO_LONG = enum.auto()
    BAD_NAME = enum.auto()
    BAD_TYPE = enum.auto()  # an unknown type, or a void with data
    BAD_VALUE = enum.auto()  # the bytes do not fit their type
    BAD_VALUE_SIZE = enum.auto()
    VALUE_TOO_LARGE = enum.auto()
    BAD_TIMESTAMP = enum.auto()  # 0, or too far ahead of the server's clock
    BAD_TIMEOUT = enum.auto()
    BAD_BATCH = enum.auto()  # the columns of a batch do not fit each other
    BAD_RANGE = enum.auto()
    BAD_COUNT = enum.auto()
    BAD_SIZE = enum.auto()  # truncating cannot make a value longer
    BAD_REGEX = enum.auto()
    BAD_SETTINGS = enum.auto()  # invalid settings of a table
    BAD_DOMAIN = enum.auto()  # too long, or the table has no fairness
    BAD_CURSOR = enum.auto()  # not a cursor that this server gave out
    CURSOR_EXPIRED = enum.auto()  # the server has been restarted since
    BAD_MAGIC = enum.auto()
    BAD_VERSION = enum.auto()
    BAD_FLAGS = enum.auto()
    UNKNOWN_FUNCTION = enum.auto()
    FORBIDDEN = enum.auto()  # a function that only a server may send
    DUPLICATE_ID = enum.auto()  # a request with this identifier is still in flight
    TOO_LARGE = enum.auto()  # a message is longer than the protocol allows
    BUSY = enum.auto()  # a bound of the server is reached; retry
    READ_TIMEOUT = enum.auto()  # a message was begun and not finished in time
    IDLE_TIMEOUT = enum.auto()  # no request for a long time; connect again
    SLOW_CONSUMER = enum.auto()  # the client does not take changes fast enough
    CORRUPT = enum.auto()  # the data is damaged on disk, and therefore not served
    FAILED = enum.auto()  # the server met a bug or a broken file; its log says which


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
    """The call does not fit the protocol; change the call."""


class RemoteProtocolError(ProtocolError):
    """The peer does not speak FJ version 1; check the address and both versions."""


class RefusedError(FjordError):
    """The command was refused, and nothing has changed; the text says why."""

    by_code: ClassVar[dict[Code, type[RefusedError]]] = {}

    def __init__(self, code: Code, text: str = "") -> None:
        super().__init__(f"{code}: {text}" if text else str(code))
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type[RefusedError], tuple[Code, str]]:
        return type(self), (self.code, self.text)

    @classmethod
    def of(cls, code: Code, text: str) -> RefusedError:
        """Returns the error of the most specific class for `code`."""
        return cls.by_code.get(code, RefusedError)(code, text)


class NotFoundError(RefusedError):
    """There is no such key; write it first, or use get() with a default."""


class ExistsError(RefusedError):
    """The key already exists; pass overwrite=True to replace it."""


class LockedError(RefusedError):
    """The key is locked; wait until its holder unlocks it or disconnects."""


class StaleError(RefusedError):
    """Too late: a lease has expired, or a subscriber was moved; nothing was done."""


class StaleSchemaError(RefusedError):
    """The table's columns have changed; nothing was written. Fetch them, and write again."""


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
    """The disk failed to keep data. Check the disk, then start again."""


class DirectoryError(FjordError):
    """The data directory cannot be opened; check its path and permissions."""


class DirectoryInUseError(DirectoryError):
    """Another process writes to this directory; stop it, or open with read_only=True."""


class ClosedError(FjordError):
    """This database is closed; open it again."""


class UnavailableError(FjordError):
    """The daemon cannot be reached; check the address and that `fjord serve` runs."""


class DeclarationError(FjordError):
    """A declaration of tables is wrong; each line of this text says where and why."""

    @property
    def problems(self) -> list[str]:
        return str(self).split("\n")


class UsageError(FjordError):
    """Wrong use of the command; see --help."""
