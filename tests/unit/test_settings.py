from __future__ import annotations

from dataclasses import dataclass

import pytest

from fjord import settings


@dataclass(frozen=True)
class Some(settings.TableSettings):
    name: str = "usual"
    count: int = 5


def test_only_what_is_not_as_usual_is_kept_in_one_form() -> None:
    assert Some().encode() == b""
    assert Some(count=6, name="other").encode() == b'{"count":6,"name":"other"}'
    assert settings.read(b"", Some) == {}
    assert settings.read(b' { "count" : 6 } ', Some) == {"count": 6}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", "a JSON object"),
        (b"[]", "a JSON object"),
        (b"[" * 100_000, "a JSON object"),
        (b'{"other":1}', "no setting 'other'; there are .*name, count"),
        (b"\xff", "a JSON object"),
    ],
)
def test_what_is_no_settings_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        settings.read(data, Some)


@pytest.mark.parametrize("value", [0, 11, 1.0, True, "1", None])
def test_numbers_have_bounds(value: object) -> None:
    settings.check_number("count", 10, 1, 10)
    with pytest.raises(ValueError, match="from 1 to 10"):
        settings.check_number("count", value, 1, 10)


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_switches_are_true_or_false(value: object) -> None:
    settings.check_switch("on", False)
    with pytest.raises(ValueError, match="on is true or false"):
        settings.check_switch("on", value)
