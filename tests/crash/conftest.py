"""What tests of the spool share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.tracing import Life, TracedDaemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon that a spool is forwarded to; returns its URL."""
    folder = tmp_path_factory.mktemp("daemon")
    with TracedDaemon(Life(data=folder / "data", log=folder / "log")) as traced:
        assert traced.is_ready, traced.log()
        yield traced.url
        assert "Traceback" not in traced.log()
