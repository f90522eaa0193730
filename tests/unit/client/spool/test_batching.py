"""Batches: which commands records become, in which order, and what has expired on its way."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.client.spool import records as batching
from fjord.client.spool.records import ROWS_MAX, Gathering, of_command
from fjord.columns import Strings, repeat
from fjord.commands import Advance, Append, Command, Delete, Push, Refusal, Set, codec
from tests.unit.client.spool.spool_samples import NOW, appended, deleted, pushed, set_to


def commands_of(*records: bytes, now: int = NOW) -> list[Command]:
    batch = Gathering(now)
    assert batch.add_all(records) == len(records)
    return batch.commands()


def keys_of(command: Command) -> list[bytes]:
    assert isinstance(command, Push | Append | Set | Delete)
    return list(command.keys)


def dates_of(command: Command) -> list[int]:
    assert isinstance(command, Set | Delete)
    if command.timestamps_us is not None:
        return list(command.timestamps_us)
    assert isinstance(command, Delete)
    return [command.timestamp_us] * len(command.keys)


def through_the_wire(command: Command) -> Command:
    row, flags, timestamp_us, body = codec.encode(command)
    found = codec.decode(row, flags, timestamp_us, b"".join(body))
    assert not isinstance(found, Refusal)
    return found


def push_many(keys: Sequence[bytes], expires: Sequence[int]) -> bytes:
    count = len(keys)
    command = Push(
        table="t",
        keys=Strings.of(keys),
        domains=Strings.of([b"d%d" % n for n in range(count)]),
        types=bytes(range(count)),
        values=Strings.of([b"v%d" % n for n in range(count)]),
        priorities=bytes(range(10, 10 + count)),
        process_at_us=array("Q", [NOW - n for n in range(count)]),
        expires_at_us=array("Q", expires),
        timestamps_us=repeat(NOW, count),
    )
    return of_command(command, NOW)


def append_many(count: int, table: str = "t", size: int = 1) -> bytes:
    command = Append(
        table=table,
        types=b"\x01" * count,
        keys=Strings.of([b""] * count),
        values=Strings.of([b"x" * size] * count),
        timestamps_us=repeat(NOW, count),
    )
    return of_command(command, NOW)


def test_deletions_become_one_command_with_their_dates() -> None:
    (command,) = commands_of(
        deleted(b"a", stamp=NOW - 5), deleted(b"b", stamp=NOW - 4), deleted(b"a", stamp=NOW - 6)
    )
    assert isinstance(command, Delete)
    assert (list(command.keys), dates_of(command)) == ([b"a", b"b"], [NOW - 5, NOW - 4])
    assert list(batching.stamps_of(command)) == [NOW - 5, NOW - 4]


# -- rows -----------------------------------------------------------------------------------------


def test_values_that_expire_together_are_one_command() -> None:
    found = commands_of(
        set_to(b"a", b"1"),
        set_to(b"b", b"2", ttl=7, expires=NOW + 9),
        set_to(b"c", b"3", expires=NOW + 9),
        set_to(b"d", b"4", ttl=7, expires=NOW + 9),
        set_to(b"a", b"5", ttl=7, expires=NOW + 9),
    )
    assert [
        (
            command.ttl_us,
            command.expires_at_us,
            dict(zip(command.keys, command.values, strict=True)),
        )
        for command in found
        if isinstance(command, Set)
    ] == [(7, NOW + 9, {b"a": b"5", b"b": b"2", b"d": b"4"}), (0, NOW + 9, {b"c": b"3"})]


WRITES = st.tuples(st.booleans(), st.sampled_from([b"a", b"b"]), st.integers(1, 6))
Entry = tuple[int, bytes, bool]  # date, value (empty = none), whether it is the one of before


def write(entries: dict[bytes, Entry], key: bytes, stamp: int, value: bytes) -> None:
    """Does what the daemon does with a value, or with a deletion if that is empty."""
    date, _, is_old = entries[key]
    if date <= stamp:
        entries[key] = (stamp, value, is_old and bool(value))


@given(st.lists(WRITES, min_size=1, max_size=12), st.integers(0, 6))
def test_a_batch_comes_to_the_same_as_its_records_one_by_one(
    writes: list[tuple[bool, bytes, int]], before: int
) -> None:
    expected: dict[bytes, Entry] = dict.fromkeys((b"a", b"b"), (before, b"before", True))
    found, records = dict(expected), []
    for number, (is_set, key, stamp) in enumerate(writes):
        value = b"%d" % number if is_set else b""
        records.append(set_to(key, value, stamp=stamp) if is_set else deleted(key, stamp=stamp))
        write(expected, key, stamp, value)
    for command in map(through_the_wire, commands_of(*records)):
        assert isinstance(command, Set | Delete)
        rows = command.values if isinstance(command, Set) else [b""] * len(command.keys)
        for key, value, stamp in zip(command.keys, rows, dates_of(command), strict=True):
            write(found, key, stamp, value)
    assert found == expected


# -- records of many rows -------------------------------------------------------------------------


def test_what_is_not_known_ends_a_batch() -> None:
    other = of_command(Advance(writer="w", expected=-1, batch=1), NOW)
    broken = of_command(Delete(table="t", keys=Strings.of([b"k"]), timestamp_us=NOW), NOW)[:-9]
    for strange in (b"\x09" + appended(b"")[1:], b"\0" * 40, b"", b"\x05short", other, broken):
        assert Gathering(NOW).add_all([appended(b"a"), strange, appended(b"b")]) == 1
        batch = Gathering(NOW)
        assert batch.add_all([strange, appended(b"b")]) == 0
        assert batch.commands() == []


# -- limits ---------------------------------------------------------------------------------------


def test_records_of_many_rows_count_as_their_rows() -> None:
    some = append_many(ROWS_MAX // 2 - 1)
    assert Gathering(NOW).add_all([some, some, appended(b"1"), appended(b"2")]) == 4
    assert Gathering(NOW).add_all([some, some, some]) == 2
    larger = append_many(ROWS_MAX + 1)
    assert Gathering(NOW).add_all([larger, larger]) == 1
    assert Gathering(NOW).add_all([appended(b"1"), larger]) == 1


def test_every_batch_fits_into_a_message() -> None:
    # Values of one expiry each are one command each: the most that a batch can be made of.
    records = [
        deleted(b"k", table=b"u") if n % 3 == 0 else set_to(b"%d" % n, b"v", expires=NOW + n + 1)
        for n in range(ROWS_MAX + 10)
    ]
    records = [records[1]] * 5 + records
    tables = [set_to(b"k", b"v", table=b"%d" % n) for n in range(ROWS_MAX)]
    for some, fewest in ((records, ROWS_MAX), (tables, ROWS_MAX // 2 - 1)):
        batch = Gathering(NOW)
        assert batch.add_all(some) >= fewest
        assert 1 + len(batch.commands()) <= limits.BATCH_COMMANDS_MAX  # one says how far it is
    only = [set_to(b"%d" % n, b"v", expires=NOW + n + 1) for n in range(ROWS_MAX)]
    batch = Gathering(NOW)
    added = batch.add_all(only)
    assert ROWS_MAX - 5 < added < ROWS_MAX
    assert len(batch.commands()) == added


def test_every_row_keeps_its_date_on_its_way() -> None:
    # The largest date wins: with that of another row, a newer value would lose to an older one.
    records = [
        pushed(b"a", table=b"j", stamp=NOW - 5), set_to(b"c", b"", table=b"k", stamp=NOW - 3),
        pushed(b"b", table=b"j", stamp=NOW - 4), set_to(b"d", b"", table=b"k", stamp=NOW - 2),
        appended(b"", b"e", table=b"s", stamp=NOW - 1), appended(b"", b"f", table=b"s", stamp=NOW),
    ]  # fmt: skip
    found = {
        key: date_us
        for command in map(through_the_wire, commands_of(*records))
        if isinstance(command, Push | Append | Set)
        for key, date_us in zip(command.keys, command.timestamps_us or (), strict=True)
    }
    assert found == {key: NOW - 5 + n for n, key in enumerate((b"a", b"b", b"c", b"d", b"e", b"f"))}


# -- what has expired -----------------------------------------------------------------------------


def test_a_job_that_has_expired_is_left_out() -> None:
    records = [
        pushed(b"a", expires=NOW), pushed(b"b"), pushed(b"c", expires=NOW + 1),
        pushed(b"d", due=NOW + 5, expires=NOW + 5),  # it would expire when it is due
        pushed(b"e", due=NOW + 5, expires=NOW + 6),
    ]  # fmt: skip
    (command,) = commands_of(*records)
    assert keys_of(command) == [b"b", b"c", b"e"]
    (earlier,) = commands_of(*records, now=NOW - 1)
    assert keys_of(earlier) == [b"a", b"b", b"c", b"e"]
    assert commands_of(records[0]) == []


def test_of_many_jobs_those_that_have_expired_are_left_out() -> None:
    (command,) = commands_of(push_many([b"a", b"b", b"c"], [NOW + 1, NOW - 1, 0]))
    assert isinstance(command, Push)
    assert list(command.keys) == [b"a", b"c"]
    assert list(command.domains) == [b"d0", b"d2"]
    assert list(command.values) == [b"v0", b"v2"]
    assert (command.types, command.priorities) == (b"\x00\x02", b"\x0a\x0c")
    assert list(command.process_at_us) == [NOW, NOW - 2]
    assert list(command.expires_at_us) == [NOW + 1, 0]
    assert list(command.timestamps_us) == [NOW, NOW]
    assert commands_of(push_many([b"a"], [NOW - 1])) == []


@pytest.mark.parametrize(("expires", "kind"), [(0, Set), (NOW + 1, Set), (NOW, Delete)])
def test_a_value_that_has_expired_is_the_deletion_of_its_key(expires: int, kind: type) -> None:
    command = Set(
        table="t",
        keys=Strings.of([b"a", b"b"]),
        types=b"\x01\x01",
        values=Strings.of([b"1", b"2"]),
        timestamps_us=repeat(NOW - 9, 2),
        expires_at_us=expires,
        ttl_us=9,
    )
    (found,) = commands_of(of_command(command, NOW - 9))
    assert type(found) is kind
    assert keys_of(found) == [b"a", b"b"]
    if isinstance(found, Delete):
        assert found.timestamp_us == NOW - 9  # of the write: what was set since then stays


def test_a_row_that_has_expired_is_a_deletion_with_its_own_date() -> None:
    gone, *kept = commands_of(
        set_to(b"a", b"1", ttl=2, expires=NOW, stamp=NOW - 2),
        set_to(b"b", b"2", ttl=3, expires=NOW + 1, stamp=NOW - 3),
        deleted(b"c", stamp=NOW - 4),
        set_to(b"d", b"3", ttl=1, expires=NOW - 5, stamp=NOW - 6),
        set_to(b"d", b"4", stamp=NOW - 5),
    )
    assert isinstance(gone, Delete)
    assert dict(zip(gone.keys, dates_of(gone), strict=True)) == {b"a": NOW - 2, b"c": NOW - 4}
    assert [keys_of(command) for command in kept] == [[b"b"], [b"d"]]
