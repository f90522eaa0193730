"""Answers: plain ones are made column by column, and say the same as all others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.commands import Entries, Refusal
from fjord.errors import Code, RefusedError
from fjord.tables.kv import read
from fjord.tables.kv.lookup import Lookup
from fjord.tables.state import Tree
from tests.unit.tables.world import World, code_of, entry_of

PREFIX = b"\0\0\0\1"


@pytest.fixture
def world() -> World:
    made = World()
    made.set({b"plain": 1, b"void": None, b"empty": b"", b"text": "text"})
    made.set({b"twice": 1}, at=0)
    made.set({b"twice": 2}, at=1)
    made.set({b"moved": 1})
    made.delete(b"deleted", at=3)
    made.pack(len(made.ops()))
    made.set({b"plain": 5, b"void": None, b"empty": b"", b"text": "text"}, at=4)
    made.delete(b"deleted later", at=3)
    return made


def both(world: World, keys: list[bytes]) -> tuple[object, object]:
    given_keys = [PREFIX + key for key in keys]
    stored = world.get_many(Tree.KV, given_keys)
    lookup = Lookup(world, given_keys, stored, world.now_us, all_marks=True)
    rows = [row if lookup.is_live(row) else None for row in range(len(keys))]
    return (
        answer(lambda: read.plain_entries(stored, world)),
        answer(lambda: read.entries(lookup, rows, world, with_data=True)),
    )


def answer(made: Callable[[], object]) -> object:
    try:
        return made()
    except RefusedError as error:
        return Refusal.of(error)


known = st.sampled_from(
    [b"plain", b"void", b"empty", b"text", b"twice", b"moved", b"deleted", b"deleted later", b"-"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(known, min_size=1, max_size=8))
def test_plain_answers_say_the_same_as_others(keys: list[bytes]) -> None:
    made = World()
    made.set({b"moved": 1, b"deleted": 1})
    made.delete(b"deleted", at=3)
    made.pack(len(made.ops()))
    made.set({b"plain": 1, b"void": None, b"empty": b"", b"text": "text", b"twice": 1})
    made.set({b"twice": 2}, at=1)
    made.delete(b"deleted later", at=3)
    plain, other = both(made, keys)
    assert isinstance(plain, Entries)
    assert isinstance(other, Entries)
    for row in range(len(keys)):
        assert entry_of(plain, row) == entry_of(other, row)


def test_what_is_special_is_not_answered_as_plain(world: World) -> None:
    world.set({b"expires": 1}, expires=10)
    world.set({b"target": 1}, also=[b"alias", b"a" * 32])
    world.delete(b"target", at=1)
    for key in (b"expires", b"alias", b"a" * 32):  # the last looks as long as a full entry
        assert both(world, [key])[0] is None
        assert both(world, [b"plain", key, b"twice"])[0] is None


def test_answers_are_bounded(world: World) -> None:
    world.set({b"large": bytes(limits.VALUE_BYTES_MAX)})
    count = limits.ANSWER_BYTES_MAX // limits.VALUE_BYTES_MAX
    for plain in both(world, [b"large"] * (count + 1)):
        assert code_of(plain) is Code.TOO_LARGE
