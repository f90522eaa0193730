"""KestrelOptions of the source `kestrel`: checked as a whole, and refused by name."""

from __future__ import annotations

import re

import pytest

from fjord.errors import FjordError
from fjord.spark.kestrel import source
from fjord.spark.kestrel.source import COLUMNS, NAMES, KestrelOptions


def test_a_path_is_enough() -> None:
    found = source.parse({"path": "/queues"})
    assert found == KestrelOptions(directory="/queues")
    assert (found.mode, found.fails_on_damage) == ("state", True)
    assert source.ddl(found) == (
        "`queue` string, `position` bigint, `xid` int, `added` timestamp, "
        "`expires` timestamp, `data` binary"
    )


def test_all_are_read_whatever_their_case() -> None:
    given = {
        "PATH": "/queues/../queues",
        "Mode": "STATE",
        "queue": "cars",
        "damaged": "skip",
    }
    assert len(given) == len(NAMES)
    found = source.parse(given)
    assert found == KestrelOptions(
        directory="/queues",
        queue="cars",
        fails_on_damage=False,
    )


def test_ops_have_columns_of_their_own() -> None:
    found = source.parse({"path": "/queues", "mode": "ops"})
    assert source.ddl(found).count("`") == 2 * len(COLUMNS["ops"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "give the option path"),
        ({"path": ""}, "give the option path"),
        ({"path": "/q", "queues": "cars"}, "unknown option queues; the options are path, mode"),
        ({"path": "/q", "mode": "items"}, "the option mode is state or ops, not 'items'"),
        ({"path": "/q", "damaged": "no"}, "the option damaged is fail or skip, not 'no'"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(FjordError, match=re.escape(told)):
        source.parse(given)
