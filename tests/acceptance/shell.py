"""Commands as a person types them: inside the test's process, or in one of their own.

Starting Python takes longer than what is tested, so most calls run inside the test's process.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from fjord.cli.commands import app
from tests.acceptance.daemon import FJORD


def run(*words: str | Path, text: str | bytes = "") -> Result:
    result = CliRunner().invoke(app, list(map(str, words)), input=text)
    raised = result.exception
    assert raised is None or isinstance(raised, SystemExit), repr(raised)
    return result


def found(result: Result) -> list[dict[str, Any]]:
    """Returns the objects that a command printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def values(result: Result) -> list[Any]:
    return [one["value"] for one in found(result)]


def process(*words: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command in a process of its own."""
    done = subprocess.run(
        [*FJORD, *words], capture_output=True, text=True, check=False, timeout=60, input=text
    )
    assert "Traceback" not in done.stderr
    return done
