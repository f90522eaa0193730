"""The code of docs/tables.md runs as it stands, on a directory and on a daemon."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.daemon import Daemon

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
CODE = "".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
OPEN = 'fjord.open("data")'


def run(code: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), names)  # noqa: S102 - our own page
    assert names["kv"].get("retries") == 9
    names["db"].close()


@pytest.mark.req("FJ-20", "FJ-31", "FJ-35", "FJ-44", "FJ-45", "FJ-46")
def test_on_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPEN in CODE
    monkeypatch.chdir(tmp_path)
    run(CODE)


@pytest.mark.req("FJ-20", "FJ-31", "FJ-35", "FJ-44", "FJ-45", "FJ-46")
def test_on_a_daemon(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        run(CODE.replace(OPEN, f'fjord.connect("{daemon.url}")'))
