"""Whoever sends without end, and never reads, does not keep others out."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

import fjord
from tests.acceptance.daemon import Daemon

CONNECTIONS: Final = 20
TRIES: Final = 3
SECONDS_MAX: Final = 1.0


@pytest.mark.parametrize("identifiers", ["same", "many"])
def test_others_connect_and_write_within_a_second(tmp_path: Path, identifiers: str) -> None:
    with Daemon(tmp_path / "data") as daemon:
        command = [sys.executable, "-m", "tests.acceptance.flood"]
        command += [str(daemon.port), str(CONNECTIONS), identifiers]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
            try:
                assert flood.stdout is not None
                assert flood.stdout.readline() == "flooding\n"
                took = []
                for number in range(TRIES):
                    begun = time.monotonic()
                    with fjord.connect(daemon.url, timeout=30) as db:
                        db.kv("others").set("number", str(number))
                        took.append(time.monotonic() - begun)
                        assert db.stats()["connections"] == CONNECTIONS + 1
            finally:
                flood.kill()
        # What else runs on the machine only adds to a try, so the best one tells.
        assert min(took) < SECONDS_MAX, took
