"""Connections that send requests as fast as they can and never read an answer.

    python -m tests.acceptance.flood PORT CONNECTIONS same|many

`same` gives all requests one identifier, so that nearly all are refused at once; `many` gives each
its own.  It says `flooding` when all are connected, and goes on until it is killed.
"""

from __future__ import annotations

import selectors
import socket
import sys

from tests.acceptance import raw

_REQUESTS = 1000


def flood(port: int, count: int, *, same: bool) -> None:
    data = b"".join(
        raw.set_(b"key-%d" % number, raw.STRING, bytes(100), identifier=1 if same else number)
        for number in range(1, _REQUESTS + 1)
    )
    selector = selectors.DefaultSelector()
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_WRITE, memoryview(data))
    print("flooding", flush=True)
    while True:
        for key, _ in selector.select():
            assert isinstance(key.fileobj, socket.socket)
            rest = key.data[key.fileobj.send(key.data) :] or memoryview(data)
            selector.modify(key.fileobj, selectors.EVENT_WRITE, rest)


if __name__ == "__main__":
    flood(int(sys.argv[1]), int(sys.argv[2]), same=sys.argv[3] == "same")
