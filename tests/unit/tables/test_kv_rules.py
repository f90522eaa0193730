"""What can be wrong with a key/value command: one test a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fjord import commands, limits
from fjord.columns import Strings, repeat
from fjord.errors import Code
from tests.unit.tables.world import NOW_US, World, code_of, set_command

DAY_US = 86_400_000_000
GOOD = set_command([(b"k", b"v")])
TWO = Strings.of([b"k", b"l"])


def with_keys(keys: Strings) -> list[commands.Command]:
    count = len(keys)
    return [
        commands.Get(table="t", keys=keys),
        commands.Touch(table="t", keys=keys),
        commands.Lock(table="t", keys=keys),
        commands.Delete(table="t", keys=keys, timestamp_us=NOW_US),
        commands.Set(
            table="t",
            keys=keys,
            types=bytes([1]) * count,
            values=Strings.of([b""] * count),
            timestamps_us=repeat(NOW_US, count),
        ),
    ]


def codes(keys: Strings) -> set[Code | None]:
    """How each of the commands is answered that has these keys."""
    found = set()
    for command in with_keys(keys):
        world = World()
        decision = world.decide(command)
        found.add(code_of(decision.reply))
        assert not (found & set(Code) and decision.ops)
    return found


# -- keys -----------------------------------------------------------------------------------------


def test_a_batch_without_rows_is_refused() -> None:
    assert codes(Strings.of([])) == {Code.BAD_BATCH}


def test_a_batch_of_too_many_rows_is_refused() -> None:
    assert codes(Strings.of([b"k"] * (limits.BATCH_ROWS_MAX + 1))) == {Code.BAD_BATCH}


def test_the_largest_number_of_rows_is_taken() -> None:
    assert codes(Strings.of([b"%d" % row for row in range(limits.BATCH_ROWS_MAX)])) == {None}


@pytest.mark.parametrize("rows", [[b""], [b"a", b""], [b"", b"a", b"b"]])
def test_an_empty_key_is_refused_with_all_others(rows: list[bytes]) -> None:
    assert codes(Strings.of(rows)) == {Code.EMPTY_KEY}


@pytest.mark.parametrize("size", [limits.KV_KEY_BYTES_MAX + 1, 0xFFFF])
def test_a_key_that_is_too_long_is_refused(size: int) -> None:
    assert codes(Strings.of([b"a", b"k" * size])) == {Code.KEY_TOO_LONG}


def test_too_many_bytes_of_keys_are_refused() -> None:
    row = b"k" * limits.KV_KEY_BYTES_MAX
    rows = limits.BATCH_BYTES_MAX // len(row) + 1
    assert codes(Strings.of([row] * rows)) == {Code.TOO_LARGE}


# -- values ---------------------------------------------------------------------------------------


def code_of_set(command: commands.Set) -> Code | None:
    decision = World().decide(command)
    assert code_of(decision.reply) is None or not decision.ops
    return code_of(decision.reply)


@pytest.mark.parametrize(
    "change",
    [
        lambda: replace(GOOD, types=b"\1\1"),
        lambda: replace(GOOD, types=b""),
        lambda: replace(GOOD, values=Strings.of([])),
        lambda: replace(GOOD, values=Strings.of([b"a", b"b"])),
        lambda: replace(GOOD, timestamps_us=()),
        lambda: replace(GOOD, timestamps_us=(NOW_US, NOW_US)),
    ],
)
def test_columns_that_differ_in_number_are_refused(change: Callable[[], commands.Set]) -> None:
    assert code_of_set(change()) is Code.BAD_BATCH


def test_a_value_that_is_too_large_is_refused() -> None:
    largest = set_command([(b"k", bytes(limits.VALUE_BYTES_MAX))])
    assert code_of_set(largest) is None
    larger = set_command([(b"a", b""), (b"k", bytes(limits.VALUE_BYTES_MAX + 1))])
    assert code_of_set(larger) is Code.VALUE_TOO_LARGE


def test_a_batch_of_too_many_bytes_is_refused() -> None:
    value = bytes(limits.VALUE_BYTES_MAX)
    count = limits.BATCH_BYTES_MAX // len(value)
    items = [(b"%d" % row, value) for row in range(count)]
    assert code_of_set(set_command(items)) is Code.TOO_LARGE  # the keys are what is too much
    assert code_of_set(set_command(items[:-1])) is None


@pytest.mark.req("FJ-41")
@pytest.mark.parametrize(
    ("type_", "value", "code"),
    [
        (6, b"", Code.BAD_TYPE),
        (255, b"", Code.BAD_TYPE),  # the mark of a missing value and of a tombstone
        (0, b"data", Code.BAD_TYPE),
        (2, b"\xff", Code.BAD_VALUE),
        (3, b"1234", Code.BAD_VALUE),
        (4, b"", Code.BAD_VALUE),
        (5, b"\2", Code.BAD_VALUE),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_refused_with_all_others(
    type_: int, value: bytes, code: Code
) -> None:
    for types, values in (
        (bytes([type_]), [value]),
        (bytes([1, type_]), [b"good", value]),
        (bytes([type_, 1]), [value, b"good"]),
        (bytes([1, type_, 1]), [b"good", value, b"good"]),
    ):
        command = commands.Set(
            table="t",
            keys=Strings.of([b"%d" % row for row in range(len(types))]),
            types=types,
            values=Strings.of(values),
            timestamps_us=repeat(NOW_US, len(types)),
        )
        assert code_of_set(command) is code


# -- times ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp_us", "good"),
    [
        (1, False),
        (NOW_US // 1000, False),  # milliseconds
        (10**15, True),
        (NOW_US, True),
        (NOW_US + 60_000_000, True),
        (NOW_US + 60_000_001, False),
        (NOW_US + DAY_US, False),
        (0, False),
        (NOW_US * 1000, False),  # nanoseconds
        (2**63, False),
        (2**64 - 1, False),
        (-1, False),
    ],
)
def test_a_timestamp_is_in_microseconds_and_at_most_60_s_ahead(
    *, timestamp_us: int, good: bool
) -> None:
    expected = None if good else Code.BAD_TIMESTAMP
    assert code_of_set(replace(GOOD, timestamps_us=(timestamp_us,))) is expected
    delete = commands.Delete(table="t", keys=Strings.of([b"k"]), timestamp_us=timestamp_us)
    assert code_of(World().decide(delete).reply) is expected
    for dates in ([NOW_US, timestamp_us], [timestamp_us, NOW_US]):
        dated = commands.Delete(table="t", keys=TWO, timestamp_us=NOW_US, timestamps_us=dates)
        assert code_of(World().decide(dated).reply) is expected


def test_each_key_to_delete_has_a_date_or_none_has() -> None:
    for dates in ([], [NOW_US], [NOW_US] * 3):
        command = commands.Delete(table="t", keys=TWO, timestamp_us=NOW_US, timestamps_us=dates)
        assert code_of(World().decide(command).reply) is Code.BAD_BATCH


def test_a_refused_timestamp_tells_the_servers_time() -> None:
    reply = World().decide(replace(GOOD, timestamps_us=(0,))).reply
    assert str(NOW_US) in str(reply)


@pytest.mark.parametrize(
    ("expires_at_us", "good"),
    [
        (0, True),
        (NOW_US + 1, True),
        (NOW_US + 30 * DAY_US, True),
        (NOW_US + 30 * DAY_US + 1, False),
        (NOW_US, False),
        (NOW_US - 1, False),
        (1, False),
        (2**64 - 1, False),
        (-1, False),
    ],
)
def test_an_expiry_is_from_now_to_30_days_ahead(*, expires_at_us: int, good: bool) -> None:
    expected = None if good else Code.BAD_TIMEOUT
    assert code_of_set(replace(GOOD, expires_at_us=expires_at_us)) is expected


@pytest.mark.parametrize(
    ("ttl_us", "good"), [(0, True), (1, True), (30 * DAY_US, True), (30 * DAY_US + 1, False)]
)
def test_a_ttl_is_at_most_30_days(*, ttl_us: int, good: bool) -> None:
    expected = None if good else Code.BAD_TIMEOUT
    assert code_of_set(replace(GOOD, ttl_us=ttl_us)) is expected
    assert code_of_set(replace(GOOD, ttl_us=-1)) is Code.BAD_TIMEOUT


# -- LOCK and UNLOCK ------------------------------------------------------------------------------

ONE = (1).to_bytes(8, "little")


@pytest.fixture
def world() -> World:
    made = World()
    made.set({b"a": 1, b"b": 2})
    return made


def lock(world: World, *keys: bytes, client: int = 1) -> Code | None:
    return code_of(world.run(commands.Lock(table="t", keys=Strings.of(keys)), client))


def unlock(world: World, *keys: bytes, client: int = 1) -> Code | None:
    return code_of(world.run(commands.Unlock(table="t", keys=Strings.of(keys)), client))


WRITES: dict[str, Callable[[bytes], object]] = {
    "set": lambda key: set_command([(b"other", 1), (key, 5)], at=1),
    "set-plain": lambda key: set_command([(key, 5)], at=1),
    "set-older": lambda key: set_command([(key, 5)], at=-1),
    "set-in-memory": lambda key: set_command([(key, 5)], at=1, persist=False),
    "delete": lambda key: commands.Delete(
        table="t", keys=Strings.of([b"other", key]), timestamp_us=NOW_US + 1
    ),
    "purge": lambda key: commands.Delete(
        table="t", keys=Strings.of([key]), timestamp_us=NOW_US + 1, purge=True
    ),
    "touch": lambda key: commands.Touch(table="t", keys=Strings.of([key])),
    "add": lambda key: commands.Modify(
        table="t", key=key, change=commands.Change.ADD, operand=ONE, timestamp_us=NOW_US
    ),
    "rename": lambda key: commands.Rename(table="t", key=key, to=b"c", timestamp_us=NOW_US),
    "rename-onto": lambda key: commands.Rename(
        table="t", key=b"b", to=key, timestamp_us=NOW_US, overwrite=True
    ),
}


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("name", WRITES)
def test_another_client_cannot_write_a_locked_key(world: World, name: str) -> None:
    command = WRITES[name](b"a")
    assert lock(world, b"a") is None
    before = world.journal
    assert code_of(world.run(command, client=2)) is Code.LOCKED
    assert world.journal == before
    assert unlock(world, b"a") is None
    assert code_of(world.run(command, client=2)) is None


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("name", WRITES)
def test_the_holder_of_a_lock_writes_as_ever(world: World, name: str) -> None:
    lock(world, b"a")
    assert code_of(world.run(WRITES[name](b"a"))) is None


@pytest.mark.req("FJ-35")
def test_get_works_and_says_that_a_value_is_locked(world: World) -> None:
    lock(world, b"a", client=2)
    assert world.get(b"a", b"b") == [1, 2]
    assert (world.entry(b"a").state, world.entry(b"b").state) == (commands.Entries.LOCKED, 0)
    unlock(world, b"a", client=2)
    assert world.entry(b"a").state == 0


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("client", [1, 2])
def test_a_locked_key_cannot_be_locked_again(world: World, client: int) -> None:
    lock(world, b"a")
    assert lock(world, b"b", b"a", client=client) is Code.LOCKED
    assert list(world.locks) == [b"\0\0\0\1a"]


@pytest.mark.req("FJ-35")
def test_only_the_holder_unlocks(world: World) -> None:
    lock(world, b"a")
    assert unlock(world, b"a", client=2) is Code.NOT_OWNER
    assert unlock(world, b"b") is Code.NOT_OWNER
    assert unlock(world, b"a", b"b") is Code.NOT_OWNER  # all of them or none
    assert unlock(world, b"none") is Code.NOT_OWNER
    assert list(world.locks) == [b"\0\0\0\1a"]


def test_a_key_that_is_not_there_may_be_locked(world: World) -> None:
    assert lock(world, b"new") is None
    assert code_of(world.set({b"new": 1}, client=2)) is Code.LOCKED
    assert code_of(world.set({b"new": 1}, overwrite=False)) is None
    assert world.get(b"new") == [1]


def test_a_value_is_locked_through_any_of_its_keys(world: World) -> None:
    world.set({b"x": 1}, also=[b"y"])
    assert lock(world, b"y") is None
    for key in (b"x", b"y"):
        assert code_of(world.set({key: 2}, at=1, client=2)) is Code.LOCKED
        assert lock(world, key, client=2) is Code.LOCKED
        assert world.entry(key).state == commands.Entries.LOCKED
    assert unlock(world, b"x") is None
    assert world.locks == {}


def test_a_locked_key_cannot_become_a_further_key_for_another(world: World) -> None:
    lock(world, b"new")
    assert code_of(world.set({b"x": 1}, also=[b"new"], client=2)) is Code.LOCKED
    assert code_of(world.set({b"x": 1}, also=[b"new"])) is None
    assert code_of(world.set({b"new": 2}, at=1, client=2)) is Code.LOCKED  # still locked itself
    assert lock(world, b"new", client=2) is Code.LOCKED
    assert unlock(world, b"new") is None
    assert world.locks == {}


def test_the_number_of_locks_is_bounded(world: World) -> None:
    world.locks = {b"%d" % number: 9 for number in range(limits.LOCKS_MAX - 1)}
    assert lock(world, b"a", b"b") is Code.QUOTA
    assert lock(world, b"a") is None


@pytest.mark.parametrize("kind", [commands.Lock, commands.Unlock])
def test_locks_have_keys_like_any_command(world: World, kind: type) -> None:
    def run(*keys: bytes) -> commands.Reply:
        return world.run(kind(table="t", keys=Strings.of(keys)))

    assert code_of(run()) is Code.BAD_BATCH
    assert code_of(run(b"")) is Code.EMPTY_KEY
    assert code_of(run(b"k" * 481)) is Code.KEY_TOO_LONG
    assert code_of(world.run(kind(table="-", keys=Strings.of([b"a"])))) is Code.BAD_NAME


def test_a_table_comes_into_being_with_its_first_lock() -> None:
    world = World()
    assert lock(world, b"a") is None
    assert list(world.tables) == ["t"]
    assert (
        code_of(World().run(commands.Unlock(table="t", keys=Strings.of([b"a"])))) is Code.NOT_OWNER
    )
