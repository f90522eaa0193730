"""A small HTTP server for `/metrics` and `/healthz`, on loopback only.

One request per connection, GET or HEAD, bounded in size, in time and in number.  The Host header
must name this machine's loopback: a web page opened on the same machine, under another name that
resolves to 127.0.0.1, gets nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from fjord import limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The content of a page."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Page = Callable[[], Answer]


class Pages:
    """The pages, served to at most HTTP_CONNECTIONS_MAX connections at a time."""

    def __init__(self, pages: Mapping[str, Page], *, seconds_max: float) -> None:
        self._pages = pages
        self.seconds_max = seconds_max
        self.open = 0  # connections

    def answer(self, head: bytes) -> tuple[Answer, bool]:
        """Returns the answer to a request's head, and whether its body is wanted."""
        line, *headers = head.decode("latin-1").split("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _plain(400, "not an HTTP/1.1 request"), True
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _plain(405, "only GET and HEAD"), True
        if not is_loopback(_host_of(headers)):
            return _plain(421, "the Host header names another machine"), True
        page = self._pages.get(target.partition("?")[0])
        answer = _plain(404, f"pages: {' '.join(self._pages)}") if page is None else page()
        return answer, method == "GET"


class HttpConnection(asyncio.Protocol):
    """One connection: one request, one answer."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._pages.open += 1
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._pages.seconds_max, self._transport.abort)
        if self._pages.open > limits.HTTP_CONNECTIONS_MAX:
            self._send(_plain(503, "too many connections; try again later"), with_body=True)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._pages.open -= 1
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._received += data
        head, end, _ = self._received.partition(b"\r\n\r\n")
        if len(head) > limits.HTTP_REQUEST_BYTES_MAX:
            text = f"a request has at most {limits.HTTP_REQUEST_BYTES_MAX} bytes"
            self._send(_plain(431, text), with_body=True)
        elif end:
            answer, with_body = self._pages.answer(head)
            self._send(answer, with_body=with_body)

    def _send(self, answer: Answer, *, with_body: bool) -> None:
        assert self._transport is not None
        self._is_answered = True
        head = (
            f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
            f"Content-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (answer.body if with_body else b""))
        self._transport.close()


def _plain(status: int, text: str) -> Answer:
    return Answer(status=status, body=f"{text}\n".encode())


def _host_of(headers: list[str]) -> str:
    """Returns the host that a request names, without its port; empty if there is none."""
    hosts = [line[5:].strip() for line in headers if line[:5].lower() == "host:"]
    if len(hosts) != 1:
        return ""
    host = hosts[0]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
