"""Arrow in a client: pyarrow is needed where it is asked for, and only there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fjord.client import arrow
from fjord.errors import FjordError
from tests.unit.client.stream_samples import messages


def test_messages_are_a_table() -> None:
    table = arrow.messages_table(messages(b"a", b"b"))
    assert table["seq"].to_pylist() == [6, 7]


@pytest.mark.parametrize("module", ["pyarrow", "fjord.blocks.rows"])
def test_without_pyarrow_it_is_said_what_is_missing(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FjordError, match=r"Arrow needs .*pip install pyarrow"):
        if module != "pyarrow":
            monkeypatch.delattr("fjord.blocks.rows", raising=False)
        arrow.messages_table(messages(b"a"))


def test_a_client_does_not_load_pyarrow() -> None:
    code = "import sys, fjord, fjord.aio; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
