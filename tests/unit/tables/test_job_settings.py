"""Settings of jobs tables: what can be chosen, and what is refused."""

from __future__ import annotations

import json

import pytest

from fjord import jobs, limits
from fjord.commands import CreateTable, Refusal
from fjord.errors import Code
from fjord.jobs import Fairness
from fjord.kinds import Kind
from tests.unit.tables.job_world import DAY, TABLE, JobWorld
from tests.unit.tables.world import code_of


def check_refused(command: object, code: Code, world: JobWorld | None = None) -> None:
    """Asserts that a command is refused with this code, and that nothing comes of it."""
    world = world or JobWorld()
    before, seq = world.trees(), world.next_seq
    assert code_of(world.run(command)) is code
    assert (world.trees(), world.next_seq) == (before, seq)


BAD_SETTINGS = [
    b'{"columns":[["a","string",true]],"key":[["a"]]}',
    b"{",
    b"[]",
    b"1",
    b'"text"',
    b"null",
    b"\xff",
    b'{"unknown":1}',
    b'{"merge":1}',
    b'{"merge":null}',
    b'{"fairness":"both"}',
    b'{"fairness":1}',
    b'{"fairness":[]}',
    b'{"lease_us":0}',
    b'{"lease_us":999}',
    b'{"lease_us":1.5}',
    b'{"lease_us":true}',
    b'{"lease_us":"1h"}',
    b'{"lease_us":2592000000001}',
    b'{"timeouts_max":-1}',
    b'{"timeouts_max":255}',
    b'{"timeouts_max":null}',
    b'{"debounce_us":-1}',
    b'{"debounce_us":31622400000001}',
    b'{"debounce_us":1e400}',
    b'{"debounce_us":NaN}',
    b"[" * 3000,
    b'{"debounce_us":' + b"9" * 3000 + b"}",
]


@pytest.mark.parametrize("settings", BAD_SETTINGS, ids=lambda one: ascii(one[:40]))
def test_bad_settings_are_refused(settings: bytes) -> None:
    command = CreateTable(name="new", kind=Kind.JOBS.number, settings=settings)
    check_refused(command, Code.BAD_SETTINGS)


def test_settings_that_are_too_large_are_refused() -> None:
    command = CreateTable(name="new", kind=Kind.JOBS.number, settings=b" " * 33_000)
    check_refused(command, Code.TOO_LARGE)


def test_a_table_with_other_settings_is_refused_and_with_the_same_is_no_error() -> None:
    world = JobWorld(merge=False)
    check_refused(CreateTable(name=TABLE, kind=Kind.JOBS.number), Code.EXISTS, world)
    assert code_of(world.create(jobs.Settings(merge=False).encode())) is None


def test_of_many_columns_a_refusal_shows_some() -> None:
    world = JobWorld(columns=tuple((f"column_{at}", "int8", False) for at in range(256)))
    reply = world.run(CreateTable(name=TABLE, kind=Kind.JOBS.number))
    assert isinstance(reply, Refusal)
    assert 'with other settings: {"columns":[["column_0","int8",false]' in reply.text
    assert len(reply.text) < 400


@pytest.mark.parametrize(
    "other", [b"{}", b'{"merge":true}', json.dumps({"timeouts_max": 5}).encode()]
)
def test_the_same_settings_in_other_words_are_no_error(other: bytes) -> None:
    world = JobWorld()
    world.push(b"a")
    assert code_of(world.create(other)) is None


@pytest.mark.parametrize(
    "settings",
    [
        jobs.Settings(),
        jobs.Settings(merge=False, fairness=Fairness.DOMAIN),
        jobs.Settings(lease_us=limits.LEASE_US_MIN, timeouts_max=0, debounce_us=0),
        jobs.Settings(lease_us=limits.LEASE_US_MAX, timeouts_max=254, debounce_us=366 * DAY),
    ],
)
def test_good_settings_are_kept(settings: jobs.Settings) -> None:
    world = JobWorld()
    assert code_of(world.create(settings.encode())) is None
    assert jobs.decode_settings(world.tables[TABLE].settings) == settings
