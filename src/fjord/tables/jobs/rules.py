"""What is wrong with a command on jobs is refused, with the code that says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fjord import commands, jobs, limits
from fjord.columns import Strings
from fjord.errors import Code, RefusedError
from fjord.tables import rules
from fjord.tables.rules import check_rows
from fjord.tables.state import Table

_KEY_TOO_LONG: Final = f"a key of a job has at most {limits.JOB_KEY_BYTES_MAX} bytes"
_DOMAIN_TOO_LONG: Final = f"a domain has at most {limits.DOMAIN_BYTES_MAX} bytes"


def settings_of(table: Table) -> jobs.Settings:
    return jobs.decode_settings(table.settings)


# -- PUSH -----------------------------------------------------------------------------------------


def check_push(command: commands.Push, now_us: int) -> None:
    """Refuses a push, but for its dates to come and what its table forbids."""
    rows, stamps = len(command.types), command.timestamps_us
    keys, domains, values = command.keys, command.domains, command.values
    are_even = (
        rows == len(command.priorities) == len(stamps)
        and rows == len(command.process_at_us) == len(command.expires_at_us)
        and rows + 1 == len(keys.offsets) == len(domains.offsets) == len(values.offsets)
    )
    if not are_even:
        raise RefusedError(Code.BAD_BATCH, "the columns of a push differ in number")
    check_rows(rows)
    rules.check_sizes(keys, values, len(domains.data))
    if len(keys.data) > limits.JOB_KEY_BYTES_MAX < max(keys.lengths()):
        raise RefusedError(Code.KEY_TOO_LONG, _KEY_TOO_LONG)
    if len(domains.data) > limits.DOMAIN_BYTES_MAX < max(domains.lengths()):
        raise RefusedError(Code.BAD_DOMAIN, _DOMAIN_TOO_LONG)
    rules.check_timestamps(stamps, now_us)


def check_dates(dates_us: Sequence[int], expiries_us: Sequence[int], now_us: int) -> None:
    """Refuses process dates, as they come out, and expiries."""
    last_us = now_us + limits.PROCESS_AHEAD_US_MAX
    if max(dates_us) > last_us or max(expiries_us) > last_us:
        raise RefusedError(Code.BAD_TIMEOUT, "a date is at most 366 days ahead")
    if any(expiries_us):
        for date_us, expires_at_us in zip(dates_us, expiries_us, strict=True):
            if expires_at_us and expires_at_us <= max(date_us, now_us):
                text = "a job expires after its process date, and not in the past"
                raise RefusedError(Code.BAD_TIMEOUT, text)


def check_values(command: commands.Push, settings: jobs.Settings) -> None:
    """Refuses values that a table of these settings does not take."""
    if settings.columns or command.types.strip(rules.BUFFER):
        rules.check_values(command.types, command.values, settings.declared)


# -- NEXT and what follows it ---------------------------------------------------------------------


def check_next(command: commands.Next) -> None:
    if not 0 <= command.count <= limits.NEXT_COUNT_MAX:
        text = f"a count is at most {limits.NEXT_COUNT_MAX}, and 0 stands for that"
        raise RefusedError(Code.BAD_COUNT, text)
    if not 0 <= command.wait_us <= limits.WAIT_US_MAX:
        raise RefusedError(Code.BAD_TIMEOUT, "a wait takes at most an hour")
    check_lease(command.lease_us)
    check_domain(command.domain)
    rules.check_name(command.table)


def check_lease(lease_us: int) -> None:
    if lease_us and not limits.LEASE_US_MIN <= lease_us <= limits.LEASE_US_MAX:
        raise RefusedError(Code.BAD_TIMEOUT, "a lease takes from 1 ms to 30 days")


def check_domain(domain: bytes) -> None:
    if len(domain) > limits.DOMAIN_BYTES_MAX:
        raise RefusedError(Code.BAD_DOMAIN, _DOMAIN_TOO_LONG)


def check_fairness(domain: bytes, table: Table) -> None:
    """A domain can be asked for only where jobs are kept by domain."""
    if domain and settings_of(table).fairness is not jobs.Fairness.DOMAIN:
        text = (
            f"table {table.name} has fairness=none; make it with fairness=domain to ask by domain"
        )
        raise RefusedError(Code.BAD_DOMAIN, text)


def check_taken(command: commands.Next, table: Table, taken: int) -> None:
    """Where jobs merge, the keys of those that are taken are in memory, which is bounded."""
    if taken >= limits.TAKEN_MAX and not command.done and settings_of(table).merge:
        text = f"{taken} jobs of table {table.name} are taken already; finish some of them first"
        raise RefusedError(Code.QUOTA, text)


def check_by_key(table: Table) -> None:
    """Jobs are found by key only where keys are looked up."""
    if not settings_of(table).merge:
        text = f"table {table.name} was made with merge off: its jobs are not found by key"
        raise RefusedError(Code.WRONG_KIND, text)


def check_fail(command: commands.Fail) -> None:
    check_rows(len(command.xids))
    check_delay(command.delay_us)
    check_reason(command.reason)


def check_delay(delay_us: int) -> None:
    if not 0 <= delay_us <= limits.PROCESS_AHEAD_US_MAX:
        raise RefusedError(Code.BAD_TIMEOUT, "a delay is at most 366 days")


def check_reason(reason: bytes) -> None:
    if len(reason) > limits.REASON_BYTES_MAX:
        text = f"a reason has at most {limits.REASON_BYTES_MAX} bytes"
        raise RefusedError(Code.BAD_VALUE, text)
    try:
        reason.decode()
    except UnicodeDecodeError:
        raise RefusedError(Code.BAD_VALUE, "a reason is UTF-8") from None


def check_keys(keys: Strings) -> None:
    rules.check_keys(keys, limits.JOB_KEY_BYTES_MAX)


def check_reschedule(command: commands.Reschedule, now_us: int) -> None:
    check_keys(command.keys)
    if command.priority is not None and not 0 <= command.priority <= jobs.PRIORITY_MAX:
        raise RefusedError(Code.BAD_VALUE, f"a priority is 0 to {jobs.PRIORITY_MAX}")
    date_us = command.process_at_us or 0
    check_delay(date_us if command.relative else max(0, date_us - now_us))


def check_peek(command: commands.Peek) -> None:
    if command.state not in set(jobs.State):
        raise RefusedError(Code.BAD_VALUE, f"there is no state {command.state} of jobs")
    if not 0 <= command.count <= limits.PAGE_ENTRIES_MAX:
        text = f"a count is at most {limits.PAGE_ENTRIES_MAX}, and 0 stands for that"
        raise RefusedError(Code.BAD_COUNT, text)
    if len(command.start) > limits.KV_KEY_BYTES_MAX:
        raise RefusedError(Code.BAD_CURSOR, "not where a page of jobs begins")
    check_domain(command.domain)
    rules.check_name(command.table)
