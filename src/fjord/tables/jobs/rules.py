"""What can be wrong with a command on jobs, and the code that says so."""

from __future__ import annotations

from collections.abc import Sequence

from fjord import commands, jobs, limits
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.errors import Code
from fjord.tables import rules as row_rules
from fjord.tables.kv import rules
from fjord.tables.state import Table


def settings_of(table: Table) -> jobs.Settings:
    return jobs.decode_settings(table.settings)


# -- PUSH -----------------------------------------------------------------------------------------


def push_problem(command: commands.Push, now_us: int) -> Refusal | None:
    """Says what is wrong with a push, but for its dates to come and what its table forbids."""
    rows, stamps = len(command.types), command.timestamps_us
    keys, domains, values = command.keys, command.domains, command.values
    are_even = (
        rows == len(command.priorities) == len(stamps)
        and rows == len(command.process_at_us) == len(command.expires_at_us)
        and rows + 1 == len(keys.offsets) == len(domains.offsets) == len(values.offsets)
    )
    if not are_even:
        return Refusal(code=Code.BAD_BATCH, text="the columns of a push differ in number")
    if not 0 < rows <= limits.BATCH_ROWS_MAX:
        return rows_problem(rows)
    data = values.data
    if len(data) + len(keys.data) + len(domains.data) > limits.BATCH_BYTES_MAX:
        text = f"the keys and values of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    # Where all of them together are no larger than one may be, there is nothing to measure.
    if len(data) > limits.VALUE_BYTES_MAX < max(values.lengths()):
        text = f"a value has at most {limits.VALUE_BYTES_MAX} bytes"
        return Refusal(code=Code.VALUE_TOO_LARGE, text=text)
    if len(keys.data) > limits.JOB_KEY_BYTES_MAX < max(keys.lengths()):
        return Refusal(code=Code.KEY_TOO_LONG, text=_KEY_TOO_LONG)
    if len(domains.data) > limits.DOMAIN_BYTES_MAX < max(domains.lengths()):
        return Refusal(code=Code.BAD_DOMAIN, text=_DOMAIN_TOO_LONG)
    first_us, last_us = min(stamps), max(stamps)
    if first_us >= limits.TIMESTAMP_US_MIN and last_us <= now_us + limits.TIMESTAMP_AHEAD_US_MAX:
        return None
    problem = rules.timestamp_problem(first_us, now_us)
    return problem or rules.timestamp_problem(last_us, now_us)


def dates_problem(
    dates_us: Sequence[int], expiries_us: Sequence[int], now_us: int
) -> Refusal | None:
    """Says what is wrong with process dates, as they come out, and expiries."""
    last_us = now_us + limits.PROCESS_AHEAD_US_MAX
    if max(dates_us) > last_us or max(expiries_us) > last_us:
        return Refusal(code=Code.BAD_TIMEOUT, text="a date is at most 366 days ahead")
    if not any(expiries_us):
        return None
    for date_us, expires_at_us in zip(dates_us, expiries_us, strict=True):
        if expires_at_us and expires_at_us <= max(date_us, now_us):
            text = "a job expires after its process date, and not in the past"
            return Refusal(code=Code.BAD_TIMEOUT, text=text)
    return None


def empty_key_problem(keys: Sequence[bytes]) -> Refusal | None:
    if all(keys):
        return None
    text = "a key has at least one byte, unless the table was made with merge off"
    return Refusal(code=Code.EMPTY_KEY, text=text)


def values_problem(command: commands.Push, settings: jobs.Settings) -> Refusal | None:
    """Says what is wrong with the values of a push to a table of these settings, or None."""
    if not settings.columns and not command.types.strip(row_rules.BUFFER):
        return None
    return row_rules.problem(command.types, command.values, settings.declared)


# -- NEXT and what follows it ---------------------------------------------------------------------


def next_problem(command: commands.Next) -> Refusal | None:
    if not 0 <= command.count <= limits.NEXT_COUNT_MAX:
        text = f"a count is at most {limits.NEXT_COUNT_MAX}, and 0 stands for that"
        return Refusal(code=Code.BAD_COUNT, text=text)
    if not 0 <= command.wait_us <= limits.WAIT_US_MAX:
        return Refusal(code=Code.BAD_TIMEOUT, text="a wait takes at most an hour")
    return (
        lease_problem(command.lease_us)
        or domain_problem(command.domain)
        or commands.name_problem(command.table)
    )


def lease_problem(lease_us: int) -> Refusal | None:
    if not lease_us or limits.LEASE_US_MIN <= lease_us <= limits.LEASE_US_MAX:
        return None
    return Refusal(code=Code.BAD_TIMEOUT, text="a lease takes from 1 ms to 30 days")


def domain_problem(domain: bytes) -> Refusal | None:
    if len(domain) <= limits.DOMAIN_BYTES_MAX:
        return None
    return Refusal(code=Code.BAD_DOMAIN, text=_DOMAIN_TOO_LONG)


def fairness_problem(domain: bytes, table: Table) -> Refusal | None:
    """A domain can be asked for only where jobs are kept by domain."""
    if not domain or settings_of(table).fairness is jobs.Fairness.DOMAIN:
        return None
    text = f"table {table.name} has fairness=none; make it with fairness=domain to ask by domain"
    return Refusal(code=Code.BAD_DOMAIN, text=text)


def taken_problem(command: commands.Next, table: Table, taken: int) -> Refusal | None:
    """Where jobs merge, the keys of those that are taken are in memory, which is bounded."""
    if taken < limits.TAKEN_MAX or command.done or not settings_of(table).merge:
        return None
    text = f"{taken} jobs of table {table.name} are taken already; finish some of them first"
    return Refusal(code=Code.QUOTA, text=text)


def by_key_problem(table: Table) -> Refusal | None:
    """Jobs are found by key only where keys are looked up."""
    if settings_of(table).merge:
        return None
    text = f"table {table.name} was made with merge off: its jobs are not found by key"
    return Refusal(code=Code.WRONG_KIND, text=text)


def rows_problem(rows: int) -> Refusal | None:
    if 0 < rows <= limits.BATCH_ROWS_MAX:
        return None
    return Refusal(code=Code.BAD_BATCH, text=f"a batch has 1 to {limits.BATCH_ROWS_MAX} rows")


def fail_problem(command: commands.Fail) -> Refusal | None:
    return (
        rows_problem(len(command.xids))
        or delay_problem(command.delay_us)
        or reason_problem(command.reason)
    )


def delay_problem(delay_us: int) -> Refusal | None:
    if 0 <= delay_us <= limits.PROCESS_AHEAD_US_MAX:
        return None
    return Refusal(code=Code.BAD_TIMEOUT, text="a delay is at most 366 days")


def reason_problem(reason: bytes) -> Refusal | None:
    if len(reason) > limits.REASON_BYTES_MAX:
        text = f"a reason has at most {limits.REASON_BYTES_MAX} bytes"
        return Refusal(code=Code.BAD_VALUE, text=text)
    try:
        reason.decode()
    except UnicodeDecodeError:
        return Refusal(code=Code.BAD_VALUE, text="a reason is UTF-8")
    return None


def keys_problem(keys: Strings) -> Refusal | None:
    problem = rows_problem(len(keys))
    if problem is not None:
        return problem
    if len(keys.data) > limits.BATCH_BYTES_MAX:
        text = f"the keys of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    lengths = keys.lengths()
    if not min(lengths):
        return Refusal(code=Code.EMPTY_KEY, text="a key has at least one byte")
    if max(lengths) > limits.JOB_KEY_BYTES_MAX:
        return Refusal(code=Code.KEY_TOO_LONG, text=_KEY_TOO_LONG)
    return None


def reschedule_problem(command: commands.Reschedule, now_us: int) -> Refusal | None:
    problem = keys_problem(command.keys)
    if problem is not None:
        return problem
    if command.priority is not None and not 0 <= command.priority <= jobs.PRIORITY_MAX:
        text = f"a priority is 0 to {jobs.PRIORITY_MAX}"
        return Refusal(code=Code.BAD_VALUE, text=text)
    date_us = command.process_at_us or 0
    return delay_problem(date_us if command.relative else max(0, date_us - now_us))


def peek_problem(command: commands.Peek) -> Refusal | None:
    if command.state not in set(jobs.State):
        return Refusal(code=Code.BAD_VALUE, text=f"there is no state {command.state} of jobs")
    if not 0 <= command.count <= limits.PAGE_ENTRIES_MAX:
        text = f"a count is at most {limits.PAGE_ENTRIES_MAX}, and 0 stands for that"
        return Refusal(code=Code.BAD_COUNT, text=text)
    if len(command.start) > limits.KV_KEY_BYTES_MAX:
        return Refusal(code=Code.BAD_CURSOR, text="not where a page of jobs begins")
    return domain_problem(command.domain) or commands.name_problem(command.table)


_KEY_TOO_LONG = f"a key of a job has at most {limits.JOB_KEY_BYTES_MAX} bytes"
_DOMAIN_TOO_LONG = f"a domain has at most {limits.DOMAIN_BYTES_MAX} bytes"
