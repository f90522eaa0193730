"""One end of a connection, sans-IO: commands in, bytes out; bytes in, replies and changes out."""

from __future__ import annotations

from collections.abc import Iterator

from fjord import limits, wire
from fjord.columns import Buffer
from fjord.commands import Changed, Command, Listen, ListenJobs, Reply, Row
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire import RawChange, RawReply


class Link:
    """Numbers requests, and knows from a reply's number what it answers.

    A request that listens keeps its number for as long as the connection lives: changes carry it.
    """

    def __init__(self) -> None:
        self._decoder = wire.ReplyDecoder()
        self._in_flight: dict[int, Row] = {}  # what was asked, by the number of the request
        self._listening: dict[int, str] = {}  # table by the number of the request
        self._last_identifier = 0

    def send(self, command: Command, number: int = 0) -> tuple[int, bytes]:
        """Returns the identifier and the message of a new request, see `send_parts`."""
        identifier, parts = self.send_parts(command, number)
        return identifier, bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def send_parts(self, command: Command, number: int = 0) -> tuple[int, list[Buffer]]:
        """Returns the identifier and the message of a new request; a large one in pieces.

        Args:
            command: what is asked.
            number: makes a retry safe; 0 = it has none.

        Raises:
            LocalProtocolError: if it is larger than a message may be, or too many are in flight.
        """
        if len(self._in_flight) >= limits.IN_FLIGHT_MAX:
            raise LocalProtocolError(
                Code.BUSY, f"a connection has at most {limits.IN_FLIGHT_MAX} requests in flight"
            )
        identifier = self._free_identifier()
        parts = wire.encode_request(command, identifier, number)
        if sum(map(len, parts)) > limits.MESSAGE_BYTES_MAX:
            raise LocalProtocolError(
                Code.TOO_LARGE,
                f"a message has at most {limits.MESSAGE_BYTES_MAX} bytes; use smaller batches",
            )
        self._in_flight[identifier] = type(command).row
        if isinstance(command, Listen | ListenJobs):
            self._listening[identifier] = command.table
        return identifier, parts

    @property
    def missing(self) -> int:
        """How many bytes the message that has begun lacks, as far as its beginning tells."""
        return self._decoder.missing

    def take_all(self) -> memoryview:
        """Returns the beginning of a message, which is then received again with its rest."""
        return self._decoder.take_all()

    def receive(self, data: bytes | bytearray) -> Iterator[tuple[int, Reply | Changed]]:
        """Yields what `data` completes, with the identifiers of the requests that it belongs to.

        Raises:
            RemoteProtocolError: if the peer gave this connection up, or is no Fjord server.
        """
        self._decoder.feed(data)
        while (raw := self._decoder.next()) is not None:
            if isinstance(raw, RawChange):
                yield raw.identifier, self._changed(raw)
                continue
            row = self._in_flight.pop(raw.identifier, None)
            if row is None:
                raise _last_words(raw)
            yield raw.identifier, wire.read_reply(row, raw)

    def _changed(self, raw: RawChange) -> Changed:
        table = self._listening.get(raw.identifier)
        if table is None:
            raise RemoteProtocolError(Code.FAILED, "a change that nobody listens to")
        return raw.of(table)

    def _free_identifier(self) -> int:
        # 0 is what a server answers with when it cannot tell the request.
        while True:
            self._last_identifier = self._last_identifier % 0xFFFF + 1
            if (
                self._last_identifier not in self._in_flight
                and self._last_identifier not in self._listening
            ):
                return self._last_identifier


def _last_words(raw: RawReply) -> RemoteProtocolError:
    """Returns what a server says before it closes a connection."""
    if not raw.error:
        return RemoteProtocolError(Code.FAILED, "a reply to no request")
    refusal = raw.refusal()
    return RemoteProtocolError(refusal.code, refusal.text)
