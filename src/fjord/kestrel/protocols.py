"""The two protocols of Kestrel, memcache and text: bytes in, requests out; replies in, bytes out.

Requests and replies are the same for both, and `session` does what is asked.  Nothing here knows a
socket, a file or a clock.

    reader = MemcacheReader()
    reader.receive(data)
    while (request := reader.next_request()) is not None:
        ...
        data, ends = reader.encode(request, reply)
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import Final, NamedTuple

from fjord.kestrel import codec, names

# A line names a command, a queue and some numbers; `dump_stats` may name many queues.
LINE_BYTES_MAX: Final = 8 * 1024
# A larger item could be written to a journal, but would be damage when it is read.
ITEM_BYTES_MAX: Final = codec.ITEM_BYTES_MAX
# Larger numbers in a request are times and counts that nobody means.
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
    BROKEN = "broken"  # no request that can be done: `words` has the reason


class KestrelRequest(NamedTuple):
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
    words: tuple[str, ...] = ()  # names of queues, a status, which stats, or a reason
    key: str = ""  # the queue as it was asked for, options included
    before: tuple[KestrelRequest, ...] = ()  # of GET: what the same line asks for first
    wants_cas: bool = False  # of GET: the size of an item is followed by a number
    is_quiet: bool = False  # the client reads no reply
    ends: bool = False  # of BROKEN: nobody knows where the next request begins


class Outcome(enum.StrEnum):
    """How a request ended."""

    DONE = "done"
    COUNT = "count"  # how many
    ITEM = "item"  # the item, or none
    MORE = "more"  # the item, and more may follow
    FIELDS = "fields"  # names and values
    QUEUES = "queues"  # names and values, by queue
    WORD = "word"  # the version, or the status
    BROKEN = "broken"  # it cannot be done: the reason is in `word`, or in the request
    HAS_OPEN = "has open"  # a plain get while an item is open
    TOO_MANY_OPEN = "too many open"
    NOT_OPEN = "not open"  # fewer are open than were confirmed
    BLOCKED = "blocked"  # the status of the server does not allow it
    FAILED = "failed"  # the server could not do it


class Reply(NamedTuple):
    """The answer to one request."""

    outcome: Outcome
    item_count: int = 0
    stored: Sequence[bool] = ()  # of PUT: for each item whether it was
    data: bytes | None = None
    fields: tuple[tuple[str, str], ...] = ()
    queues: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    word: str = ""


class _LineError(Exception):
    """A line is no request; the text says why."""


class LineReader:
    """What a client has sent, taken line by line; a line that is too long ends it."""

    TOO_LONG = "line too long"

    def __init__(self, item_bytes_max: int) -> None:
        self._item_bytes_max = item_bytes_max
        self._buffer = bytearray()
        self._searched = 0  # no line ends before this place
        self._is_broken = False

    @property
    def kept_bytes(self) -> int:
        """How much was received and is in no request yet."""
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        if not self._is_broken:
            self._buffer += data

    def _line(self, bytes_max: int) -> bytes | None:
        """Returns the next line, None if it is not there yet; raises if it is too long."""
        end = self._buffer.find(b"\n", self._searched)
        if (end if end >= 0 else len(self._buffer)) > bytes_max:
            raise _LineError(self.TOO_LONG)
        if end < 0:
            self._searched = len(self._buffer)
            return None
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    def _broken(self, reason: str) -> KestrelRequest:
        """Ends it: nobody knows where the next request begins."""
        self._is_broken = True
        self._buffer.clear()
        return KestrelRequest(Verb.BROKEN, words=(reason,), ends=True)


def number(text: str, *, low: int = 0) -> int | None:
    """Returns a whole number in decimal digits, or None if it is none or out of bounds."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(NUMBER_MAX)):
        return None
    found = int(text)
    return found if low <= found <= NUMBER_MAX else None


# -- memcache: lines in ---------------------------------------------------------------------------
#
# A line ends with LF or CR LF, and words are separated by single spaces.  Data follows `set`, and
# those commands of memcached that store something, which no queue has.  Anything malformed makes a
# BROKEN request, and nothing after it is read: the server answers CLIENT_ERROR and closes the
# connection.  The same holds for a line or an item that is longer than allowed, so that no peer
# decides how much memory it gets.


# A smaller expiry counts seconds from now on, a larger one seconds since 1970.
_RELATIVE_MAX: Final = 1_000_000
_CRLF: Final = b"\r\n"
_BAD_QUEUE: Final = "no name of a queue"
# What a request of memcached's binary protocol begins with; no line begins so.
_BINARY_MAGIC: Final = 0x80
# Lines that are not parsed again when they come again, and how long they are at most.
_KNOWN_LINES_MAX: Final = 4096
_KNOWN_LINE_BYTES_MAX: Final = 256
# Commands that memcached has and Kestrel has not; data follows the first ones.
_STORING: Final = frozenset({"add", "replace", "append", "prepend", "cas"})
_TENDING: Final = {"cache_memlimit", "slabs", "lru", "lru_crawler", "mn", "mg", "md", "ma", "me"}
_FOREIGN: Final = _STORING | _TENDING | {"touch", "incr", "decr", "gat", "gats", "verbosity"}

_Begun = tuple[KestrelRequest, int | None]  # and how many bytes of data follow the line


class MemcacheReader(LineReader):
    """Finds requests in what a client of memcache sends."""

    NO_MEMORY: Final = b"SERVER_ERROR out of memory storing object\r\n"  # it sends too much

    def __init__(self, item_bytes_max: int = ITEM_BYTES_MAX, *, is_exact: bool = False) -> None:
        super().__init__(item_bytes_max)
        self._is_exact = is_exact
        self._begun: _Begun | None = None  # whose data is not there yet

    def next_request(self) -> KestrelRequest | None:
        """Returns the next request, or None if it is not there yet."""
        if self._is_broken:
            return None
        try:
            if self._begun is None:
                self._begun = self._next_line()
            return None if self._begun is None else self._whole(*self._begun)
        except _LineError as error:
            return self._broken(str(error))

    def encode(self, request: KestrelRequest, reply: Reply) -> tuple[bytes, bool]:
        return encode_memcache(request, reply, is_exact=self._is_exact)

    def _next_line(self) -> _Begun | None:
        if self._buffer and self._buffer[0] == _BINARY_MAGIC:
            raise _LineError("the binary protocol is not served")
        line = self._line(LINE_BYTES_MAX)
        if line is None:
            return None
        read = _read_line_again if len(line) <= _KNOWN_LINE_BYTES_MAX else _read_line
        return read(line, is_exact=self._is_exact)

    def _whole(self, begun: KestrelRequest, size: int | None) -> KestrelRequest | None:
        """Returns a request with its data, None if that is not there yet."""
        if size is None:
            self._begun = None
            return begun
        if size > self._item_bytes_max:
            raise _LineError("the item is too large")
        if len(self._buffer) < size + 1:
            return None
        ending = self._buffer[size : size + 2]
        if ending == b"\r":
            return None
        if ending != _CRLF and not ending.startswith(b"\n"):
            raise _LineError("the data is longer than its size")
        with memoryview(self._buffer) as view:
            data = bytes(view[:size])
        del self._buffer[: size + (2 if ending == _CRLF else 1)]
        self._begun = None
        if begun.verb is not Verb.PUT:
            return begun
        # With its expiry, from now on or since 1970.
        return KestrelRequest(Verb.PUT, begun.queue, (data,), *begun[3:5], is_quiet=begun.is_quiet)


def _read_line(line: bytes, *, is_exact: bool) -> _Begun:
    """Returns the request of a line, and how many bytes of data follow it, None without data.

    Raises:
        _LineError: if it is none.
    """
    try:
        words = line.decode().split(" ")
    except UnicodeDecodeError as error:
        raise _LineError("not UTF-8") from error
    command, rest = words[0].lower(), words[1:]
    if command == "set":
        return _memcache_set(rest)
    if command in _FOREIGN and not is_exact:
        size = _size(command, rest) if command in _STORING else None
        reason = f"queues have no {command}"
        is_quiet = rest[-1:] == ["noreply"]
        return KestrelRequest(Verb.BROKEN, words=(reason,), is_quiet=is_quiet), size
    return _parse_memcache(command, rest, is_exact=is_exact), None


# Clients say the same again and again.
_read_line_again: Final = functools.lru_cache(_KNOWN_LINES_MAX)(_read_line)


def _parse_memcache(command: str, rest: list[str], *, is_exact: bool) -> KestrelRequest:
    match command:
        case "get" | "gets":
            wants_cas = command == "gets" and not is_exact
            return _memcache_get(rest[:1] if is_exact else rest, wants_cas=wants_cas)
        case "monitor":
            return _memcache_monitor(rest)
        case "confirm":
            count = number(rest[1]) if len(rest) > 1 else None
            if count is None or names.queue_problem(rest[0]):
                raise _LineError("confirm needs a queue and a number of items")
            return KestrelRequest(Verb.CONFIRM, rest[0], item_count=count)
        case "flush" | "flush_expired" | "delete":
            if not rest or names.queue_problem(rest[0]):
                raise _LineError(_BAD_QUEUE)
            return KestrelRequest(Verb(command), rest[0], is_quiet=rest[1:][-1:] == ["noreply"])
        case "stats":
            return KestrelRequest(Verb.STATS, words=() if is_exact else tuple(rest[:1]))
        case "dump_stats":
            return KestrelRequest(Verb.DUMP_STATS, words=tuple(filter(None, rest)))
        case "flush_all":
            return KestrelRequest(Verb.FLUSH_ALL, is_quiet=rest[-1:] == ["noreply"])
        case "flush_all_expired" | "reload":
            return KestrelRequest(Verb(command))
    if (common := _parse_common(command, rest)) is None:
        raise _LineError("no such command")
    return common


def _parse_common(command: str, rest: list[str]) -> KestrelRequest | None:
    """Parses commands that are the same in both protocols; words after them are ignored."""
    if command == "status":
        return KestrelRequest(Verb.STATUS, words=tuple(word.lower() for word in rest[:1]))
    if command in ("version", "quit", "shutdown"):
        return KestrelRequest(Verb(command))
    return None


def _size(command: str, rest: list[str]) -> int:
    """Returns how many bytes of data follow a line that stores something."""
    if len(rest) < 4:
        raise _LineError(f"{command} needs a queue, flags, an expiry and a size")
    if (size := number(rest[3])) is None:
        raise _LineError(f"the size of {command} is a number")
    return size


def _memcache_set(rest: list[str]) -> _Begun:
    size, queue = _size("set", rest), rest[0]
    flags, expiry = number(rest[1]), number(rest[2], low=-NUMBER_MAX)
    if names.queue_problem(queue):
        raise _LineError(_BAD_QUEUE)
    if flags is None or expiry is None:
        raise _LineError("flags and expiry of a set are numbers")
    is_relative = expiry < _RELATIVE_MAX
    request = KestrelRequest(
        Verb.PUT,
        queue,
        expires_in_ms=expiry * 1000 if is_relative else 0,
        expires_at_ms=0 if is_relative else expiry * 1000,
        is_quiet=rest[4:5] == ["noreply"],
    )
    return request, size


def _memcache_monitor(rest: list[str]) -> KestrelRequest:
    seconds = _timeout(rest[1]) if len(rest) > 1 else None
    most = number(rest[2], low=1) if len(rest) > 2 else 0
    if seconds is None or most is None or names.queue_problem(rest[0]):
        raise _LineError("monitor needs a queue and seconds, and may have the most items")
    wait_ms = seconds * 1000
    return KestrelRequest(Verb.MONITOR, rest[0], wait_ms=wait_ms, item_count=most, opens=True)


def _memcache_get(keys: list[str], *, wants_cas: bool) -> KestrelRequest:
    """Parses the keys of a line; the request is the last of them, and has the others before it."""
    if len(keys) == 1:
        return _memcache_get_one(keys[0], wants_cas=wants_cas)
    found = [_memcache_get_one(key, wants_cas=wants_cas) for key in keys if key]
    if not found:
        raise _LineError(_BAD_QUEUE)
    return found[-1]._replace(before=tuple(found[:-1]))


def _memcache_get_one(key: str, *, wants_cas: bool) -> KestrelRequest:
    """Parses `queue/option/option`.  Unknown options are ignored, as in Kestrel."""
    queue, *options = key.split("/")
    chosen = set(options)
    opens, closes = "open" in chosen, "close" in chosen
    aborts, peeks = "abort" in chosen, "peek" in chosen
    if names.queue_problem(queue):
        raise _LineError(_BAD_QUEUE)
    if (peeks or aborts) and (opens or closes or (peeks and aborts)):
        raise _LineError("options that exclude each other")
    waits = [_timeout(option[2:]) for option in options if option.startswith("t=")]
    if None in waits:
        raise _LineError("t= is a number of milliseconds")
    return KestrelRequest(
        Verb.GET,
        queue,
        wait_ms=(waits[-1] or 0) if waits else 0,
        opens=opens,
        closes=closes,
        aborts=aborts,
        peeks=peeks,
        key=key,
        wants_cas=wants_cas,
    )


def _timeout(text: str) -> int | None:
    """Returns a timeout; a negative one is over already, as in Kestrel."""
    found = number(text, low=-NUMBER_MAX)
    return None if found is None else max(0, found)


# -- memcache: replies out ------------------------------------------------------------------------


_MEMCACHE_DONE: Final = {
    Verb.FLUSH: b"END\r\n",
    Verb.FLUSH_ALL: b"OK\r\n",
    Verb.DELETE: b"DELETED\r\n",
    Verb.CONFIRM: b"END\r\n",
    Verb.RELOAD: b"Reloaded config.\r\n",
    Verb.STATUS: b"END\r\n",
    Verb.STATS: b"RESET\r\n",
    Verb.QUIT: b"",
    Verb.SHUTDOWN: b"",
}
_DONE_EXACT: Final = {**_MEMCACHE_DONE, Verb.FLUSH_ALL: b"Flushed all queues.\r\n"}
# Refusals; all but one end the connection.
_MEMCACHE_REFUSED: Final = {
    Outcome.HAS_OPEN: b"ERROR\r\n",
    Outcome.TOO_MANY_OPEN: b"ERROR\r\n",
    Outcome.NOT_OPEN: b"ERROR\r\n",
    Outcome.BLOCKED: b"SERVER_ERROR\r\n",
    Outcome.FAILED: b"SERVER_ERROR\r\n",
}


def encode_memcache(
    request: KestrelRequest, reply: Reply, *, is_exact: bool = False
) -> tuple[bytes, bool]:
    """Returns the bytes of a reply, and whether the connection ends after them.

    Clients of memcached want back the key that they have asked for, options included, an `OK`, and
    the reason of a refusal.  `is_exact` is for clients of Kestrel that want Kestrel's replies, byte
    for byte.
    """
    outcome, verb = reply.outcome, request.verb
    if outcome is Outcome.BROKEN:
        ends = request.ends or verb is not Verb.BROKEN
        if request.is_quiet and not ends:
            return b"", False
        if is_exact:
            return b"CLIENT_ERROR\r\n", ends
        # The word of a client is not repeated: it may hold the end of a line.
        reason = "no such status" if verb is Verb.STATUS else reply.word or request.words[0]
        return f"CLIENT_ERROR {reason}\r\n".encode(), ends
    if outcome in _MEMCACHE_REFUSED:
        return _MEMCACHE_REFUSED[outcome], outcome is not Outcome.NOT_OPEN
    ends = verb in (Verb.QUIT, Verb.SHUTDOWN)
    if request.is_quiet and not is_exact:
        return b"", ends
    if outcome in (Outcome.ITEM, Outcome.MORE):
        end = b"" if outcome is Outcome.MORE else b"END\r\n"
        return _value(request, reply.data, is_exact=is_exact) + end, ends
    if outcome is Outcome.COUNT:
        if verb is Verb.PUT:
            return (b"STORED\r\n" if reply.item_count else b"NOT_STORED\r\n"), ends
        return b"%d\r\n" % reply.item_count, ends
    if outcome is Outcome.DONE:
        return (_DONE_EXACT if is_exact else _MEMCACHE_DONE)[verb], ends
    return _report(request, reply), ends


def _value(request: KestrelRequest, data: bytes | None, *, is_exact: bool) -> bytes:
    if data is None:
        return b""
    name = request.queue if is_exact else request.key or request.queue
    cas = b" 0" if request.wants_cas else b""  # there is no `cas`, so any number will do
    return b"VALUE %b 0 %d%b\r\n%b\r\n" % (name.encode(), len(data), cas, data)


def _report(request: KestrelRequest, reply: Reply) -> bytes:
    if reply.outcome is Outcome.WORD:
        before = "VERSION " if request.verb is Verb.VERSION else ""
        return f"{before}{reply.word}\r\n".encode()
    lines = [f"STAT {name} {value}" for name, value in reply.fields]
    for queue, fields in reply.queues:
        lines += [f"queue '{queue}' {{", *(f"  {name}={value}" for name, value in fields), "}"]
    # A file that a Kestrel has left may have any name.
    return "\r\n".join([*lines, "END", ""]).encode(errors="surrogateescape")


# -- the text protocol ----------------------------------------------------------------------------
#
#     put cars 5000:      two items that expire in five seconds
#     first
#     second
#                         an empty line ends them
#     +2
#
# A line ends with LF or CR LF.  A reply is a line that begins with `+` and a number, `-` and an
# error, `:` and an item or a word, or is a `*` for no item.  Items hold no line ends.  An error
# leaves the connection open, unless nobody knows where the next request begins.


# One `put` is done in one go while others wait.
TEXT_ITEMS_MAX: Final = 1024

_TEXT_REFUSED: Final = {
    Outcome.HAS_OPEN: "A transaction is open.",
    Outcome.NOT_OPEN: "Not that many transactions open.",
    Outcome.BLOCKED: "The status of the server does not allow it.",
    Outcome.FAILED: "The server could not do it.",
}


class TextReader(LineReader):
    """Finds requests in what a client of the text protocol sends."""

    NO_MEMORY: Final = b"-Out of memory.\n"
    TOO_LONG = "Line too long."

    def __init__(self, item_bytes_max: int = ITEM_BYTES_MAX) -> None:
        super().__init__(item_bytes_max)
        self._put: KestrelRequest | None = None  # whose items are not all there yet
        self._items: list[bytes] = []
        self._items_bytes = 0

    @property
    def kept_bytes(self) -> int:
        return len(self._buffer) + self._items_bytes

    def next_request(self) -> KestrelRequest | None:
        """Returns the next request, or None if it is not there yet."""
        while not self._is_broken:
            try:
                line = self._line(LINE_BYTES_MAX if self._put is None else self._item_bytes_max + 1)
                if line is None:
                    return None
                request = self._begun(line) if self._put is None else self._gathered(line)
            except _LineError as error:
                return self._broken(str(error))
            if request is not None:
                return request
        return None

    def encode(self, request: KestrelRequest, reply: Reply) -> tuple[bytes, bool]:
        return encode_text(request, reply)

    def _begun(self, line: bytes) -> KestrelRequest | None:
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            # Items may follow, so nobody knows where the next request begins.
            raise _LineError("Not UTF-8.") from error
        has_items = text.endswith(":")
        try:
            request = _parse_text(text.removesuffix(":").split(" "), has_items=has_items)
        except _LineError as error:
            request = KestrelRequest(Verb.BROKEN, words=(str(error),))
        if not has_items:
            return request
        self._put = request
        return None

    def _gathered(self, line: bytes) -> KestrelRequest | None:
        """Takes an item of a `put`, or the end of it; those of a refused one are passed over."""
        put = self._put
        assert put is not None
        if line and put.verb is Verb.PUT:
            self._items.append(line)
            self._items_bytes += len(line)
            if len(self._items) > TEXT_ITEMS_MAX or self._items_bytes > self._item_bytes_max:
                reason = f"Too many items at once; limit={TEXT_ITEMS_MAX}"
                self._put = KestrelRequest(Verb.BROKEN, words=(reason,))
                self._items, self._items_bytes = [], 0
        if line:
            return None
        request = put._replace(items=tuple(self._items))
        self._put, self._items, self._items_bytes = None, [], 0
        return request


def encode_text(request: KestrelRequest, reply: Reply) -> tuple[bytes, bool]:
    """Returns the bytes of a reply, and whether the connection ends after them."""
    ends = request.ends or request.verb in (Verb.QUIT, Verb.SHUTDOWN)
    outcome = reply.outcome
    if outcome in (Outcome.ITEM, Outcome.MORE):
        return (b"*\n" if reply.data is None else b":%b\n" % reply.data), ends
    if outcome is Outcome.COUNT:
        return b"+%d\n" % reply.item_count, ends
    if outcome is Outcome.DONE:
        return b"+%d\n" % (request.item_count if request.verb is Verb.CONFIRM else 0), ends
    if outcome is Outcome.WORD:
        return f":{reply.word}\n".encode(), ends
    if outcome is Outcome.TOO_MANY_OPEN:
        return b"-Too many open transactions; limit=%d\n" % reply.item_count, ends
    if outcome is Outcome.BROKEN:
        return f"-{reply.word or ' '.join(request.words[:1])}\n".encode(), ends
    return f"-{_TEXT_REFUSED[outcome]}\n".encode(), ends or outcome is Outcome.FAILED


def _parse_text(words: list[str], *, has_items: bool) -> KestrelRequest:
    """Returns the request of a line; that of a `put` has no items so far.

    Raises:
        _LineError: if it is none.
    """
    command, rest = words[0].lower(), words[1:]
    match command:
        case "put" if has_items:
            queue, expires_in_ms = _text_operands(rest, "expiration time", low=-NUMBER_MAX)
            return KestrelRequest(Verb.PUT, queue, expires_in_ms=expires_in_ms)
        case "put":
            _text_queue(rest)
            raise _LineError("The line of a put ends with a colon.")
        case _ if has_items:
            pass
        case "get" | "peek" | "monitor":
            is_required = command == "monitor"
            queue, wait_ms = _text_operands(
                rest, "timeout", low=-NUMBER_MAX, is_required=is_required
            )
            peeks = command == "peek"
            return KestrelRequest(
                Verb.MONITOR if command == "monitor" else Verb.GET,
                queue,
                wait_ms=max(0, wait_ms),
                opens=not peeks,
                peeks=peeks,
                closes_all=True,
            )
        case "confirm":
            queue, count = _text_operands(rest, "count", is_required=True)
            return KestrelRequest(Verb.CONFIRM, queue, item_count=count)
        case "flush" | "delete":
            return KestrelRequest(Verb(command), _text_queue(rest))
        case _ if (common := _parse_common(command, rest)) is not None:
            return common
    raise _LineError(f"Unknown command: {command}")


def _text_queue(rest: list[str]) -> str:
    if not rest or not rest[0]:
        raise _LineError("Queue name required.")
    if names.queue_problem(rest[0]):
        raise _LineError("Bad queue name.")
    return rest[0]


def _text_operands(
    rest: list[str], what: str, *, low: int = 0, is_required: bool = False
) -> tuple[str, int]:
    """Returns the name of a queue, and the number after it; 0 if there need be none."""
    if is_required and len(rest) < 2:
        raise _LineError(f"Queue name & {what} required.")
    queue = _text_queue(rest)
    found = number(rest[1], low=low) if len(rest) > 1 else 0
    if found is None:
        raise _LineError(f"Error parsing {what}.")
    return queue, found
