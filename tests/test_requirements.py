"""docs/requirements.md and the marks that it is made from."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "requirements"


def test_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_marks_are_found_wherever_they_may_stand() -> None:
    script = runpy.run_path(str(SCRIPT))
    module = ast.parse(
        "pytestmark = [pytest.mark.slow, pytest.mark.req('FJ-01')]\n"
        "@pytest.mark.req('FJ-02', 'FJ-03')\n"
        "def test_function(): ...\n"
        "class TestGroup:\n"
        "    @pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.req('FJ-04'))])\n"
        "    def test_method(self, n): ...\n"
    )
    assert list(script["marks_in"](module, "m.py")) == [
        ("FJ-01", "m.py"),
        ("FJ-02", "m.py::test_function"),
        ("FJ-03", "m.py::test_function"),
        ("FJ-04", "m.py::TestGroup::test_method"),
    ]


def test_a_promise_without_a_test_is_open() -> None:
    script = runpy.run_path(str(SCRIPT))
    page = script["render"](
        "== FJ: jobs\nFJ-01 one\nFJ-02 later: two\nFJ-03 three\n", {"FJ-03": ["t.py::a", "t.py::b"]}
    )
    assert "1 of 3 promises" in page
    assert page.splitlines()[-3:] == [
        "| FJ-01 | one | open |",
        "| FJ-02 | two | open, planned last |",
        "| FJ-03 | three | `t.py::a`<br>`t.py::b` |",
    ]
