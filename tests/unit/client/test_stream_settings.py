"""Settings of a stream, as users give them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

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
