"""The calls of a jobs table: commands from arguments, jobs from replies.

Pure, and shared by all shells: `Jobs`, `AsyncJobs` and transactions only run these calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple, TypedDict, TypeVar, Unpack

from fjord import commands, limits, values
from fjord.client import calls, entries
from fjord.client.calls import Call, done, expect, missing_rows, nothing_to_do
from fjord.client.declared_tables import ExpectedTable, JobSettings, expected
from fjord.client.entries import BLANK, AnyKey, Key, Seconds
from fjord.client.jobs import push, records
from fjord.client.jobs.push import PushColumns, PushOptions
from fjord.client.jobs.records import AnyJob, Counts, JobBatch, JobInfo, JobWalk, TakenJob
from fjord.client.schemas import RowMap, Schemas, SchemasOf
from fjord.clock import Stamps
from fjord.columns import Strings
from fjord.commands import Command, Reply
from fjord.errors import Code, RefusedError, RemoteProtocolError
from fjord.jobs import PRIORITY_MAX, How, Priority, State, decode_settings
from fjord.kinds import Kind
from fjord.values import Value

_OPTIONS: Final = PushOptions.__optional_keys__
Given = TypeVar("Given", bound=TakenJob | int)  # a job, or the xid of one

_Settling = commands.Finish | commands.Extend | commands.Fail


class FailOptions(TypedDict, total=False):
    """What happens to jobs that are given back."""

    delay: Seconds | None  # they wait at least this long from now
    reason: str  # for the dead letters
    count: bool  # whether it counts as a failure; default True
    bury: bool  # True: to the dead letters at once


class JobFields(NamedTuple):
    """The fields of a pushed job besides its key and value."""

    priority: int = int(Priority.DEFAULT)
    process_at_us: int = 0
    is_relative: bool = True  # `process_at_us` is a delay from now
    expires_at_us: int = 0
    domain: bytes = b""


_USUAL: Final = JobFields()


def job_fields(options: PushOptions) -> JobFields:
    """Returns the options of one job as the fields of a command.

    Raises:
        ValueError, TypeError: if an option is invalid or unknown.
    """
    if not options.keys() <= _OPTIONS:
        calls.check_names("push", options, _OPTIONS)
    priority = options.get("priority", _USUAL.priority)
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        priority = push.check_priority(priority)
    process_at_us, is_relative, expires_at_us, domain = 0, True, 0, b""
    if "delay" in options or "process_at" in options:
        process_at_us, is_relative = push.due_us(options.get("delay"), options.get("process_at"))
    if "expires_at" in options:
        expires_at_us = entries.moment_us(options["expires_at"], "expires_at")
    if (given := options.get("domain")) is not None:
        domain = entries.encode_domain(given)
    return JobFields(priority, process_at_us, is_relative, expires_at_us, domain)


class DeadCounts(NamedTuple):
    """How many dead jobs were processed, and how many dropped instead."""

    done: int
    dropped: int


class JobCalls:
    """Builds the calls of one table."""

    def __init__(self, table: str, stamps: Stamps, schemas_of: SchemasOf = Schemas) -> None:
        self.table = table
        self.schemas = schemas_of(table, decode_settings)
        self._stamps = stamps

    def create(self, settings: JobSettings, *, change: bool = False) -> Call[None]:
        return Call(replace(self.declare(settings).command, changes=change), done)

    def declare(self, settings: JobSettings) -> ExpectedTable:
        return expected(self.table, Kind.JOBS, settings)

    # -- pushing ----------------------------------------------------------------------------------

    def push(
        self, key: Key | RowMap, value: Value | RowMap, **options: Unpack[PushOptions]
    ) -> Call[None]:
        if type(key) in values.PLAIN_TYPES and type(value) in values.PLAIN_TYPES:
            name = entries.encode_key(key)  # type: ignore[arg-type]
            type_, data = values.encode(value)  # type: ignore[arg-type]
        else:
            name, (type_, data) = self._encoded(key, value)
        fields = job_fields(options) if options else _USUAL
        command = commands.Push(
            table=self.table,
            keys=Strings((0, len(name)), name),
            domains=Strings((0, len(fields.domain)), fields.domain) if fields.domain else BLANK,
            types=bytes((type_,)),
            values=Strings((0, len(data)), data),
            priorities=bytes((fields.priority,)),
            process_at_us=(fields.process_at_us,),
            expires_at_us=(fields.expires_at_us,),
            timestamps_us=(self._stamps.next_us(),),
            relative=fields.is_relative,
        )
        return Call(command, done)

    def _encoded(self, key: Key | RowMap, value: Value | RowMap) -> tuple[bytes, tuple[int, bytes]]:
        """Returns the key of a job, and its value as a type and bytes."""
        if isinstance(key, Mapping):
            if value is not None:
                raise TypeError("push takes either a row, or a key and a value")
            (data,), keys = self.schemas.encode([key])
            return (keys[0] if keys else b""), (values.ROW, data)
        if isinstance(value, Mapping):
            (data,), keys = self.schemas.encode([value])
            if keys:
                raise TypeError("the key is made of columns of the row; push the row alone")
            return entries.encode_key(key), (values.ROW, data)
        return entries.encode_key(key), values.encode(value)

    def push_many(
        self, rows: Iterable[Mapping[str, Any]] | None, **columns: Unpack[PushColumns]
    ) -> Call[None]:
        now_us = self._stamps.next_us()
        command: commands.Push | None
        if rows is None:
            command = push.push_columns(self.table, columns, now_us, self.schemas)
        elif columns:
            raise TypeError("push_many takes either a list of dicts, or columns")
        else:
            command = push.push_rows(self.table, rows, now_us, self.schemas)
        return Call(command or commands.Nop(), done)

    def push_raw(self, columns: Mapping[str, Any]) -> Call[None]:
        return Call(commands.Push(table=self.table, **columns), done)

    # -- taking -----------------------------------------------------------------------------------

    def next(
        self,
        make: Callable[[JobBatch[AnyJob], int], AnyJob],
        count: int,
        *,
        domain: Key | None = None,
        lease: Seconds | None = None,
        wait: Seconds | None = None,
        done: bool = False,
    ) -> Call[JobBatch[AnyJob]]:
        if calls.check_whole("count", count) < 1:
            raise ValueError(f"count is 1 or more, not {count}")
        command = commands.Next(
            table=self.table,
            count=count,
            domain=entries.encode_domain(domain),
            lease_us=entries.lease_us(lease),
            wait_us=entries.wait_us(wait),
            done=done,
        )

        def read(reply: Reply) -> JobBatch[AnyJob]:
            taken = expect(reply, commands.Taken)
            if len(taken.types) > count:
                text = f"{len(taken.types)} jobs, not {count} at most"
                raise RemoteProtocolError(Code.BAD_BATCH, text)
            now_us = self._stamps.next_us()
            return JobBatch(
                self.table, taken, make, now_us, lease_us=command.lease_us, schemas=self.schemas
            )

        return Call(command, read)

    def done_one(self, job: TakenJob) -> Call[None]:
        command = commands.Finish(table=self.table, xids=self._xids_of(job))
        return self._one(job, command, How.DONE)

    def done_many(self, jobs: Iterable[Given], *, strict: bool = False) -> Call[list[Given]]:
        return self._settle(
            jobs, commands.Finish(table=self.table, xids=(), strict=strict), How.DONE
        )

    def touch_one(self, job: TakenJob, lease: Seconds | None) -> Call[None]:
        lease_us = entries.lease_us(lease)
        command = commands.Extend(table=self.table, xids=self._xids_of(job), lease_us=lease_us)
        return self._one(job, command, lease_us)

    def touch_many(self, jobs: Iterable[Given], lease: Seconds | None) -> Call[list[Given]]:
        lease_us = entries.lease_us(lease)
        command = commands.Extend(table=self.table, xids=(), lease_us=lease_us)
        return self._settle(jobs, command, lease_us)

    def fail_one(self, job: TakenJob, **options: Unpack[FailOptions]) -> Call[None]:
        command = self._failure(self._xids_of(job), options)
        return self._one(job, command, How.FAIL if command.counts else How.GIVEN_BACK)

    def fail_many(self, jobs: Iterable[Given], **options: Unpack[FailOptions]) -> Call[list[Given]]:
        command = self._failure((), options)
        return self._settle(jobs, command, How.FAIL if command.counts else How.GIVEN_BACK)

    def _failure(self, xids: Sequence[int], options: FailOptions) -> commands.Fail:
        calls.check_names("fail", options, FailOptions.__optional_keys__)
        return commands.Fail(
            table=self.table,
            xids=xids,
            delay_us=entries.delay_us(options.get("delay")),
            counts=options.get("count", True),
            buries=options.get("bury", False),
            reason=encode_reason(options.get("reason", "")),
        )

    def _settle(
        self, jobs: Iterable[Given], command: _Settling, outcome: How | int
    ) -> Call[list[Given]]:
        """Returns a call whose result is the jobs that were too late.

        `outcome` of the others: done or failed, or the length of their new lease in microseconds.
        """
        if isinstance(jobs, JobBatch):
            return self._settle_batch(jobs, command, outcome)
        given = _listed(jobs)
        if not given:
            return nothing_to_do([])
        found = [_xid(one) for one in given]
        tables = {one.table for one in given if isinstance(one, TakenJob)}
        # Each is sent once: the server would report a second one as too late.
        firsts = dict(zip(reversed(found), reversed(given), strict=True))
        xids = self._checked(tables, list(dict.fromkeys(found)))

        def read(reply: Reply) -> list[Given]:
            late = [xids[place] for place in missing_rows(reply, len(xids))]
            lost, now_us = set(late), self._stamps.next_us()
            for job in given:
                if isinstance(job, TakenJob):
                    job.note(None if job.xid in lost else outcome, now_us)
            return [firsts[xid] for xid in late]

        return Call(replace(command, xids=xids), read)

    def _settle_batch(
        self, batch: JobBatch[Any], command: _Settling, outcome: How | int
    ) -> Call[list[Any]]:
        """Like `_settle`, without an object for each job."""
        if not batch:
            return nothing_to_do([])

        def read(reply: Reply) -> list[Any]:
            late = missing_rows(reply, len(batch))
            batch.note_all(outcome, late, self._stamps.next_us())
            return [batch[place] for place in late]

        return Call(replace(command, xids=self._checked({batch.table}, batch.xids)), read)

    def _checked(self, tables: set[str], found: Sequence[int]) -> Sequence[int]:
        if found and (min(found) < 0 or max(found) >= 2**64):
            raise ValueError("an xid must be a number of at most 64 bits, more than 0")
        for table in tables - {self.table}:
            raise ValueError(f"this is table {self.table}, but a job is of table {table}")
        if not found or 0 in found:
            raise ValueError("jobs that were taken with done=True are already done")
        return found

    def _xids_of(self, job: TakenJob) -> Sequence[int]:
        xid = job.xid
        if not xid or job.table != self.table:
            self._checked({job.table}, [xid])
        return [xid]

    def _one(self, job: TakenJob, command: Command, outcome: How | int) -> Call[None]:
        def read(reply: Reply) -> None:
            is_late = bool(missing_rows(reply, 1))
            job.note(None if is_late else outcome, self._stamps.next_us())
            if is_late:
                text = (
                    f"the lease of job {job.key!r} (xid {job.xid}) was over, or it is done "
                    "already; another worker may have it"
                )
                raise RefusedError.of(Code.STALE_XID, text)

        return Call(command, read)

    # -- waiting jobs, by key ---------------------------------------------------------------------

    def get(self, key: Key) -> Call[JobInfo | None]:
        def read(reply: Reply) -> JobInfo | None:
            found = records.read_jobs(expect(reply, commands.JobPage), State.WAITING, self.schemas)
            return found[0] if found else None

        return Call(commands.Find(table=self.table, keys=_key(key)), read)

    def cancel(self, key: Key) -> Call[bool]:
        return Call(commands.Cancel(table=self.table, keys=_key(key)), _was_there)

    def cancel_many(self, keys: Iterable[AnyKey]) -> Call[list[AnyKey]]:
        wanted = entries.several_keys(keys)
        if not wanted:
            return nothing_to_do([])

        def read(reply: Reply) -> list[AnyKey]:
            missing = set(missing_rows(reply, len(wanted)))
            return [key for place, key in enumerate(wanted) if place not in missing]

        return Call(
            commands.Cancel(table=self.table, keys=Strings.of(entries.encode_keys(wanted))), read
        )

    def reschedule(
        self,
        key: Key,
        *,
        priority: int | None = None,
        delay: Seconds | None = None,
        process_at: datetime | None = None,
    ) -> Call[bool]:
        has_date = delay is not None or process_at is not None
        if priority is None and not has_date:
            raise ValueError("give a priority, a delay or process_at")
        date_us, is_relative = push.due_us(delay, process_at)
        command = commands.Reschedule(
            table=self.table,
            keys=_key(key),
            priority=None if priority is None else push.check_priority(priority),
            process_at_us=date_us if has_date else None,
            relative=has_date and is_relative,
        )
        return Call(command, _was_there)

    def kick(self, key: Key) -> Call[bool]:
        command = commands.Reschedule(table=self.table, keys=_key(key), process_at_us=0)
        return Call(command, _was_there)

    def bury(self, key: Key, reason: str) -> Call[bool]:
        command = commands.Bury(table=self.table, keys=_key(key), reason=encode_reason(reason))
        return Call(command, _was_there)

    # -- reading ----------------------------------------------------------------------------------

    def count(self) -> Call[Counts]:
        def read(reply: Reply) -> Counts:
            return Counts(*(calls.read_number(reply, name) for name in Counts._fields))

        return Call(commands.CountJobs(table=self.table), read)

    def next_at(self, domain: Key | None) -> Call[datetime | None]:
        command = commands.CountJobs(table=self.table, domain=entries.encode_domain(domain))
        return Call(
            command, lambda reply: entries.date_or_none(calls.read_number(reply, "next_at_us"))
        )

    def pages(self, state: State) -> JobWalk[commands.JobPage]:
        return JobWalk(self.table, state, lambda page: [page])

    def peek(self, count: int, domain: Key | None) -> JobWalk[JobInfo]:
        return self._walk(State.WAITING, count, domain)

    def taken(self, count: int) -> JobWalk[JobInfo]:
        return self._walk(State.TAKEN, count)

    def _walk(self, state: State, count: int, domain: Key | None = None) -> JobWalk[JobInfo]:
        return JobWalk(
            self.table,
            state,
            lambda page: records.read_jobs(page, state, self.schemas),
            limit=count,
            domain=domain,
        )

    # -- dead jobs, by row ------------------------------------------------------------------------

    def revive(self, rows: Sequence[int], delay: Seconds | None) -> Call[DeadCounts]:
        command = commands.Revive(table=self.table, rows=rows, delay_us=entries.delay_us(delay))
        return Call(command, lambda reply: _dead_counts(reply, len(rows)))

    def discard(self, rows: Sequence[int]) -> Call[DeadCounts]:
        command = commands.Discard(table=self.table, rows=rows)
        return Call(command, lambda reply: _dead_counts(reply, len(rows)))

    def listen(self) -> commands.ListenJobs:
        return commands.ListenJobs(table=self.table)


# -- arguments ------------------------------------------------------------------------------------


def encode_reason(reason: str) -> bytes:
    """Returns a reason, cut to the stored size.

    Raises:
        TypeError: if it is not text.
    """
    if not isinstance(reason, str):
        raise calls.not_a("reason", "text", reason)
    data = reason.encode(errors="backslashreplace")
    if len(data) <= limits.REASON_BYTES_MAX:
        return data
    return data[: limits.REASON_BYTES_MAX].decode(errors="ignore").encode()


def _key(key: Key) -> Strings:
    return Strings.of([entries.encode_key(key)])


def _listed(jobs: Iterable[Given]) -> list[Given]:
    given: Any = jobs  # of any type
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise calls.not_a("jobs", "the result of next(), or a list of jobs or xids", given)
    return list(given)


def _xid(given: TakenJob | int) -> int:
    if isinstance(given, TakenJob):
        return given.xid
    return calls.check_whole("a job of the list is a Job, or its xid, which", given)


# -- replies --------------------------------------------------------------------------------------


def _dead_counts(reply: Reply, rows: int) -> DeadCounts:
    missing, dropped = missing_rows(reply, rows), expect(reply, commands.Acted).dropped
    done = rows - len(missing) - len(dropped)
    if done < 0 or (dropped and max(dropped) >= rows):
        text = f"of {rows} rows, {len(missing)} are missing and {len(dropped)} were dropped"
        raise RemoteProtocolError(Code.BAD_BATCH, text)
    return DeadCounts(done, len(dropped))


def _was_there(reply: Reply) -> bool:
    return not missing_rows(reply, 1)
