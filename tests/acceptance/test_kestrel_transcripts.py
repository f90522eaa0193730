"""The transcripts of both protocols, against `fjord kestrel serve` in a process of its own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from tests.acceptance.kestrel_server import Serving, expect, raw, serving
from tests.unit.kestrel import transcripts
from tests.unit.kestrel.serving_world import SYNCED
from tests.unit.kestrel.transcripts import MEMCACHE, MEMCACHE_ENDS, TEXT, TEXT_ENDS, Transcript


@pytest.fixture(params=[False, True], ids=["memcached", "exact"], scope="module")
def is_exact(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, is_exact: bool) -> Iterator[Serving]:
    path = tmp_path_factory.mktemp("transcripts")
    config = path / "kestrel.json"
    config.write_text(json.dumps({"maxOpenTransactions": 2, **SYNCED}))
    options = ["--exact"] if is_exact else []
    with serving(path / "queues", "--config", str(config), *options) as server:
        yield server


@pytest.fixture(autouse=True)
def _as_new(server: Serving) -> Iterator[None]:
    """Leaves no queue behind, and a server that is up."""
    yield
    with raw(server.port) as client:
        expect(client, b"status up\r\n", b"END\r\n")
        for queue in transcripts.QUEUES:
            expect(client, b"delete %b\r\n" % queue.encode(), b"DELETED\r\n")
        expect(client, b"dump_stats\r\n", b"END\r\n")


def has_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True  # something was sent that nobody reads


CASES = [(MEMCACHE, False, False), (MEMCACHE_ENDS, False, True)]
CASES += [(TEXT, True, False), (TEXT_ENDS, True, True)]


@pytest.mark.parametrize(
    ("transcript", "is_text", "ends"),
    [
        pytest.param(transcript, is_text, ends, id=name)
        for known, is_text, ends in CASES
        for name, transcript in known.items()
    ],
)
def test_what_is_sent_and_said(
    server: Serving, is_exact: bool, transcript: Transcript, is_text: bool, ends: bool
) -> None:
    with raw(server.text_port if is_text else server.port) as client:
        for exchange in transcript:
            expect(client, exchange[0], transcripts.expected(exchange, is_exact=is_exact))
        if ends:
            assert has_ended(client)
        else:
            expect(client, b"status\r\n", b":UP\n" if is_text else b"UP\r\n")
