"""A daemon that does what a test says: real sockets and bytes, and an answer for each request."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Container, Sequence
from typing import Self

from fjord import commands, wire
from fjord.columns import Strings, repeat
from fjord.errors import Code, RemoteProtocolError
from fjord.wire import Request

NOW_US = 1_700_000_000_000_000
TOKEN = commands.Done(master=b"m" * 16, seq=5)
BUSY = commands.Refusal(code=Code.BUSY, text="later")

# What becomes of a request: messages to send, and whether the connection ends after them.
Answer = tuple[Sequence[commands.Reply | commands.Changed | bytes], bool]
Script = Callable[[int, commands.Command], Answer]

CUT: Answer = ((), True)
SILENCE: Answer = ((), False)


def entries(*rows: tuple[int, bytes]) -> commands.Entries:
    """Returns the answer to a GET of these types and values."""
    count = len(rows)
    return commands.Entries(
        types=bytes([type_ for type_, _ in rows]),
        values=Strings.of([value for _, value in rows]),
        timestamps_us=repeat(NOW_US, count),
        expires_at_us=repeat(0, count),
        states=bytes(count),
        created_us=repeat(NOW_US, count),
        accessed_us=repeat(0, count),
        ttls_us=repeat(0, count),
    )


def usual(command: commands.Command) -> commands.Reply:
    """Returns an answer of the right kind."""
    if isinstance(command, commands.Batch):
        return commands.Replies(replies=[usual(one) for one in command.commands])
    if isinstance(command, commands.Get):
        return entries(*[(3, b"\5" + bytes(7))] * len(command.keys))
    if isinstance(command, commands.Modify):
        return entries((3, b"\7" + bytes(7)))
    return TOKEN


def say(*messages: commands.Reply | commands.Changed | bytes) -> Answer:
    return messages, False


def say_and_cut(*messages: commands.Reply | commands.Changed | bytes) -> Answer:
    return messages, True


def last_words(code: Code, text: str = "goodbye") -> bytes:
    return wire.encode_fatal(RemoteProtocolError(code, text), now_us=NOW_US)


def reply_to(command: type[commands.Command], identifier: int, reply: commands.Reply) -> bytes:
    """Returns the message that answers a command of this type."""
    request = Request(command.row.number, identifier, 0, commands.Nop(), 0)
    return b"".join(wire.encode_reply(request, reply, now_us=NOW_US))


def cut_then_busy() -> Script:
    """The first request ends its connection, the second one finds the server busy."""
    answers = iter([CUT, say(BUSY)])
    return lambda number, command: next(answers, None) or say(usual(command))


class Scripted:
    """Listens on a port of its own; the script sees the connection's number and the command.

    Connections whose numbers are `unwelcome` end before their hello is answered.
    """

    def __init__(self, script: Script | None = None, *, unwelcome: Container[int] = ()) -> None:
        self._unwelcome = unwelcome
        self._script = script or (lambda number, command: say(usual(command)))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"fjord://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[tuple[int, commands.Command]] = []  # hello left out
        self.numbers: list[int] = []  # of what was asked and has one
        self.clients: list[bytes] = []  # as each connection said hello
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def commands(self) -> list[commands.Command]:
        return [command for _, command in self.asked]

    def cut_all(self) -> None:
        """Ends all connections, with no word."""
        for stream in self._open:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        for thread in self._threads:
            thread.join(timeout=20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return  # stopped
            number += 1
            self._open.append(stream)
            thread = threading.Thread(target=self._serve, args=(number, stream))
            self._threads.append(thread)
            thread.start()

    def _serve(self, number: int, stream: socket.socket) -> None:
        decoder = wire.RequestDecoder()
        with stream, contextlib.suppress(OSError):
            while data := stream.recv(1 << 20):
                decoder.feed(data)
                while (request := decoder.next()) is not None:
                    messages, is_last = self._answer(number, request)
                    stream.sendall(b"".join(_encoded(request, one) for one in messages))
                    if is_last:
                        return

    def _answer(self, number: int, request: Request) -> Answer:
        command = request.command
        assert not isinstance(command, commands.Refusal), command
        if isinstance(command, commands.Hello):
            self.clients.append(command.client)
            if number in self._unwelcome:
                return CUT
            return say(commands.Welcome(client=command.client, master=b"m" * 16, version="1"))
        self.asked.append((number, command))
        if request.number:
            self.numbers.append(request.number)
        return self._script(number, command)


def _encoded(request: Request, message: commands.Reply | commands.Changed | bytes) -> bytes:
    if isinstance(message, bytes):
        return message
    if isinstance(message, commands.Changed):
        return wire.encode_change(request.identifier, message)
    return b"".join(wire.encode_reply(request, message, now_us=NOW_US))
