"""Commands and replies: their defaults, and the names of tables."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import commands, jobs, limits
from fjord.columns import Strings
from fjord.commands import (
    FUNCTIONS,
    KINDS,
    Bury,
    Change,
    Changed,
    CountJobs,
    Delete,
    Entries,
    Extend,
    Fail,
    Get,
    Modify,
    Next,
    Peek,
    Push,
    Range,
    Refusal,
    Rename,
    Reschedule,
    Revive,
    Scan,
    Set,
    Touch,
    name_problem,
)
from fjord.errors import (
    Code,
    DiskFullError,
    ExistsError,
    LockedError,
    NotFoundError,
    RefusedError,
    StaleError,
)
from fjord.values import Type
from fjord.wire import Function

RECORDS = [row.record for row in (*FUNCTIONS.values(), *KINDS.values())]


@pytest.mark.parametrize("record", RECORDS)
def test_records_are_small_and_built_by_keyword(record: type) -> None:
    fields = dataclasses.fields(record)
    assert all(field.kw_only for field in fields)
    assert record.__doc__
    assert "__dict__" not in dir(record)


def test_a_set_overwrites_and_persists_for_ever_unless_told_otherwise() -> None:
    command = Set(
        table="t", keys=Strings.of([b"k"]), types=b"\0", values=Strings.of([b""]), timestamps_us=[1]
    )
    assert (command.overwrite, command.persist, command.expires_at_us) == (True, True, 0)
    assert (command.ttl_us, command.also) == (0, None)


def test_a_get_is_for_data_and_hides_nothing_unless_told_otherwise() -> None:
    keys = Strings.of([b"k"])
    for command in (Get(table="t", keys=keys), Range(table="t")):
        assert (command.with_data, command.skip_worked) == (True, False)
    assert Touch(table="t", keys=keys).with_data


def test_a_touch_changes_nothing_but_the_date_unless_told_otherwise() -> None:
    command = Touch(table="t", keys=Strings.of([b"k"]))
    assert (command.extend, command.expires_at_us, command.worked_until_us) == (False, 0, 0)


def test_a_range_is_all_of_a_table_as_far_as_a_page_reaches() -> None:
    command = Range(table="t")
    assert (command.start, command.stop, command.count, command.regex) == (b"", b"", 0, b"")


def test_what_takes_something_away_has_to_be_asked_for() -> None:
    delete = Delete(table="t", keys=Strings.of([b"k"]), timestamp_us=1)
    rename = Rename(table="t", key=b"k", to=b"l", timestamp_us=1)
    assert (delete.purge, rename.overwrite) == (False, False)


def test_changes_have_the_numbers_of_their_functions() -> None:
    assert {change.name: change.value for change in Change} == {
        "ADD": Function.ADD,
        "NOT": Function.NOT,
        "TRUNCATE": Function.TRUNCATE,
    }
    modify = Modify(table="t", key=b"k", change=Change.ADD, timestamp_us=1)
    assert (modify.operand, modify.operand_type) == (b"", Type.INTEGER)


def test_states_are_bits() -> None:
    assert (Entries.LOCKED, Entries.WORKED_ON) == (1, 2)


def test_a_change_names_its_key_and_what_it_has_now() -> None:
    assert Changed._fields == ("table", "key", "type", "value", "timestamp_us", "expires_at_us")


# -- jobs -----------------------------------------------------------------------------------------


def test_commands_are_used_from_one_place() -> None:
    """The whole language is in one place, wherever a record is written down."""
    assert all(getattr(commands, record.__name__) is record for record in RECORDS)


def test_a_push_has_dates_and_no_delays_unless_told_otherwise() -> None:
    one = Strings.of([b"k"])
    command = Push(
        table="t",
        keys=one,
        domains=one,
        types=b"\0",
        values=one,
        priorities=b"\0",
        process_at_us=[0],
        expires_at_us=[0],
        timestamps_us=[1],
    )
    assert command.relative is False


def test_a_next_takes_one_job_of_any_domain_and_does_not_wait_unless_told_otherwise() -> None:
    command = Next(table="t")
    assert (command.count, command.domain, command.done) == (1, b"", False)
    assert (command.lease_us, command.wait_us) == (0, 0)


def test_leases_last_as_long_as_before_unless_told_otherwise() -> None:
    assert Extend(table="t", xids=(1,)).lease_us == 0


def test_a_failure_counts_and_is_tried_again_at_once_unless_told_otherwise() -> None:
    command = Fail(table="t", xids=(1,))
    assert (command.counts, command.buries) == (True, False)
    assert (command.delay_us, command.reason) == (0, b"")
    assert Revive(table="t", rows=(1,)).delay_us == 0


def test_nothing_of_a_waiting_job_is_changed_unless_told() -> None:
    keys = Strings.of([b"k"])
    command = Reschedule(table="t", keys=keys)
    assert (command.priority, command.process_at_us, command.relative) == (None, None, False)
    assert Bury(table="t", keys=keys).reason == b""


def test_a_look_is_at_waiting_jobs_of_all_domains_unless_told_otherwise() -> None:
    command = Peek(table="t")
    assert command.state == jobs.State.WAITING
    assert (command.start, command.count, command.domain) == (b"", 0, b"")
    assert CountJobs(table="t").domain == b""


def test_a_listener_of_jobs_is_told_of_two_things() -> None:
    assert (commands.ARRIVED, commands.DUE) == (b"arrived", b"due")


def test_a_scan_asks_for_a_bounded_piece() -> None:
    assert Scan(table="t", start_seq=1, end_seq=0).bytes_max == limits.SCAN_BYTES_MAX


def test_missing_is_no_type() -> None:
    assert Entries.MISSING not in set(Type)
    assert 0 <= Entries.MISSING <= 255


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.NOT_FOUND, NotFoundError),
        (Code.EXISTS, ExistsError),
        (Code.LOCKED, LockedError),
        (Code.STALE_XID, StaleError),
        (Code.DISK_FULL, DiskFullError),
        (Code.QUOTA, RefusedError),
    ],
)
def test_a_refusal_turns_into_its_error(code: Code, error: type[RefusedError]) -> None:
    raised = Refusal(code=code, text="why").error()
    assert type(raised) is error
    assert (raised.code, raised.text) == (code, "why")


@pytest.mark.parametrize(
    "name",
    ["a", "_", "9", "A-b_9", "x" * limits.NAME_BYTES_MAX, commands.DEFAULT_TABLE, "a-", "_-"],
)
def test_good_names_are_taken(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-a",
        ".",
        "..",
        "a.b",
        "a/b",
        "/etc/x",
        "~~",
        "x.pack",
        "x.123",
        "a\0",
        "a\n",
        "a\nb",
        "\na",
        "a b",
        "%2e%2e",
        "\u202ename",
        "n\u0430me",  # a Cyrillic a
        "\u0661",  # a digit, but no ASCII one
        "\ufffd",
        "x" * (limits.NAME_BYTES_MAX + 1),
        "x" * 100_000,
    ],
)
def test_bad_names_are_refused(name: str) -> None:
    problem = name_problem(name)
    assert problem is not None
    assert problem.code is Code.BAD_NAME
    assert "1 to 128" in problem.text
    assert len(problem.text) < 256


@given(st.text(max_size=140))
def test_a_name_is_good_exactly_if_every_character_is(name: str) -> None:
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
    good = 1 <= len(name) <= 128 and set(name) <= allowed and name[0] != "-"
    assert (name_problem(name) is None) is good
