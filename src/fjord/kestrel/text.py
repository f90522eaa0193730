"""Kestrel's text protocol: bytes in, requests out; replies in, bytes out.

    put cars 5000:      two items that expire in five seconds
    first
    second
                        an empty line ends them
    +2

A line ends with LF or CR LF.  A reply is a line that begins with `+` and a number, `-` and an
error, `:` and an item, or is a `*` for no item.  Items hold no line ends.  An error leaves the
connection open, unless it is not known where the next request begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fjord.kestrel import names, requests
from fjord.kestrel.requests import Outcome, Reply, Request, Verb

# One `put` is done in one go while others wait.
ITEMS_MAX: Final = 1024

_NO_NAME: Final = "Queue name required."
_REFUSED: Final = {
    Outcome.HAS_OPEN: "A transaction is open.",
    Outcome.NOT_OPEN: "Not that many transactions open.",
    Outcome.BLOCKED: "The status of the server does not allow it.",
    Outcome.FAILED: "The server could not do it.",
}


class TextReader:
    """Finds requests in what a client sends."""

    def __init__(self, item_bytes_max: int = requests.ITEM_BYTES_MAX) -> None:
        self._item_bytes_max = item_bytes_max
        self._buffer = bytearray()
        self._searched = 0
        self._put: Request | None = None  # whose items are not all there yet
        self._items: list[bytes] = []
        self._items_bytes = 0
        self._is_overfull = False  # the items of this one are passed over
        self._is_broken = False

    @property
    def kept_bytes(self) -> int:
        """How much was received and is in no request yet."""
        return len(self._buffer) + self._items_bytes

    def receive(self, data: bytes) -> None:
        if not self._is_broken:
            self._buffer += data

    def next_request(self) -> Request | None:
        """Returns the next request, or None if it is not there yet."""
        while not self._is_broken:
            line = self._line()
            if line is None:
                return None
            request = self._begun(line) if self._put is None else self._gathered(line)
            if request is not None:
                return request
        return None

    def _line(self) -> bytes | None:
        most = requests.LINE_BYTES_MAX if self._put is None else self._item_bytes_max + 1
        end = self._buffer.find(b"\n", self._searched)
        if end > most or (end < 0 and len(self._buffer) > most):
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

    def _begun(self, line: bytes) -> Request | None:
        if self._is_broken:
            return _broken("Line too long.", ends=True)
        try:
            text = line.decode()
        except UnicodeDecodeError:
            # Items may follow, so nobody knows where the next request begins.
            self._is_broken = True
            return _broken("Not UTF-8.", ends=True)
        words = text.removesuffix(":").split(" ")
        if not text.endswith(":"):
            return _parse(words)
        self._put = _put(words) if words[0].lower() == "put" else _unknown(words[0])
        return None

    def _gathered(self, line: bytes) -> Request | None:
        assert self._put is not None
        if self._is_broken:
            return _broken("Line too long.", ends=True)
        if line:
            self._items.append(line)
            self._items_bytes += len(line)
            if len(self._items) > ITEMS_MAX or self._items_bytes > self._item_bytes_max:
                self._is_overfull = True
            if self._is_overfull or self._put.verb is Verb.BROKEN:
                self._items, self._items_bytes = [], 0
            return None
        request = self._put._replace(items=tuple(self._items))
        if self._is_overfull:
            request = _broken(f"Too many items at once; limit={ITEMS_MAX}")
        self._put, self._items, self._items_bytes = None, [], 0
        self._is_overfull = False
        return request


def encode(request: Request, reply: Reply) -> tuple[bytes, bool]:
    """Returns the bytes of a reply, and whether the connection ends behind them."""
    ends = request.ends or request.verb in (Verb.QUIT, Verb.SHUTDOWN)
    outcome = reply.outcome
    if outcome is Outcome.ITEM:
        return (b"*\n" if reply.data is None else b":%b\n" % reply.data), ends
    if outcome is Outcome.MORE:
        return (b"" if reply.data is None else b":%b\n" % reply.data), ends
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
    return f"-{_REFUSED[outcome]}\n".encode(), ends or outcome is Outcome.FAILED


# -- lines ----------------------------------------------------------------------------------------


def _broken(reason: str, *, ends: bool = False) -> Request:
    return Request(Verb.BROKEN, words=(reason,), ends=ends)


def _unknown(command: str) -> Request:
    return _broken(f"Unknown command: {command.lower()}")


def _parse(words: list[str]) -> Request:
    command, rest = words[0].lower(), words[1:]
    if command in _COMMANDS:
        return _COMMANDS[command](rest)
    return _unknown(command)


def _name_problem(rest: list[str]) -> str | None:
    if not rest or not rest[0]:
        return _NO_NAME
    return "Bad queue name." if names.queue_problem(rest[0]) else None


def _put(words: list[str]) -> Request:
    rest = words[1:]
    problem = _name_problem(rest)
    if problem is not None:
        return _broken(problem)
    expires_in_ms = requests.number(rest[1]) if len(rest) > 1 else 0
    if expires_in_ms is None:
        return _broken("Error parsing expiration time.")
    return Request(Verb.PUT, rest[0], expires_in_ms=expires_in_ms)


def _get(rest: list[str]) -> Request:
    return _fetch(rest, opens=True)


def _peek(rest: list[str]) -> Request:
    return _fetch(rest, opens=False)


def _fetch(rest: list[str], *, opens: bool) -> Request:
    problem = _name_problem(rest)
    if problem is not None:
        return _broken(problem)
    wait_ms = requests.number(rest[1]) if len(rest) > 1 else 0
    if wait_ms is None:
        return _broken("Error parsing timeout.")
    return Request(
        Verb.GET, rest[0], wait_ms=wait_ms, opens=opens, peeks=not opens, closes_all=True
    )


def _monitor(rest: list[str]) -> Request:
    if len(rest) < 2:
        return _broken("Queue name & timeout required.")
    wait_ms = requests.number(rest[1])
    problem = _name_problem(rest)
    if problem is not None or wait_ms is None:
        return _broken(problem or "Error parsing timeout.")
    return Request(Verb.MONITOR, rest[0], wait_ms=wait_ms, opens=True, closes_all=True)


def _confirm(rest: list[str]) -> Request:
    if len(rest) < 2:
        return _broken("Queue name & count required.")
    count = requests.number(rest[1])
    problem = _name_problem(rest)
    if problem is not None or count is None:
        return _broken(problem or "Error parsing count.")
    return Request(Verb.CONFIRM, rest[0], item_count=count)


def _naming(verb: Verb) -> Callable[[list[str]], Request]:
    def parse(rest: list[str]) -> Request:
        problem = _name_problem(rest)
        return Request(verb, rest[0]) if problem is None else _broken(problem)

    return parse


def _plain(verb: Verb) -> Callable[[list[str]], Request]:
    return lambda rest: Request(verb)


def _status(rest: list[str]) -> Request:
    return Request(Verb.STATUS, words=tuple(word.lower() for word in rest[:1]))


def _items_missing(rest: list[str]) -> Request:
    return _broken(_name_problem(rest) or "The line of a put ends with a colon.")


_COMMANDS: Final[dict[str, Callable[[list[str]], Request]]] = {
    "put": _items_missing,
    "get": _get,
    "peek": _peek,
    "monitor": _monitor,
    "confirm": _confirm,
    "flush": _naming(Verb.FLUSH),
    "delete": _naming(Verb.DELETE),
    "status": _status,
    "version": _plain(Verb.VERSION),
    "quit": _plain(Verb.QUIT),
    "shutdown": _plain(Verb.SHUTDOWN),
}
