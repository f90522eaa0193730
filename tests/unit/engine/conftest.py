"""An engine on a directory of its own, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from fjord.engine import Engine
from fjord.testing import SimClock
from tests.unit.engine.world import open_at


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def engine(tmp_path: Path, clock: SimClock) -> Engine:
    return open_at(tmp_path, clock)
