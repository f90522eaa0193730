"""Settings of a stream, as users give them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fjord.client.declared_tables import encode_stream_settings
from fjord.streams import Mode, Settings, decode_settings


def decoded(**settings: Any) -> Settings:
    return decode_settings(encode_stream_settings(settings))  # type: ignore[arg-type]


def test_settings_are_kept_in_microseconds() -> None:
    assert decoded(
        mode="latest",
        history=False,
        block_rows=10,
        block_age=0.5,
        retention=timedelta(days=1),
        retention_bytes=5,
    ) == Settings(
        mode=Mode.LATEST,
        history=False,
        block_rows=10,
        block_age_us=500_000,
        retention_us=24 * 3600 * 1_000_000,
        retention_bytes=5,
    )
    assert decoded(mode=Mode.LATEST) == Settings(mode=Mode.LATEST)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"mode": "newest"}, "mode is log or latest"),
        ({"history": False}, "a stream of mode log has history"),
        ({"history": "yes"}, "history is true or false"),
        ({"block_rows": 0}, "block_rows is a whole number"),
        ({"block_rows": 1.5}, "block_rows is a whole number"),
        ({"block_age": 0}, "block_age is 1e-06 to 31,622,400 seconds"),
        ({"block_age": 1e9}, "block_age is"),
        ({"retention": 1e12}, "retention is 0 to 3,162,240,000 seconds"),
        ({"retention_bytes": -1}, "retention_bytes is a whole number"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        encode_stream_settings(settings)
