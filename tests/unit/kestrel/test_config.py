"""The configuration: its names, what is built in, who inherits, and the status."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fjord import disk as disks
from fjord.errors import UsageError
from fjord.kestrel import config
from fjord.kestrel.codec import Dialect
from fjord.kestrel.config import QueueConfig, ServerConfig, Standing, Status
from fjord.testing import SimClock
from tests.unit.kestrel.directory import made_disk, put


def test_what_is_built_in_is_what_kestrel_has() -> None:
    mib = 1024 * 1024
    numbers: dict[str, Any] = {
        **dict.fromkeys(("max_items", "max_expire_sweep"), 2**31 - 1),
        **dict.fromkeys(("max_size", "max_item_size"), 2**63 - 1),
        "default_journal_size": 16 * mib,
        "max_memory_size": 128 * mib,
        "max_journal_size": 1024 * mib,
        "min_journal_compact_delay_ms": 60_000,
    }
    assert QueueConfig() == QueueConfig(**numbers, keep_journal=True, dialect=Dialect.V24)
    fields = dataclasses.asdict(QueueConfig())
    assert len([one for one in fields.values() if not one]) == len(fields) - 10
    settings, rest = config.read_server({"default": {}, "what": 1})
    assert rest == {"default": {}, "what": 1}
    assert dataclasses.astuple(settings) == (1, None, None, None, Status.UP, 0, None, None)


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({"syncJournal": 100, "enableTrace": True}, {"sync_journal_ms": 100, "enable_trace": True}),
        ({"syncJournal": True}, {"sync_journal_ms": 0}),
        ({"syncJournal": "never"}, {"sync_journal_ms": None}),
        ({"expireToQueue": ""}, {"expire_to_queue": None}),
    ],
)
def test_values_are_read(given: dict[str, object], changes: dict[str, object]) -> None:
    assert config.read({"default": given}).default == changes


def test_a_child_inherits_from_its_parent_and_that_one_from_the_default() -> None:
    queues = {
        "cars": {"maxSize": 2, "maxItemSize": 2, "fanoutOnly": True},
        "cars+seo": {"maxItemSize": 3},
    }
    default = {"maxItems": 1, "maxSize": 1, "maxItemSize": 1}
    made = config.read({"default": default, "queues": queues})
    child = made.of("cars+seo")
    assert (child.max_items, child.max_size, child.max_item_size) == (1, 2, 3)
    assert (made.of("cars").fanout_only, child.fanout_only) == (True, False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queue": {}}, "queue is no part"),
        ({"default": {"maxItem": 1}}, "^default: a queue has no maxItem"),
        ({"default": {"maxItems": True}}, "maxItems is a number"),
        ({"queues": {"cars": {"maxItems": -1}}}, "^queue cars: maxItems is a number"),
        ({"queues": {"cars": 1}}, "^queue cars has names and values"),
        ({"default": {"syncJournal": "now"}}, "^default: syncJournal is always, never, or a"),
        ({"default": {"keepJournal": 1}}, "true or false"),
        ({"default": {"expireToQueue": "a/b"}}, "expireToQueue"),
        ({"default": {"expireToQueue": 3}}, "not a valid queue name: 3; expected text"),
        ({"default": {"dialect": "old"}}, "kestrel-doc, kestrel-2.4"),
        ({"default": {"max_items": 1}}, "no max_items"),  # of Kestrel 1
        ({"default": 5}, "names and values"),
        ({"queues": {"a/b": {}}}, "a/b"),
        ({"aliases": {"a.b": ["c"]}}, "a.b"),
        ({"aliases": {"a": "c"}}, "a list"),
    ],
)
def test_what_a_queue_cannot_have_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config.read(given)


# -- of a server ----------------------------------------------------------------------------------


def test_names_of_a_server_are_read() -> None:
    given: dict[str, Any] = {"maxOpenTransactions": 100, "clientTimeout": None}
    given |= {"expirationTimerFrequency": 1000}
    given |= {"statusFile": "/run/status", "defaultStatus": "ReadOnly"}
    given |= {"statusChangeGracePeriod": 0}
    given |= {"connectionLimitRefuseWrites": 0, "connectionLimitRefuseReads": 7}
    found = dataclasses.astuple(config.read_server(given)[0])
    assert found == (100, None, 1000, "/run/status", Status.READONLY, 0, 0, 7)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *(({"maxOpenTransactions": one}, "from 1 to") for one in (0, True)),
        ({"statusChangeGracePeriod": -1}, "from 0 to"),
        *(({"statusFile": one}, "whole path") for one in ("status", "/run/", 3)),
        *(({"defaultStatus": one}, "up, readonly, quiescent") for one in ("down", 1)),
    ],
)
def test_what_a_server_cannot_have_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config.read_server(given)


def test_every_field_has_a_name_and_every_name_is_on_its_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "kestrel.md").read_text()
    known = [*config._NAMES, *config._SERVER_NAMES]
    assert [name for name in known if f"`{name}`" not in page] == []
    for settings, names in ((QueueConfig, config._NAMES), (ServerConfig, config._SERVER_NAMES)):
        fields = {one.name for one in dataclasses.fields(settings)}
        assert {field for field, _ in names.values()} == fields


# -- the status -----------------------------------------------------------------------------------


def test_a_stricter_status_is_told_at_once_and_enforced_after_the_grace_period() -> None:
    clock = SimClock()
    standing = Standing(clock, grace_us=5_000_000)
    for change, seconds, told, enforced in (
        (Status.QUIESCENT, 4, Status.QUIESCENT, Status.UP),
        (Status.READONLY, 4, Status.READONLY, Status.UP),  # it replaces the one before
        (None, 1, Status.READONLY, Status.READONLY),
        (Status.UP, 0, Status.UP, Status.UP),
        (Status.READONLY, 1, Status.READONLY, Status.UP),
        (Status.UP, 10, Status.UP, Status.UP),
    ):
        if change is not None:
            standing.change(change)
        clock.advance(seconds)
        assert (standing.told, standing.enforced) == (told, enforced)
    standing = Standing(clock)
    for one in (Status.QUIESCENT, Status.READONLY, Status.UP, Status.UP):
        standing.change(one)
        assert (standing.told, standing.enforced) == (one, one)


@pytest.mark.parametrize(
    ("one", "word"),
    [(Status.UP, "Up"), (Status.READONLY, "ReadOnly"), (Status.QUIESCENT, "Quiescent")],
)
def test_a_file_keeps_a_status_as_kestrel_writes_it(one: Status, word: str) -> None:
    disk, path = made_disk(), "/kestrel/status"
    assert config.read_status(disk, path) == (None, "")
    config.write_status(disk, path, one)
    disk.power_cut()
    assert config.read_status(disk, path) == (one, word)
    disks.replace_whole(disk, path, b" READONLY \n")
    assert config.read_status(disk, path)[0] is Status.READONLY
    put(disk, "status", b"Down\n" + bytes(1000))
    found, shown = config.read_status(disk, path)
    assert (found, shown[:4]) == (None, "Down")
