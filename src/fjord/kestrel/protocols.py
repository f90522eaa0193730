"""The two protocols of Kestrel, memcache and text: bytes in, requests out; replies in, bytes out.

Requests and replies are the same for both, and `session` does what is asked.  Nothing here knows a
socket, a file or a clock.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Final, NamedTuple

from fjord.kestrel import codec, names

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
    words: tuple[str, ...] = ()  # names of queues, a status, or a reason
    key: str = ""  # the queue as it was asked for, options included
    before: tuple[KestrelRequest, ...] = ()  # of GET: what the same line asks for first
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


class _LineError(Exception):
    """A line is no request; the text says why."""


def _fatal(reason: str) -> KestrelRequest:
    """Returns what is no request, and behind which nobody knows where the next one begins."""
    return KestrelRequest(Verb.BROKEN, words=(reason,), ends=True)


class LineReader:
    """What a client has sent, taken line by line; a line that is too long ends it."""

    def __init__(self, item_bytes_max: int) -> None:
        self._item_bytes_max = item_bytes_max
        self._buffer = bytearray()
        self._searched = 0  # so far there is no end of a line
        self._is_broken = False

    @property
    def kept_bytes(self) -> int:
        """How much was received and is in no request yet."""
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        if not self._is_broken:
            self._buffer += data

    def _line(self, bytes_max: int) -> bytes | None:
        """Returns the next line, None if it is not there yet; one that is too long breaks it."""
        end = self._buffer.find(b"\n", self._searched)
        if (end if end >= 0 else len(self._buffer)) > bytes_max:
            self._is_broken = True
            self._buffer.clear()
            return b""
        if end < 0:
            self._searched = len(self._buffer)
            return None
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        self._searched = 0
        return line


def number(text: str, *, low: int = 0) -> int | None:
    """Returns a whole number in decimal digits, or None if it is none or out of bounds."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(NUMBER_MAX)):
        return None
    found = int(text)
    return found if low <= found <= NUMBER_MAX else None


# -------------------------------------------------------------------------------------------------
#
# The memcache protocol as Kestrel speaks it: bytes in, requests out; replies in, bytes out.
#
#     reader = MemcacheReader()
#     reader.receive(data)
#     while (request := reader.next_request()) is not None:
#         ...
#         data, ends = encode(request, reply)
#
# A line ends with LF or CR LF, and words are separated by single spaces.  Of the commands only
# `set` is followed by data.  What is malformed makes a BROKEN request, and nothing behind it is
# read: the server answers CLIENT_ERROR and closes the connection.  The same holds for a line or
# an item that is longer than allowed, so that no peer decides how much memory it gets.


# Below it an expiry counts seconds from now on, from it on seconds since 1970.
_RELATIVE_MAX: Final = 1_000_000
_CRLF: Final = b"\r\n"
_BAD_QUEUE: Final = "no name of a queue"
# Lines that are not taken apart again when they come again, and how long they are at most.
_KNOWN_LINES_MAX: Final = 4096
_KNOWN_LINE_BYTES_MAX: Final = 256

_MEMCACHE_DONE: Final = {
    Verb.FLUSH: b"END\r\n",
    Verb.FLUSH_ALL: b"OK\r\n",
    Verb.DELETE: b"DELETED\r\n",
    Verb.CONFIRM: b"END\r\n",
    Verb.RELOAD: b"Reloaded config.\r\n",
    Verb.STATUS: b"END\r\n",
    Verb.QUIT: b"",
    Verb.SHUTDOWN: b"",
}
_DONE_EXACT: Final = {**_MEMCACHE_DONE, Verb.FLUSH_ALL: b"Flushed all queues.\r\n"}
# Refusals; all but one end the connection.
_MEMCACHE_REFUSED: Final = {
    Outcome.BROKEN: b"CLIENT_ERROR\r\n",
    Outcome.HAS_OPEN: b"ERROR\r\n",
    Outcome.TOO_MANY_OPEN: b"ERROR\r\n",
    Outcome.NOT_OPEN: b"ERROR\r\n",
    Outcome.BLOCKED: b"SERVER_ERROR\r\n",
    Outcome.FAILED: b"SERVER_ERROR\r\n",
}


class MemcacheReader(LineReader):
    """Finds requests in what a client of memcache sends."""

    NO_MEMORY: Final = b"SERVER_ERROR out of memory storing object\r\n"  # it sends too much

    def __init__(self, item_bytes_max: int = ITEM_BYTES_MAX, *, is_exact: bool = False) -> None:
        super().__init__(item_bytes_max)
        self._is_exact = is_exact
        self._set: KestrelRequest | None = None  # whose data is not there yet
        self._data_bytes = 0

    def next_request(self) -> KestrelRequest | None:
        """Returns the next request, or None if it is not there yet."""
        if self._is_broken:
            return None
        if self._set is None:
            request = self._begun()
            if request is None or request.verb is not Verb.PUT:
                return self._told(request)
            self._set = request
        return self._told(self._stored())

    def encode(self, request: KestrelRequest, reply: Reply) -> tuple[bytes, bool]:
        return encode_memcache(request, reply, is_exact=self._is_exact)

    def _told(self, request: KestrelRequest | None) -> KestrelRequest | None:
        if request is not None and request.verb is Verb.BROKEN:
            self._is_broken = True
            self._buffer.clear()
        return request

    def _begun(self) -> KestrelRequest | None:
        """Returns the request of the next line; that of a `set` has no data so far."""
        line = self._line(LINE_BYTES_MAX)
        if line is None:
            return None
        if self._is_broken:
            return _fatal("line too long")
        read = _read_line_again if len(line) <= _KNOWN_LINE_BYTES_MAX else _read_line
        try:
            request, self._data_bytes = read(line, is_exact=self._is_exact)
        except _LineError as error:
            return _fatal(str(error))
        if self._data_bytes > self._item_bytes_max:
            return _fatal("the item is too large")
        return request

    def _stored(self) -> KestrelRequest | None:
        begun, size = self._set, self._data_bytes
        assert begun is not None
        if len(self._buffer) < size + 1:
            return None
        ending = self._buffer[size : size + 2]
        if ending == b"\r":
            return None
        if ending != _CRLF and not ending.startswith(b"\n"):
            return _fatal("the data is longer than its size")
        with memoryview(self._buffer) as view:
            data = bytes(view[:size])
        del self._buffer[: size + (2 if ending == _CRLF else 1)]
        self._set = None
        return KestrelRequest(
            Verb.PUT,
            begun.queue,
            (data,),
            begun.expires_in_ms,
            begun.expires_at_ms,
            is_quiet=begun.is_quiet,
        )


def encode_memcache(
    request: KestrelRequest, reply: Reply, *, is_exact: bool = False
) -> tuple[bytes, bool]:
    """Returns the bytes of a reply, and whether the connection ends behind them.

    Clients of memcached want back the key that they have asked for, options included, an `OK`, and
    why they are at fault.  `is_exact` is for clients of Kestrel that want what Kestrel says, byte
    for byte.
    """
    if reply.outcome is Outcome.BROKEN and not is_exact:
        reason = request.words[0] if request.verb is Verb.BROKEN else "no such status"
        return b"CLIENT_ERROR %b\r\n" % reason.encode(), True
    if reply.outcome in _MEMCACHE_REFUSED:
        return _MEMCACHE_REFUSED[reply.outcome], reply.outcome is not Outcome.NOT_OPEN
    ends = request.verb in (Verb.QUIT, Verb.SHUTDOWN)
    if request.is_quiet and not is_exact:
        return b"", ends
    if reply.outcome in (Outcome.ITEM, Outcome.MORE):
        end = b"" if reply.outcome is Outcome.MORE else b"END\r\n"
        return _value(request, reply.data, is_exact=is_exact) + end, ends
    if reply.outcome is Outcome.COUNT:
        if request.verb is Verb.PUT:
            return (b"STORED\r\n" if reply.item_count else b"NOT_STORED\r\n"), ends
        return b"%d\r\n" % reply.item_count, ends
    if reply.outcome is Outcome.DONE:
        return (_DONE_EXACT if is_exact else _MEMCACHE_DONE)[request.verb], ends
    return _report(request, reply), ends


def _value(request: KestrelRequest, data: bytes | None, *, is_exact: bool) -> bytes:
    if data is None:
        return b""
    name = request.queue if is_exact else request.key or request.queue
    cas = b" 0" if request.wants_cas else b""  # there is no `cas`, so any number will do
    return b"VALUE %b 0 %d%b\r\n%b\r\n" % (name.encode(), len(data), cas, data)


def _report(request: KestrelRequest, reply: Reply) -> bytes:
    if reply.outcome is Outcome.WORD:
        word = reply.word.upper() if request.verb is Verb.STATUS else f"VERSION {reply.word}"
        return word.encode() + _CRLF
    if reply.outcome is Outcome.FIELDS:
        lines = [f"STAT {name} {value}" for name, value in reply.fields]
    else:
        lines = []
        for queue, fields in reply.queues:
            lines += [f"queue '{queue}' {{", *(f"  {name}={value}" for name, value in fields), "}"]
    # A file that a Kestrel has left may have any name.
    return "\r\n".join([*lines, "END", ""]).encode(errors="surrogateescape")


# -- lines ----------------------------------------------------------------------------------------


def _read_line(line: bytes, *, is_exact: bool) -> tuple[KestrelRequest, int]:
    """Returns the request of a line, and how many bytes of data follow it.

    Raises:
        _LineError: if it is none.
    """
    try:
        words = line.decode().split(" ")
    except UnicodeDecodeError as error:
        raise _LineError("not UTF-8") from error
    if words[0].lower() != "set":
        return _parse_memcache(words, is_exact=is_exact), 0
    if len(words) < 5:
        raise _LineError("set needs a queue, flags, an expiry and a size")
    size = number(words[4])
    if size is None:
        raise _LineError("the size of a set is a number")
    return _memcache_set(words), size


# Clients say the same again and again.
_read_line_again: Final = functools.lru_cache(_KNOWN_LINES_MAX)(_read_line)


def _parse_memcache(words: list[str], *, is_exact: bool) -> KestrelRequest:
    command, rest = words[0].lower(), words[1:]
    if command in ("get", "gets"):
        if is_exact:
            return _memcache_get(rest[:1])
        return _memcache_get(rest, wants_cas=command == "gets")
    if command not in _MEMCACHE_COMMANDS:
        raise _LineError("no such command")
    return _MEMCACHE_COMMANDS[command](rest)


def _memcache_set(words: list[str]) -> KestrelRequest:
    queue = words[1]
    flags, expiry = number(words[2]), number(words[3], low=-NUMBER_MAX)
    if names.queue_problem(queue):
        raise _LineError(_BAD_QUEUE)
    if flags is None or expiry is None:
        raise _LineError("flags and expiry of a set are numbers")
    is_relative = expiry < _RELATIVE_MAX
    return KestrelRequest(
        Verb.PUT,
        queue,
        expires_in_ms=expiry * 1000 if is_relative else 0,
        expires_at_ms=0 if is_relative else expiry * 1000,
        is_quiet=words[5:6] == ["noreply"],
    )


def _memcache_get(keys: list[str], *, wants_cas: bool = False) -> KestrelRequest:
    """Parses the keys of a line; the request is the last of them, and has the others before it."""
    if len(keys) == 1:
        return _memcache_get_one(keys[0], wants_cas=wants_cas)
    found = [_memcache_get_one(key, wants_cas=wants_cas) for key in keys if key]
    if not found:
        raise _LineError(_BAD_QUEUE)
    return found[-1]._replace(before=tuple(found[:-1]))


def _memcache_get_one(key: str, *, wants_cas: bool) -> KestrelRequest:
    """Parses `queue/option/option`.  Options that nobody knows are ignored, as Kestrel does."""
    queue, *options = key.split("/")
    chosen = set(options)
    opens, closes = "open" in chosen, "close" in chosen
    aborts, peeks = "abort" in chosen, "peek" in chosen
    if names.queue_problem(queue):
        raise _LineError(_BAD_QUEUE)
    if (peeks or aborts) and (opens or closes or (peeks and aborts)):
        raise _LineError("options that exclude each other")
    waits = [number(option[2:]) for option in options if option.startswith("t=")]
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


def _memcache_naming(rest: list[str], verb: Verb) -> KestrelRequest:
    if not rest or names.queue_problem(rest[0]):
        raise _LineError(_BAD_QUEUE)
    return KestrelRequest(verb, rest[0], is_quiet=rest[-1] == "noreply" and len(rest) > 1)


def _memcache_monitor(rest: list[str]) -> KestrelRequest:
    seconds = number(rest[1]) if len(rest) > 1 else None
    most = number(rest[2], low=1) if len(rest) > 2 else 0
    if seconds is None or most is None or names.queue_problem(rest[0]):
        raise _LineError("monitor needs a queue and seconds, and may have the most items")
    return KestrelRequest(
        Verb.MONITOR, rest[0], wait_ms=seconds * 1000, item_count=most, opens=True
    )


def _memcache_confirm(rest: list[str]) -> KestrelRequest:
    count = number(rest[1]) if len(rest) > 1 else None
    if count is None or names.queue_problem(rest[0]):
        raise _LineError("confirm needs a queue and a number of items")
    return KestrelRequest(Verb.CONFIRM, rest[0], item_count=count)


def _plain(rest: list[str], verb: Verb) -> KestrelRequest:
    """Parses a command that is a word alone; what follows is ignored, as Kestrel does."""
    return KestrelRequest(verb, is_quiet=verb is Verb.FLUSH_ALL and rest[-1:] == ["noreply"])


def _status(rest: list[str]) -> KestrelRequest:
    return KestrelRequest(Verb.STATUS, words=tuple(word.lower() for word in rest[:1]))


_Parse = Callable[[list[str]], KestrelRequest]
# Commands that are the same in both protocols.
_COMMANDS: Final[dict[str, _Parse]] = {
    "status": _status,
    **{
        verb: functools.partial(_plain, verb=verb)
        for verb in (Verb.VERSION, Verb.QUIT, Verb.SHUTDOWN)
    },
}
_MEMCACHE_COMMANDS: Final[dict[str, _Parse]] = {
    **_COMMANDS,
    **{
        verb: functools.partial(_plain, verb=verb)
        for verb in (Verb.STATS, Verb.FLUSH_ALL, Verb.FLUSH_ALL_EXPIRED, Verb.RELOAD)
    },
    **{
        verb: functools.partial(_memcache_naming, verb=verb)
        for verb in (Verb.FLUSH, Verb.FLUSH_EXPIRED, Verb.DELETE)
    },
    "monitor": _memcache_monitor,
    "confirm": _memcache_confirm,
    "dump_stats": lambda rest: KestrelRequest(Verb.DUMP_STATS, words=tuple(filter(None, rest))),
}


# -- kestrel's text protocol: bytes in, requests out; replies in, bytes out -----------------------
#
#     put cars 5000:      two items that expire in five seconds
#     first
#     second
#                         an empty line ends them
#     +2
#
# A line ends with LF or CR LF.  A reply is a line that begins with `+` and a number, `-` and an
# error, `:` and an item, or is a `*` for no item.  Items hold no line ends.  An error leaves the
# connection open, unless it is not known where the next request begins.


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

    def __init__(self, item_bytes_max: int = ITEM_BYTES_MAX) -> None:
        super().__init__(item_bytes_max)
        self._put: KestrelRequest | None = None  # whose items are not all there yet
        self._items: list[bytes] = []
        self._items_bytes = 0
        self._is_overfull = False  # the items of this one are passed over

    @property
    def kept_bytes(self) -> int:
        return len(self._buffer) + self._items_bytes

    def next_request(self) -> KestrelRequest | None:
        """Returns the next request, or None if it is not there yet."""
        while not self._is_broken:
            line = self._line(LINE_BYTES_MAX if self._put is None else self._item_bytes_max + 1)
            if line is None:
                return None
            request = self._begun(line) if self._put is None else self._gathered(line)
            if request is not None:
                return request
        return None

    def encode(self, request: KestrelRequest, reply: Reply) -> tuple[bytes, bool]:
        return encode_text(request, reply)

    def _begun(self, line: bytes) -> KestrelRequest | None:
        if self._is_broken:
            return _fatal("Line too long.")
        try:
            text = line.decode()
        except UnicodeDecodeError:
            # Items may follow, so nobody knows where the next request begins.
            self._is_broken = True
            return _fatal("Not UTF-8.")
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
        assert self._put is not None
        if self._is_broken:
            return _fatal("Line too long.")
        if line:
            self._items.append(line)
            self._items_bytes += len(line)
            if len(self._items) > TEXT_ITEMS_MAX or self._items_bytes > self._item_bytes_max:
                self._is_overfull = True
            if self._is_overfull or self._put.verb is Verb.BROKEN:
                self._items, self._items_bytes = [], 0
            return None
        request = self._put._replace(items=tuple(self._items))
        if self._is_overfull:
            reason = f"Too many items at once; limit={TEXT_ITEMS_MAX}"
            request = KestrelRequest(Verb.BROKEN, words=(reason,))
        self._put, self._items, self._items_bytes = None, [], 0
        self._is_overfull = False
        return request


def encode_text(request: KestrelRequest, reply: Reply) -> tuple[bytes, bool]:
    """Returns the bytes of a reply, and whether the connection ends behind them."""
    ends = request.ends or request.verb in (Verb.QUIT, Verb.SHUTDOWN)
    outcome = reply.outcome
    if outcome in (Outcome.ITEM, Outcome.MORE):
        return (b"*\n" if reply.data is None else b":%b\n" % reply.data), ends
    if outcome is Outcome.COUNT:
        return b"+%d\n" % reply.item_count, ends
    if outcome is Outcome.DONE:
        return b"+%d\n" % (request.item_count if request.verb is Verb.CONFIRM else 0), ends
    if outcome is Outcome.WORD:
        return f"+{reply.word}\n".encode(), ends
    if outcome is Outcome.TOO_MANY_OPEN:
        return b"-Too many open transactions; limit=%d\n" % reply.item_count, ends
    if outcome is Outcome.BROKEN:
        return f"-{reply.word or ' '.join(request.words[:1])}\n".encode(), ends
    return f"-{_TEXT_REFUSED[outcome]}\n".encode(), ends or outcome is Outcome.FAILED


# -- lines ----------------------------------------------------------------------------------------


def _parse_text(words: list[str], *, has_items: bool) -> KestrelRequest:
    """Returns the request of a line; that of a `put` has no items so far.

    Raises:
        _LineError: if it is none.
    """
    command, rest = words[0].lower(), words[1:]
    if command == Verb.PUT and has_items:
        queue, expires_in_ms = _text_operands(rest, "expiration time")
        return KestrelRequest(Verb.PUT, queue, expires_in_ms=expires_in_ms)
    if command == Verb.PUT:
        _text_queue(rest)
        raise _LineError("The line of a put ends with a colon.")
    if has_items or command not in _TEXT_COMMANDS:
        raise _LineError(f"Unknown command: {command}")
    return _TEXT_COMMANDS[command](rest)


def _text_queue(rest: list[str]) -> str:
    if not rest or not rest[0]:
        raise _LineError("Queue name required.")
    if names.queue_problem(rest[0]):
        raise _LineError("Bad queue name.")
    return rest[0]


def _text_operands(rest: list[str], what: str, *, is_required: bool = False) -> tuple[str, int]:
    """Returns the name of a queue, and the number behind it; 0 if there need be none."""
    if is_required and len(rest) < 2:
        raise _LineError(f"Queue name & {what} required.")
    queue = _text_queue(rest)
    found = number(rest[1]) if len(rest) > 1 else 0
    if found is None:
        raise _LineError(f"Error parsing {what}.")
    return queue, found


def _text_fetch(rest: list[str], *, opens: bool) -> KestrelRequest:
    queue, wait_ms = _text_operands(rest, "timeout")
    return KestrelRequest(
        Verb.GET, queue, wait_ms=wait_ms, opens=opens, peeks=not opens, closes_all=True
    )


def _text_monitor(rest: list[str]) -> KestrelRequest:
    queue, wait_ms = _text_operands(rest, "timeout", is_required=True)
    return KestrelRequest(Verb.MONITOR, queue, wait_ms=wait_ms, opens=True, closes_all=True)


def _text_confirm(rest: list[str]) -> KestrelRequest:
    queue, count = _text_operands(rest, "count", is_required=True)
    return KestrelRequest(Verb.CONFIRM, queue, item_count=count)


_TEXT_COMMANDS: Final[dict[str, _Parse]] = {
    **_COMMANDS,
    "get": functools.partial(_text_fetch, opens=True),
    "peek": functools.partial(_text_fetch, opens=False),
    "monitor": _text_monitor,
    "confirm": _text_confirm,
    "flush": lambda rest: KestrelRequest(Verb.FLUSH, _text_queue(rest)),
    "delete": lambda rest: KestrelRequest(Verb.DELETE, _text_queue(rest)),
}
