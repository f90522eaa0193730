"""Where readers begin, and how they get on."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from fjord import limits
from fjord.client.subscribers import Cursor, check_count, check_seq, start_of
from fjord.commands import Messages
from fjord.errors import Code, RemoteProtocolError
from tests.unit.client.stream_samples import messages


@pytest.mark.parametrize(
    ("start", "error", "text"),
    [
        ("middle", ValueError, "not 'middle'"),
        (-1, ValueError, "0 or more"),
        (2**63, ValueError, "0 or more"),
        (datetime(2026, 1, 1), ValueError, "needs a time zone"),  # noqa: DTZ001
        (1.5, TypeError, "not float"),
        (True, TypeError, "not bool"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_what_names_no_place_is_refused(start: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        start_of(start)


def test_counts_have_a_bound() -> None:
    assert check_count(5) == 5
    assert check_count(10**9) == limits.READ_COUNT_MAX
    assert check_seq("after", 0) == 0
    with pytest.raises(ValueError, match="n is 1 or more"):
        check_count(0)
    with pytest.raises(TypeError, match="n is a whole number"):
        check_count(1.5)  # type: ignore[arg-type]


def read(cursor: Cursor, answer: Messages, **options: Any) -> Any:
    """Reads; returns what was sent."""
    call = cursor.read(10, **options)
    call.result(answer)
    return call.command


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (messages(*[b"a"] * 11), Code.BAD_BATCH),
        (messages(after=4), Code.BAD_CURSOR),
        (messages(after=5, until=20, ended=False), Code.BAD_CURSOR),
    ],
)
def test_an_answer_that_leads_nowhere_is_the_peers_mistake(answer: Messages, code: Code) -> None:
    call = Cursor("t", 5, 20).read(10)
    with pytest.raises(RemoteProtocolError) as error:
        call.result(answer)
    assert error.value.code is code
