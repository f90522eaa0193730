"""What tests of blocks share."""

from __future__ import annotations

import pytest

from fjord.blocks.store import Store
from tests.unit.blocks import sealed


@pytest.fixture
def store() -> Store:
    """A store in memory that no other test has."""
    return sealed.memory_store()
