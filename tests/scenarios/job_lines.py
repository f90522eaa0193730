"""The words of scenarios that are about jobs.

    jobs TABLE [merge=off] [fairness=domain] [lease=S] [timeouts=N] [debounce=S]
    push TABLE KEY VALUE [priority=N] [delay=S] [at=S] [expires=S] [domain=D] [sent=S]
    next TABLE [count=N] [domain=D] [lease=S] [done=on] [by=N]
    done TABLE KEY...         touch TABLE KEY... [lease=S]
    fail TABLE KEY... [delay=S] [counts=off] [buries=on] [reason=TEXT]     all of them [by=N]
    cancel TABLE KEY...       reschedule TABLE KEY... [priority=N] [delay=S] [at=S]
    bury TABLE KEY... [reason=TEXT]
    peek TABLE [domain=D]     taken TABLE             dead TABLE          find TABLE KEY...
    redrive TABLE [KEY...] [delay=S]                  discard TABLE [KEY...]
    count TABLE [domain=D]

A worker says `done`, `touch` and `fail` of the jobs that it was given last under these keys; with
`by` it is another worker.  `at` is the process date, `sent` the client's date, both in seconds
after the beginning; a `_` stands for a space in a reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fjord import commands, jobs, values
from fjord.columns import Strings
from fjord.jobs import Fairness, State
from fjord.kinds import Kind

if TYPE_CHECKING:
    from tests.scenarios.world import Line, World

SECOND_US = 1_000_000


class Hands:
    """Which jobs each worker was given last, by table and key."""

    def __init__(self) -> None:
        self._xids: dict[tuple[str, str, bytes], int] = {}

    def note(self, line: Line, taken: commands.Taken) -> None:
        for at, key in enumerate(taken.keys.rows()):
            self._xids[_worker(line), line.words[0], key] = taken.first_xid + at

    def xids(self, line: Line) -> list[int]:
        keys = line.keys().rows()
        return [self._xids[_worker(line), line.words[0], key] for key in keys]


def _worker(line: Line) -> str:
    return line.options.get("by", "1")


# -- commands -------------------------------------------------------------------------------------


def _jobs(world: World, line: Line) -> commands.Command:
    usual = jobs.Settings()
    settings = jobs.Settings(
        merge=line.on("merge", default=True),
        fairness=Fairness(line.options.get("fairness", "none")),
        lease_us=_us(line, "lease", usual.lease_us),
        timeouts_max=int(line.options.get("timeouts", usual.timeouts_max)),
        debounce_us=_us(line, "debounce", usual.debounce_us),
    )
    return commands.CreateTable(
        name=line.words[0], kind=Kind.JOBS.number, settings=settings.encode()
    )


def _push(world: World, line: Line) -> commands.Command:
    table, _, value = line.words
    (key,) = line.keys().rows()[:1]
    type_, data = values.encode(json.loads(value))
    sent_us = world.moment_us(line, "sent") or world.tick_us()
    return commands.Push(
        table=table,
        keys=Strings.of([key]),
        domains=Strings.of([line.options.get("domain", "").encode()]),
        types=bytes([type_]),
        values=Strings.of([data]),
        priorities=bytes([int(line.options.get("priority", jobs.Priority.DEFAULT))]),
        process_at_us=[_us(line, "delay") or world.moment_us(line, "at")],
        expires_at_us=[world.moment_us(line, "expires")],
        timestamps_us=[sent_us],
        relative="delay" in line.options,
    )


def _next(world: World, line: Line) -> commands.Command:
    return commands.Next(
        table=line.words[0],
        count=int(line.options.get("count", "1")),
        domain=line.options.get("domain", "").encode(),
        lease_us=_us(line, "lease"),
        done=line.on("done", default=False),
    )


def _fail(world: World, line: Line) -> commands.Command:
    return commands.Fail(
        table=line.words[0],
        xids=world.hands.xids(line),
        delay_us=_us(line, "delay"),
        counts=line.on("counts", default=True),
        buries=line.on("buries", default=False),
        reason=_reason(line),
    )


def _extend(world: World, line: Line) -> commands.Command:
    return commands.Extend(
        table=line.words[0], xids=world.hands.xids(line), lease_us=_us(line, "lease")
    )


def _reschedule(world: World, line: Line) -> commands.Command:
    is_dated = "at" in line.options or "delay" in line.options
    return commands.Reschedule(
        table=line.words[0],
        keys=line.keys(),
        priority=int(line.options["priority"]) if "priority" in line.options else None,
        process_at_us=_us(line, "delay") or world.moment_us(line, "at") if is_dated else None,
        relative="delay" in line.options,
    )


def _redrive(world: World, line: Line) -> commands.Command:
    rows = _dead_rows(world, line)
    return commands.Revive(table=line.words[0], rows=rows, delay_us=_us(line, "delay"))


def _dead_rows(world: World, line: Line) -> list[int]:
    """Returns the rows of the dead jobs with these keys, or of all of them."""
    page = world.ask(commands.Peek(table=line.words[0], state=State.DEAD))
    assert isinstance(page, commands.JobPage)
    keys = line.keys().rows() if len(line.words) > 1 else page.keys.rows()
    return [row for row, key in zip(page.rows, page.keys.rows(), strict=True) if key in keys]


def _peek(state: State) -> Callable[[World, Line], commands.Command]:
    return lambda world, line: commands.Peek(
        table=line.words[0], state=state, domain=line.options.get("domain", "").encode()
    )


def _reason(line: Line) -> bytes:
    return line.options.get("reason", "").replace("_", " ").encode()


def _us(line: Line, name: str, otherwise: int = 0) -> int:
    text = line.options.get(name)
    return otherwise if text is None else round(float(text) * SECOND_US)


COMMANDS: dict[str, Callable[[World, Line], commands.Command]] = {
    "jobs": _jobs,
    "push": _push,
    "next": _next,
    "done": lambda world, line: commands.Finish(table=line.words[0], xids=world.hands.xids(line)),
    "touch": _extend,
    "fail": _fail,
    "cancel": lambda world, line: commands.Cancel(table=line.words[0], keys=line.keys()),
    "reschedule": _reschedule,
    "bury": lambda world, line: commands.Bury(
        table=line.words[0], keys=line.keys(), reason=_reason(line)
    ),
    "peek": _peek(State.WAITING),
    "taken": _peek(State.TAKEN),
    "dead": _peek(State.DEAD),
    "find": lambda world, line: commands.Find(table=line.words[0], keys=line.keys()),
    "redrive": _redrive,
    "discard": lambda world, line: commands.Discard(
        table=line.words[0], rows=_dead_rows(world, line)
    ),
    "count": lambda world, line: commands.CountJobs(
        table=line.words[0], domain=line.options.get("domain", "").encode()
    ),
}


# -- answers --------------------------------------------------------------------------------------


def shown(reply: commands.Reply, begin_us: int, words: Sequence[str] = ()) -> str | None:
    """Returns an answer about jobs in plain words; None if it is about something else."""
    if isinstance(reply, commands.Taken):
        if reply.rows:
            return "\n".join(_shown_job(reply, row, begin_us) for row in range(len(reply.rows)))
        until = f" until {_seconds(reply.next_at_us, begin_us)}" if reply.next_at_us else ""
        return f"nothing{until}"
    if isinstance(reply, commands.JobPage):
        rows = [_shown_row(reply, row, begin_us) for row in range(len(reply.rows))]
        return "\n".join(rows) or "nothing"
    if isinstance(reply, commands.Acted):
        missing = [words[at] if at < len(words) else f"number {at + 1}" for at in reply.missing]
        return f"not there: {' '.join(missing)}" if missing else "done"
    if isinstance(reply, commands.Numbers):
        names = [name.decode() for name in reply.names.rows()]
        found = dict(zip(names, reply.values, strict=True))
        next_at_us = found.pop("next_at_us")
        told = [f"{name} {number}" for name, number in found.items()]
        told += [f"next at {_seconds(next_at_us, begin_us)}"] if next_at_us else []
        return ", ".join(told)
    return None


def _shown_job(jobs_: commands.Taken | commands.JobPage, row: int, begin_us: int) -> str:
    """Says key and value, and of the rest what is not as usual."""
    value = values.decode(jobs_.types[row], jobs_.values[row])
    key = jobs_.keys[row].decode() or '""'
    shown = [key, json.dumps(value.decode() if isinstance(value, bytes) else value)]
    if jobs_.priorities[row] != jobs.Priority.DEFAULT:
        shown.append(f"priority={jobs_.priorities[row]}")
    if jobs_.timeouts[row]:
        shown.append(f"timeouts={jobs_.timeouts[row]}")
    if jobs_.domains[row]:
        shown.append(f"domain={jobs_.domains[row].decode()}")
    if jobs_.expires_at_us[row]:
        shown.append(f"expires={_seconds(jobs_.expires_at_us[row], begin_us)}")
    return " ".join(shown)


def _shown_row(page: commands.JobPage, row: int, begin_us: int) -> str:
    shown = _shown_job(page, row, begin_us)
    if page.xids[row]:
        return f"{shown} until={_seconds(page.moments_us[row], begin_us)}"
    if page.moments_us[row]:
        died, reason = _seconds(page.moments_us[row], begin_us), page.reasons[row].decode()
        return f"{shown} died={died}: {reason}"
    return f"{shown} at={_seconds(page.process_at_us[row], begin_us)}"


def _seconds(moment_us: int, begin_us: int) -> str:
    return f"{(moment_us - begin_us) / SECOND_US:.12g}"
