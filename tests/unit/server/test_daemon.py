"""What the daemon decides before it serves; that it serves is shown by the acceptance tests."""

from __future__ import annotations

import resource

import pytest

from fjord import limits
from fjord.server import daemon
from fjord.server.bounds import Bounds


def test_connections_leave_files_for_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 1000))
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: set_to.append(both))
    fitted = daemon._fit_files(Bounds(connections=10_000))
    assert fitted.connections == 1000 - limits.FILES_RESERVED
    assert set_to == [(1000, 1000)]
    few = Bounds(connections=5)
    assert daemon._fit_files(few) is few
