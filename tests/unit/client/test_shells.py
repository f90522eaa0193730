"""The blocking shells are those that the asyncio ones make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_blocking_shells_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "shells"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
