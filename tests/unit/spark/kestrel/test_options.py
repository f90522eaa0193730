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
    assert (found.mode, found.fails_on_damage, found.alive_seconds) == ("state", True, None)
    assert source.ddl(found) == (
        "`queue` string, `position` bigint, `xid` int, `added` timestamp, `dated` timestamp, "
        "`expires` timestamp, `data` binary"
    )


def test_all_are_read_whatever_their_case() -> None:
    given = {"PATH": "/queues/../queues", "Mode": "STATE", "queue": "cars", "batchrows": "7"}
    given |= {"columns": "data, queue", "damaged": "skip", "alivefor": "0", "crc": "4294967295"}
    assert len(given) == len(NAMES)
    found = source.parse(given)
    limits = {"batch_rows": 7, "fails_on_damage": False, "alive_seconds": 0, "crc": 2**32 - 1}
    columns = ("data", "queue")
    assert found == KestrelOptions(directory="/queues", queue="cars", columns=columns, **limits)
    assert source.ddl(found) == "`data` binary, `queue` string"
    found = source.parse({"path": "/queues", "mode": "ops"})
    assert source.ddl(found).count("`") == 2 * len(COLUMNS["ops"])
    assert source.parse({"path": "/q", "mode": "ops", "columns": "op"}).columns == ("op",)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "give the option path"),
        ({"path": ""}, "give the option path"),
        ({"path": "/q", "queues": "cars"}, "unknown option queues; the options are path, mode"),
        ({"path": "/q", "mode": "items"}, "the option mode is state or ops, not 'items'"),
        ({"path": "/q", "damaged": "no"}, "the option damaged is fail or skip, not 'no'"),
        ({"path": "/q", "columns": "op"}, "the option columns: 'op' does not exist"),
        ({"path": "/q", "columns": "xid,xid"}, "the option columns: 'xid' is there twice"),
        ({"path": "/q", "batchRows": "0"}, "the option batchRows is a number from 1 to 1000000"),
        ({"path": "/q", "batchRows": "x"}, "the option batchRows is a number"),
        ({"path": "/q", "aliveFor": "-1"}, "the option aliveFor is a number from 0"),
        ({"path": "/q", "queue": "a", "crc": "4294967296"}, "the option crc is a number from 0"),
        ({"path": "/q", "crc": "1"}, "the option crc is that of one queue"),
        ({"path": "/q", "mode": "ops", "aliveFor": "1"}, "aliveFor is of no use with mode=ops"),
        ({"path": "/q", "mode": "ops", "queue": "a", "crc": "1"}, "crc is of no use with mode=ops"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(FjordError, match=re.escape(told)):
        source.parse(given)
