"""How long things may take, as it is said on the command line."""

from __future__ import annotations

import pytest

from fjord.cli import pipelines
from fjord.errors import UsageError


@pytest.mark.parametrize(
    ("texts", "tables", "limits"),
    [
        ([], [], None),
        (["60"], [], 60.0),
        (["0", "0.5"], ["pages"], 0.5),
        (["pages=5"], [], {"pages": 5.0}),
        (["60", "mails=5"], ["pages", "mails"], {"pages": 60.0, "mails": 5.0}),
    ],
)
def test_limits(texts: list[str], tables: list[str], limits: object) -> None:
    assert pipelines.limits_of(texts, tables) == limits


@pytest.mark.parametrize("text", ["", "x", "pages=", "-1", "nan", "inf", "pages=1h"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a limit; give one like 60 or pages=60"):
        pipelines.limits_of([text], [])


def test_a_limit_for_the_others_needs_their_names() -> None:
    with pytest.raises(UsageError, match="name the tables for N"):
        pipelines.limits_of(["60", "pages=5"], [])
