"""The memcache protocol as Kestrel speaks it: bytes in, requests out; replies in, bytes out.

    reader = MemcacheReader()
    reader.receive(data)
    while (request := reader.next_request()) is not None:
        ...
        data, ends = encode(request, reply)

A line ends with LF or CR LF, and words are separated by single spaces.  Of the commands only `set`
is followed by data.  What is malformed makes a BROKEN request, and nothing behind it is read: the
server answers CLIENT_ERROR and closes the connection.  The same holds for a line or an item that is
longer than allowed, so that no peer decides how much memory it gets.
"""

from __future__ import annotations

import functools
from typing import Final

from fjord.kestrel import names, requests
from fjord.kestrel.requests import Outcome, Reply, Request, Verb

# Below it an expiry counts seconds from now on, from it on seconds since 1970.
_RELATIVE_MAX: Final = 1_000_000
_CRLF: Final = b"\r\n"
_BAD_QUEUE: Final = "no name of a queue"
# Lines that are not taken apart again when they come again, and how long they are at most.
_KNOWN_LINES_MAX: Final = 4096
_KNOWN_LINE_BYTES_MAX: Final = 256

# Commands that are a word alone; what follows is ignored, as Kestrel does.
_PLAIN: Final = {
    "stats": Verb.STATS,
    "flush_all": Verb.FLUSH_ALL,
    "flush_all_expired": Verb.FLUSH_ALL_EXPIRED,
    "version": Verb.VERSION,
    "reload": Verb.RELOAD,
    "quit": Verb.QUIT,
    "shutdown": Verb.SHUTDOWN,
}
# Commands that name one queue.
_NAMING: Final = {
    "flush": Verb.FLUSH,
    "flush_expired": Verb.FLUSH_EXPIRED,
    "delete": Verb.DELETE,
}
_DONE: Final = {
    Verb.FLUSH: b"END\r\n",
    Verb.FLUSH_ALL: b"OK\r\n",
    Verb.DELETE: b"DELETED\r\n",
    Verb.CONFIRM: b"END\r\n",
    Verb.RELOAD: b"Reloaded config.\r\n",
    Verb.STATUS: b"END\r\n",
    Verb.QUIT: b"",
    Verb.SHUTDOWN: b"",
}
_DONE_EXACT: Final = {**_DONE, Verb.FLUSH_ALL: b"Flushed all queues.\r\n"}
# Refusals; all but one end the connection.
_REFUSED: Final = {
    Outcome.BROKEN: b"CLIENT_ERROR\r\n",
    Outcome.HAS_OPEN: b"ERROR\r\n",
    Outcome.TOO_MANY_OPEN: b"ERROR\r\n",
    Outcome.NOT_OPEN: b"ERROR\r\n",
    Outcome.BLOCKED: b"SERVER_ERROR\r\n",
    Outcome.FAILED: b"SERVER_ERROR\r\n",
}


class MemcacheReader:
    """Finds requests in what a client sends."""

    def __init__(
        self, item_bytes_max: int = requests.ITEM_BYTES_MAX, *, is_exact: bool = False
    ) -> None:
        self._item_bytes_max = item_bytes_max
        self._is_exact = is_exact
        self._buffer = bytearray()
        self._searched = 0  # so far there is no end of a line
        self._set: Request | None = None  # whose data is not there yet
        self._data_bytes = 0
        self._is_broken = False

    @property
    def kept_bytes(self) -> int:
        """How much was received and is in no request yet."""
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        if not self._is_broken:
            self._buffer += data

    def next_request(self) -> Request | None:
        """Returns the next request, or None if it is not there yet."""
        if self._is_broken:
            return None
        if self._set is None:
            request = self._begun()
            if request is None or request.verb is not Verb.PUT:
                return self._told(request)
            self._set = request
        return self._told(self._stored())

    def _told(self, request: Request | None) -> Request | None:
        if request is not None and request.verb is Verb.BROKEN:
            self._is_broken = True
            self._buffer.clear()
        return request

    def _begun(self) -> Request | None:
        """Returns the request of the next line; that of a `set` has no data so far."""
        end = self._buffer.find(b"\n", self._searched)
        if (end if end >= 0 else len(self._buffer)) > requests.LINE_BYTES_MAX:
            return _broken("line too long")
        if end < 0:
            self._searched = len(self._buffer)
            return None
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        self._searched = 0
        read = _read_again if end <= _KNOWN_LINE_BYTES_MAX else _read
        request, self._data_bytes = read(line, is_exact=self._is_exact)
        if self._data_bytes > self._item_bytes_max:
            return _broken("the item is too large")
        return request

    def _stored(self) -> Request | None:
        begun, size = self._set, self._data_bytes
        assert begun is not None
        if len(self._buffer) < size + 1:
            return None
        ending = self._buffer[size : size + 2]
        if ending == b"\r":
            return None
        if ending != _CRLF and not ending.startswith(b"\n"):
            return _broken("the data is longer than its size")
        with memoryview(self._buffer) as view:
            data = bytes(view[:size])
        del self._buffer[: size + (2 if ending == _CRLF else 1)]
        self._set = None
        return Request(
            Verb.PUT,
            begun.queue,
            (data,),
            begun.expires_in_ms,
            begun.expires_at_ms,
            is_quiet=begun.is_quiet,
        )


def encode(request: Request, reply: Reply, *, is_exact: bool = False) -> tuple[bytes, bool]:
    """Returns the bytes of a reply, and whether the connection ends behind them.

    Clients of memcached want back the key that they have asked for, options included, an `OK`, and
    why they are at fault.  `is_exact` is for clients of Kestrel that want what Kestrel says, byte
    for byte.
    """
    if reply.outcome is Outcome.BROKEN and not is_exact:
        return _client_error(request), True
    if reply.outcome in _REFUSED:
        return _REFUSED[reply.outcome], reply.outcome is not Outcome.NOT_OPEN
    ends = request.verb in (Verb.QUIT, Verb.SHUTDOWN)
    if request.is_quiet and not is_exact:
        return b"", ends
    if reply.outcome in (Outcome.ITEM, Outcome.MORE):
        end = b"" if reply.outcome is Outcome.MORE else b"END\r\n"
        return _value(request, reply.data, is_exact=is_exact) + end, ends
    if reply.outcome is Outcome.COUNT:
        return _count(request, reply.item_count), ends
    if reply.outcome is Outcome.DONE:
        return (_DONE_EXACT if is_exact else _DONE)[request.verb], ends
    return _report(request, reply), ends


def _client_error(request: Request) -> bytes:
    """Says what is wrong; nothing of it is what the client has sent."""
    reason = request.words[0] if request.verb is Verb.BROKEN else "no such status"
    return b"CLIENT_ERROR %b\r\n" % reason.encode()


def _value(request: Request, data: bytes | None, *, is_exact: bool) -> bytes:
    if data is None:
        return b""
    name = request.queue if is_exact else request.key or request.queue
    cas = b" 0" if request.wants_cas else b""  # there is no `cas`, so any number will do
    return b"VALUE %b 0 %d%b\r\n%b\r\n" % (name.encode(), len(data), cas, data)


def _count(request: Request, count: int) -> bytes:
    if request.verb is Verb.PUT:
        return b"STORED\r\n" if count else b"NOT_STORED\r\n"
    return b"%d\r\n" % count


def _report(request: Request, reply: Reply) -> bytes:
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


def _broken(reason: str) -> Request:
    return Request(Verb.BROKEN, words=(reason,), ends=True)


def _read(line: bytes, *, is_exact: bool) -> tuple[Request, int]:
    """Returns the request of a line, and how many bytes of data follow it."""
    try:
        words = line.decode().split(" ")
    except UnicodeDecodeError:
        return _broken("not UTF-8"), 0
    if words[0].lower() != "set":
        return _parse(words, is_exact=is_exact), 0
    if len(words) < 5:
        return _broken("set needs a queue, flags, an expiry and a size"), 0
    size = requests.number(words[4])
    if size is None:
        return _broken("the size of a set is a number"), 0
    return _set(words), size


# Clients say the same again and again.
_read_again: Final = functools.lru_cache(_KNOWN_LINES_MAX)(_read)


def _parse(words: list[str], *, is_exact: bool) -> Request:
    command, rest = words[0].lower(), words[1:]
    if command in _PLAIN:
        is_quiet = command == "flush_all" and rest[-1:] == ["noreply"]
        return Request(_PLAIN[command], is_quiet=is_quiet)
    if command in ("get", "gets"):
        return _get(rest[:1]) if is_exact else _get(rest, wants_cas=command == "gets")
    if command in _NAMING:
        return _naming(_NAMING[command], rest)
    if command == "monitor":
        return _monitor(rest)
    if command == "confirm":
        return _confirm(rest)
    if command == "dump_stats":
        return Request(Verb.DUMP_STATS, words=tuple(word for word in rest if word))
    if command == "status":
        return Request(Verb.STATUS, words=tuple(word.lower() for word in rest[:1]))
    return _broken("no such command")


def _set(words: list[str]) -> Request:
    queue = words[1]
    flags, expiry = requests.number(words[2]), requests.number(words[3], low=-requests.NUMBER_MAX)
    if names.queue_problem(queue):
        return _broken(_BAD_QUEUE)
    if flags is None or expiry is None:
        return _broken("flags and expiry of a set are numbers")
    is_relative = expiry < _RELATIVE_MAX
    return Request(
        Verb.PUT,
        queue,
        expires_in_ms=expiry * 1000 if is_relative else 0,
        expires_at_ms=0 if is_relative else expiry * 1000,
        is_quiet=words[5:6] == ["noreply"],
    )


def _get(keys: list[str], *, wants_cas: bool = False) -> Request:
    """Parses the keys of a line; the request is the last of them, and has the others before it."""
    if len(keys) == 1:
        return _get_one(keys[0], wants_cas=wants_cas)
    found = [_get_one(key, wants_cas=wants_cas) for key in keys if key]
    for request in found:
        if request.verb is Verb.BROKEN:
            return request
    return found[-1]._replace(before=tuple(found[:-1])) if found else _broken(_BAD_QUEUE)


def _get_one(key: str, *, wants_cas: bool) -> Request:
    """Parses `queue/option/option`.  Options that nobody knows are ignored, as Kestrel does."""
    queue, *options = key.split("/")
    chosen = set(options)
    opens, closes = "open" in chosen, "close" in chosen
    aborts, peeks = "abort" in chosen, "peek" in chosen
    if names.queue_problem(queue):
        return _broken(_BAD_QUEUE)
    if (peeks or aborts) and (opens or closes or (peeks and aborts)):
        return _broken("options that exclude each other")
    waits = [requests.number(option[2:]) for option in options if option.startswith("t=")]
    if None in waits:
        return _broken("t= is a number of milliseconds")
    return Request(
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


def _naming(verb: Verb, rest: list[str]) -> Request:
    if not rest or names.queue_problem(rest[0]):
        return _broken(_BAD_QUEUE)
    return Request(verb, rest[0], is_quiet=rest[-1] == "noreply" and len(rest) > 1)


def _monitor(rest: list[str]) -> Request:
    seconds = requests.number(rest[1]) if len(rest) > 1 else None
    most = requests.number(rest[2], low=1) if len(rest) > 2 else 0
    if seconds is None or most is None or names.queue_problem(rest[0]):
        return _broken("monitor needs a queue and seconds, and may have the most items")
    return Request(Verb.MONITOR, rest[0], wait_ms=seconds * 1000, item_count=most, opens=True)


def _confirm(rest: list[str]) -> Request:
    count = requests.number(rest[1]) if len(rest) > 1 else None
    if count is None or names.queue_problem(rest[0]):
        return _broken("confirm needs a queue and a number of items")
    return Request(Verb.CONFIRM, rest[0], item_count=count)
