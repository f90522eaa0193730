"""Spans: what is asked for until a batch is whole, and what of it counts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fjord.client.history import SpanInfo, span_of
from fjord.commands import Done, Span, Spanned
from fjord.errors import RemoteProtocolError
from tests.unit.client.test_database_streams import blocking

EPOCH = b"0123456789abcdef"
MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
MOMENT_US = int(MOMENT.timestamp()) * 1_000_000


def reply(seq: int, rows: int, examined: int, *, more: bool = False, **options: Any) -> Spanned:
    given: dict[str, Any] = {
        "size": 10 * rows,
        "wall_us": MOMENT_US if rows else 0,
        "durable_seq": 90,
        "first_seq": 2,
        "epoch": EPOCH,
    }
    return Spanned(seq=seq, rows=rows, examined=examined, is_more=more, **given | options)


def info(seq: int, rows: int, **options: Any) -> SpanInfo:
    found = SpanInfo(seq, rows, 10 * rows, MOMENT if rows else None, 90, 2, EPOCH.hex())
    return found._replace(**options)


def test_a_batch_is_described_as_it_is_found() -> None:
    db, asked = blocking(reply(7, 3, 9))
    found = db.span("t", 5, until=8, rows_max=4, bytes_max=100, before=MOMENT, epoch=EPOCH.hex())
    assert found == info(7, 3)
    wanted = Span(
        table="t", after=5, until=8, rows_max=4, bytes_max=100, before_us=MOMENT_US, epoch=EPOCH
    )
    assert asked == [wanted]


def test_the_rest_is_asked_for_with_what_there_is_room_for() -> None:
    db, asked = blocking(
        reply(0, 0, 10, more=True, epoch=bytes(16)),
        reply(15, 3, 20, more=True),
        reply(20, 0, 30, more=True),
        reply(35, 2, 40, durable_seq=95),
    )
    found = db.span("t", 0, rows_max=5, bytes_max=1000, epoch=EPOCH.hex())
    assert found == info(35, 5, durable_seq=95)
    assert asked == [
        Span(table="t", after=0, rows_max=5, bytes_max=1000, epoch=EPOCH),
        Span(table="t", after=10, rows_max=5, bytes_max=1000),
        Span(table="t", after=20, rows_max=2, bytes_max=970),
        Span(table="t", after=30, rows_max=2, bytes_max=970),
    ]


@pytest.mark.parametrize("bound", [{"rows_max": 5}, {"bytes_max": 50}])
def test_a_commit_that_comes_in_any_case_is_left_out_if_there_is_no_room(bound: Any) -> None:
    db, asked = blocking(reply(15, 3, 20, more=True), reply(25, 3, 25))
    assert db.span("t", **bound) == info(15, 3)
    assert len(asked) == 2
    db, asked = blocking(reply(15, 5, 20, more=True))
    assert db.span("t", **bound) == info(15, 5)
    assert len(asked) == 1


def test_a_server_that_does_not_go_on_is_found_out() -> None:
    db, _ = blocking(reply(5, 0, 5, more=True))
    with pytest.raises(RemoteProtocolError, match="same part again"):
        db.span("t", 5)
    db, _ = blocking(Done(master=EPOCH, seq=1))
    with pytest.raises(RemoteProtocolError, match="Done, not Spanned"):
        db.span("t")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"after": -1}, ValueError),
        ({"after": "1"}, TypeError),
        ({"until": 2**63}, ValueError),
        ({"rows_max": -1}, ValueError),
        ({"bytes_max": 1.5}, TypeError),
        ({"before": datetime(2026, 1, 2)}, ValueError),  # noqa: DTZ001 - that is what is wrong
        ({"epoch": "no digits"}, ValueError),
        ({"epoch": "00"}, ValueError),
        ({"epoch": EPOCH}, TypeError),
        ({"rows": 5}, TypeError),
    ],
)
def test_what_cannot_be_meant_is_said_at_once(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        span_of("t", **{"after": 0, **options})
