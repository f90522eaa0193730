"""The Fjord side of docs/coming-from.md runs as it stands, on a directory and on a daemon."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.daemon import Daemon

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from.md"
CODE = "".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
OPEN = 'fjord.open("data")'


def run(code: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), names)  # noqa: S102 - our own page
    assert names["db"].kv("titles").get("http://example.com/a") == "A"
    assert names["db"].jobs("crawl").count() == (1000, 1, 0)
    assert names["db"].kv("balances").get("user:7") == 5
    assert names["billing"].lag == 0
    names["db"].close()


@pytest.mark.req("FJ-02", "FJ-04", "SJ-27", "JQ-02", "KY-02")
def test_on_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPEN in CODE
    monkeypatch.chdir(tmp_path)
    run(CODE)


@pytest.mark.req("FJ-02", "FJ-04", "SJ-27", "JQ-02", "KY-02")
def test_on_a_daemon(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        run(CODE.replace(OPEN, f'fjord.connect("{daemon.url}")'))


def test_every_side_has_a_before_and_a_fjord() -> None:
    sections = re.split(r"^## From ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    pairs = [text for text in sections if "\nBefore" in text and "\nFjord:" in text]
    assert len(pairs) == len(sections) - 1 == 8  # Kestrel comes later
