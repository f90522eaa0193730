"""The configuration of queues: names of both Kestrels, what is built in, and who inherits."""

from __future__ import annotations

import dataclasses

import pytest

from fjord.errors import UsageError
from fjord.kestrel import config
from fjord.kestrel.codec import Dialect
from fjord.kestrel.config import QueueConfig


def test_what_is_built_in_is_what_kestrel_has() -> None:
    built_in = dataclasses.asdict(QueueConfig())
    assert built_in == {
        "max_items": 2**31 - 1,
        "max_size": 2**63 - 1,
        "max_item_size": 2**63 - 1,
        "max_age_ms": None,
        "default_journal_size": 16 * 1024 * 1024,
        "max_memory_size": 128 * 1024 * 1024,
        "max_journal_size": 1024 * 1024 * 1024,
        "min_journal_compact_delay_ms": 60_000,
        "discard_old_when_full": False,
        "keep_journal": True,
        "sync_journal_ms": None,
        "expire_to_queue": None,
        "max_expire_sweep": 2**31 - 1,
        "fanout_only": False,
        "max_queue_age_ms": None,
        "enable_trace": False,
        "disable_aggressive_rewrites": False,
        "open_transaction_timeout_ms": None,
        "white_list_client_id_for_dequeue": None,
        "white_list_client_id_for_enqueue": None,
        "dialect": Dialect.V24,
    }


def test_every_field_has_a_name_of_kestrel() -> None:
    fields = {one.name for one in dataclasses.fields(QueueConfig)}
    assert {field for field, _ in config._NAMES.values()} - {config._OVERFLOW} == fields


def test_names_of_kestrel_2_are_read() -> None:
    made = config.read(
        {
            "default": {"maxItems": 5, "maxAge": 1000, "syncJournal": "always"},
            "queues": {"cars": {"keepJournal": False, "expireToQueue": "old", "maxAge": None}},
        }
    )
    cars = made.of("cars")
    assert (cars.max_items, cars.max_age_ms, cars.sync_journal_ms) == (5, None, 0)
    assert (cars.keep_journal, cars.expire_to_queue) == (False, "old")
    assert made.of("other").max_age_ms == 1000


def test_names_of_kestrel_1_are_read_and_mean_what_they_meant() -> None:
    made = config.changes(
        {
            "max_items": 5,
            "max_age": 0,
            "max_journal_size": 16_277_216,
            "max_journal_overflow": 10,
            "journal": "off",
            "sync_journal": True,
            "move_expired_to": "old",
            "discard_old_when_full": "on",
        }
    )
    assert made == {
        "max_items": 5,
        "max_age_ms": None,
        "default_journal_size": 16_277_216,
        "max_journal_size": 162_772_160,
        "keep_journal": False,
        "sync_journal_ms": 0,
        "expire_to_queue": "old",
        "discard_old_when_full": True,
    }
    assert config.changes({"max_journal_overflow": 2, "max_journal_size_absolute": 7}) == {
        "max_journal_size": 7
    }


def test_a_child_inherits_from_its_parent_and_that_one_from_the_default() -> None:
    made = config.read(
        {
            "default": {"maxItems": 1, "maxSize": 1, "maxItemSize": 1},
            "queues": {
                "cars": {"maxSize": 2, "maxItemSize": 2, "fanoutOnly": True},
                "cars+seo": {"maxItemSize": 3},
            },
        }
    )
    child = made.of("cars+seo")
    assert (child.max_items, child.max_size, child.max_item_size) == (1, 2, 3)
    assert made.of("cars").fanout_only
    assert not child.fanout_only


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queue": {}}, "queue is no part"),
        ({"default": {"maxItem": 1}}, "no maxItem"),
        ({"default": {"maxItems": -1}}, "maxItems is a number"),
        ({"default": {"maxItems": True}}, "maxItems is a number"),
        ({"queues": {"cars": {"maxItems": -1}}}, "^queue cars: maxItems is a number"),
        ({"queues": {"cars": 1}}, "^queue cars has names and values"),
        ({"default": {"syncJournal": "now"}}, "^default: syncJournal is always, never, or a"),
        ({"default": {"keepJournal": 1}}, "true or false"),
        ({"default": {"expireToQueue": "a/b"}}, "expireToQueue"),
        ({"default": {"expireToQueue": 3}}, "no name"),
        ({"default": {"dialect": "old"}}, "kestrel-doc, kestrel-2.4"),
        ({"default": {"whiteListClientIdForDequeue": "me"}}, "a list"),
        ({"default": 5}, "names and values"),
        ({"queues": {"a/b": {}}}, "a/b"),
        ({"aliases": {"a.b": ["c"]}}, "a.b"),
        ({"aliases": {"a": "c"}}, "a list"),
    ],
)
def test_what_a_queue_cannot_have_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config.read(given)


def test_switches_and_syncs() -> None:
    made = config.changes({"syncJournal": 100, "enableTrace": True})
    assert made == {"sync_journal_ms": 100, "enable_trace": True}
    assert config.changes({"syncJournal": "never"}) == {"sync_journal_ms": None}
    assert config.changes({"whiteListClientIdForDequeue": None, "expireToQueue": ""}) == {
        "white_list_client_id_for_dequeue": None,
        "expire_to_queue": None,
    }
    assert config.changes({"whiteListClientIdForEnqueue": ["a"]}) == {
        "white_list_client_id_for_enqueue": ("a",)
    }
