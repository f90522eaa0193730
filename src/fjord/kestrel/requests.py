"""What clients ask of queues and what they are told, the same for both protocols.

`memcache` and `text` turn bytes into requests, and replies into bytes; `session` does what is
asked.  Nothing here knows a socket, a file or a clock.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from fjord.kestrel import codec

# A line names a command, a queue and some numbers; `dump_stats` may name many queues.
LINE_BYTES_MAX: Final = 8 * 1024
# What is larger could be written to a journal, but would be damage when it is read.
ITEM_BYTES_MAX: Final = codec.ITEM_BYTES_MAX
# What numbers of a request may be: larger ones are times and counts that nobody means.
NUMBER_MAX: Final = 2**53


class Verb(enum.StrEnum):
    """What is asked for."""

    PUT = "put"  # items at the end of a queue
    GET = "get"  # the item at the head; open, closed, aborted or peeked at
    MONITOR = "monitor"  # items as they come, each of them open
    CONFIRM = "confirm"  # so many open items are done
    FLUSH = "flush"
    FLUSH_ALL = "flush_all"
    FLUSH_EXPIRED = "flush_expired"
    FLUSH_ALL_EXPIRED = "flush_all_expired"
    DELETE = "delete"
    STATS = "stats"
    DUMP_STATS = "dump_stats"
    VERSION = "version"
    STATUS = "status"
    RELOAD = "reload"
    QUIT = "quit"
    SHUTDOWN = "shutdown"
    BROKEN = "broken"  # no request: the reason is in `words`


class Request(NamedTuple):
    """One request.  Fields that its verb does not have are empty."""

    verb: Verb
    queue: str = ""
    items: tuple[bytes, ...] = ()
    expires_in_ms: int = 0  # from now on; 0 = not in this way
    expires_at_ms: int = 0  # since 1970; 0 = not in this way
    wait_ms: int = 0  # how long to wait for an item
    item_count: int = 0  # of CONFIRM: how many; of MONITOR: the most, 0 = as many as may be open
    opens: bool = False  # the item stays open until it is closed or aborted
    closes: bool = False  # the item that was opened first is done
    closes_all: bool = False  # all open items of the queue are done
    aborts: bool = False  # the item that was opened first goes back to the head
    peeks: bool = False  # the item stays where it is
    words: tuple[str, ...] = ()  # names of queues, a status, or a reason
    key: str = ""  # the queue as it was asked for, options included
    before: tuple[Request, ...] = ()  # of GET: what the same line asks for first
    wants_cas: bool = False  # of GET: a number is told behind the size of an item
    is_quiet: bool = False  # the client reads no reply
    ends: bool = False  # of BROKEN: where the next request begins is not known


class Outcome(enum.StrEnum):
    """How a request ended."""

    DONE = "done"
    COUNT = "count"  # how many
    ITEM = "item"  # the item, or none
    MORE = "more"  # the item, and more may follow
    FIELDS = "fields"  # names and values
    QUEUES = "queues"  # names and values, by queue
    WORD = "word"  # the version, or the status
    BROKEN = "broken"  # nobody can tell what was asked for
    HAS_OPEN = "has open"  # a plain get while an item is open
    TOO_MANY_OPEN = "too many open"
    NOT_OPEN = "not open"  # fewer are open than were confirmed
    BLOCKED = "blocked"  # the status of the server does not allow it
    FAILED = "failed"  # the server could not do it


class Reply(NamedTuple):
    """What is told about one request."""

    outcome: Outcome
    item_count: int = 0
    data: bytes | None = None
    fields: tuple[tuple[str, str], ...] = ()
    queues: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    word: str = ""


def number(text: str, *, low: int = 0) -> int | None:
    """Returns a whole number in decimal digits, or None if it is none or out of bounds."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(NUMBER_MAX)):
        return None
    found = int(text)
    return found if low <= found <= NUMBER_MAX else None
