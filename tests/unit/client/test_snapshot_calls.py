"""Opening and closing snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from fjord.client import snapshots
from fjord.commands import OpenSnapshot
from tests.unit.client.snapshot_samples import OPENED


def test_a_snapshot_lives_as_long_as_was_asked() -> None:
    call = snapshots.open_call(60)
    assert call.command == OpenSnapshot(lifetime_us=60_000_000)
    assert call.result(OPENED) == OPENED
    assert snapshots.open_call(None).command == OpenSnapshot()


@pytest.mark.parametrize(
    ("lifetime", "error"), [(0, ValueError), (-1, ValueError), ("1", TypeError)]
)
def test_a_lifetime_is_more_than_nothing(lifetime: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="lifetime"):
        snapshots.open_call(lifetime)
