"""Small writes of neighbours, decided as one: the same state as one after the other."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fjord.columns import Strings
from fjord.commands import Done, Set
from fjord.tables import kv_write
from fjord.values import Value
from tests.unit.tables.world import NOW_US, World, set_command

Items = list[tuple[bytes, Value]]


def test_neighbours_of_one_table_and_expiry_share_a_merge_key() -> None:
    first = kv_write.merge_key(set_command([(b"a", 1)]))
    assert first is not None
    assert kv_write.merge_key(set_command([(b"b", 2)], at=5)) == first
    assert kv_write.merge_key(set_command([(b"a", 1)], table="u")) != first
    assert kv_write.merge_key(set_command([(b"a", 1)], expires_at_us=NOW_US + 1)) != first
    assert kv_write.merge_key(replace(set_command([(b"a", 1)]), ttl_us=5)) != first


def test_what_may_be_refused_or_is_not_durable_stands_alone() -> None:
    assert kv_write.merge_key(set_command([(b"a", 1)], overwrite=False)) is None
    assert kv_write.merge_key(set_command([(b"a", 1)], persist=False)) is None
    for also in (Strings.of([]), Strings.of([b"b"])):
        assert kv_write.merge_key(replace(set_command([(b"a", 1)]), also=also)) is None


def test_what_is_refused_alone_is_not_hidden_among_neighbours() -> None:
    """A batch of nothing adds nothing to a run, and would be answered as if it were good."""
    assert kv_write.merge_key(set_command([])) is None


def test_large_batches_stand_alone() -> None:
    items: Items = [(b"%d" % row, row) for row in range(1000)]
    assert kv_write.merge_key(set_command(items)) is None
    assert kv_write.merge_key(set_command([(b"a", bytes(100_000))])) is None


def test_a_key_that_two_of_them_write_keeps_them_apart() -> None:
    assert kv_write.merge([set_command([(b"a", 1)]), set_command([(b"a", 2)])]) is None


def test_merged_commands_keep_rows_types_and_timestamps() -> None:
    merged = kv_write.merge(
        [
            replace(set_command([(b"a", 1)], at=3, expires_at_us=NOW_US + 9), ttl_us=5),
            replace(
                set_command([(b"b", "x"), (b"c", b"y")], at=1, expires_at_us=NOW_US + 9), ttl_us=5
            ),
        ]
    )
    assert merged is not None
    assert merged.table == "t"
    assert merged.keys.rows() == [b"a", b"b", b"c"]
    assert merged.types == bytes([3, 2, 1])
    assert merged.values.rows() == [(1).to_bytes(8, "little"), b"x", b"y"]
    assert list(merged.timestamps_us) == [NOW_US + 3, NOW_US + 1, NOW_US + 1]
    assert (merged.expires_at_us, merged.ttl_us, merged.also) == (NOW_US + 9, 5, None)
    assert (merged.overwrite, merged.persist) == (True, True)


# Each command writes keys that no other one of the run writes.
runs = st.lists(
    st.tuples(st.lists(st.integers(0, 99), min_size=1, max_size=3), st.integers(-5, 5)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(before=runs, run=runs)
def test_a_merged_run_comes_to_the_same_values_as_one_after_the_other(
    before: list[tuple[list[int], int]], run: list[tuple[list[int], int]]
) -> None:
    commands = _commands(run)
    merged = kv_write.merge(commands)
    assert merged is not None
    together, apart = World(), World()
    for world in (together, apart):
        for command in _commands(before):
            world.run(command)
    last = [apart.run(command) for command in commands][-1]
    reply = together.run(merged)
    assert reply == last
    assert isinstance(reply, Done)
    keys = [key for command in commands for key in command.keys]
    assert together.get(*keys) == apart.get(*keys)
    assert together.trees()[1] == apart.trees()[1]


def _commands(run: list[tuple[list[int], int]]) -> list[Set]:
    made: list[Set] = []
    for number, (values, at) in enumerate(run):
        items: Items = [(b"%d-%d" % (number, row), value) for row, value in enumerate(values)]
        made.append(set_command(items, at=at))
    return made
