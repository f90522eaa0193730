from __future__ import annotations

from pathlib import Path

import pytest

from fjord.testing import scenario
from tests.scenarios.world import World

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_story_goes_as_told(path: Path, pytestconfig: pytest.Config) -> None:
    assert scenario.run(path, World().answer, rewrite=pytestconfig.getoption("--rewrite"))


def test_there_are_stories() -> None:
    assert len(FILES) > 5
