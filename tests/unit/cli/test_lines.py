"""Lines of a file or of standard input."""

from __future__ import annotations

from pathlib import Path

import pytest

from fjord.cli import lines
from fjord.errors import UsageError


def test_a_file_has_a_size_and_a_missing_one_is_wrong_use(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"{}\n")
    with lines.opened(str(path)) as (file, size):
        assert (file.read(), size) == (b"{}\n", 3)
    with pytest.raises(UsageError, match="cannot be read"), lines.opened(str(tmp_path)):
        pass


@pytest.mark.parametrize("text", [b'{"a": 1, "b": 2, "a": 1}', b'{"b": {"a": 1, "a": 2}}'])
def test_a_member_that_is_there_twice_is_refused(text: bytes) -> None:
    with pytest.raises(UsageError, match="'a' occurs twice in an object"):
        lines.from_json(text, "it")
