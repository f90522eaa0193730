"""One end of a connection, sans-IO: commands in, bytes out; bytes in, replies out."""

from __future__ import annotations

from collections.abc import Iterator

from fjord import limits, wire
from fjord.commands import Command, Reply
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire import Function


class Link:
    """Numbers requests, and knows from a reply's number what it answers."""

    def __init__(self) -> None:
        self._decoder = wire.ReplyDecoder()
        self._in_flight: dict[int, Function] = {}
        self._last_identifier = 0

    def send(self, command: Command) -> tuple[int, bytes]:
        """Returns the identifier and the message of a new request.

        Raises:
            LocalProtocolError: if it is larger than a message may be, or too many are in flight.
        """
        if len(self._in_flight) >= limits.IN_FLIGHT_MAX:
            raise LocalProtocolError(
                Code.BUSY, f"a connection has at most {limits.IN_FLIGHT_MAX} requests in flight"
            )
        identifier = self._free_identifier()
        function, message = wire.encode_request(command, identifier)
        if len(message) > limits.MESSAGE_BYTES_MAX:
            raise LocalProtocolError(
                Code.TOO_LARGE,
                f"a message has at most {limits.MESSAGE_BYTES_MAX} bytes; use smaller batches",
            )
        self._in_flight[identifier] = function
        return identifier, message

    def receive(self, data: bytes) -> Iterator[tuple[int, Reply]]:
        """Yields the replies that `data` completes, with the identifiers of their requests.

        Raises:
            RemoteProtocolError: if the peer gave this connection up, or is no Fjord server.
        """
        self._decoder.feed(data)
        while (raw := self._decoder.next()) is not None:
            function = self._in_flight.pop(raw.identifier, None)
            if function is None:
                text = raw.error.decode(errors="replace") or "a reply to no request"
                raise RemoteProtocolError(Code.FAILED, text)
            yield raw.identifier, wire.read_reply(function, raw)

    def _free_identifier(self) -> int:
        # 0 is what a server answers with when it cannot tell the request.
        while True:
            self._last_identifier = self._last_identifier % 0xFFFF + 1
            if self._last_identifier not in self._in_flight:
                return self._last_identifier
