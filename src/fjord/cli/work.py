"""`fjord work`: a ready worker that runs a command for each job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fjord.cli import arguments, output
from fjord.cli.arguments import (
    DAEMON,
    Data,
    Domain,
    Json,
    TableName,
    To,
    database,
    is_there,
    wake_address,
)
from fjord.cli.output import EXIT_ERROR, explained, tell
from fjord.errors import UsageError
from fjord.wire.wakeups import is_shared

if TYPE_CHECKING:
    from fjord.worker import JobResult, Result, Worker, WorkOptions

WORKERS_MAX = 256
POLL, POLL_MIN = 30.0, 0.01


Exec = Annotated[
    str, typer.Option("--exec", metavar="CMD", help="What the shell runs for each job.")
]
KeptLease = Annotated[
    float,
    typer.Option(
        parser=arguments.seconds(arguments.SOME, arguments.LEASE_MAX),
        help="Seconds after which a job of a worker that died waits again.",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        parser=arguments.seconds(arguments.SOME),
        help="Seconds that a command may run.",
        show_default="no end",
    ),
]
Backoff = Annotated[
    float,
    typer.Option(
        parser=arguments.seconds(),
        help="Seconds that a job waits after its first failure; twice as long each time, "
        "at most five minutes.",
    ),
]
Wake = Annotated[
    str,
    typer.Option(
        help="Where `fjord serve --wake` sends wake-ups to: ask when one comes, instead of "
        "waiting on the server.",
        show_default="off",
    ),
]
Poll = Annotated[
    float | None,
    typer.Option(
        parser=arguments.seconds(POLL_MIN, arguments.WAIT_MAX),
        help="With --wake: ask this often, in seconds, also if none comes.",
        show_default="30",
    ),
]


def work(
    table: TableName,
    command: Exec,
    lease: KeptLease = 60.0,
    domain: Domain = "",
    workers: Annotated[int, typer.Option(help="Commands at a time.", min=1, max=WORKERS_MAX)] = 1,
    once: Annotated[
        bool, typer.Option("--once", help="Work on one job a worker, and end.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="End when nothing is due, instead of waiting.")
    ] = False,
    timeout: Timeout = None,
    backoff: Backoff = 1.0,
    wake: Wake = "",
    poll: Poll = None,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Runs a command for each job that is due, until SIGTERM or Ctrl-C.

    The value is its standard input; FJORD_TABLE, FJORD_KEY, FJORD_TYPE, FJORD_XID,
    FJORD_PRIORITY, FJORD_DOMAIN and FJORD_TIMEOUTS are in its environment. Exit code 0 is done;
    with any other the job has failed, and the reason is that code with the last line of standard
    error. While the command runs, its lease is kept. The first signal takes no new jobs and waits
    for those under way, the second gives them back.

    Exit code 1 after a second signal; with --once and --drain also if a job is not done, as when
    it failed; with --once also if there was no job.

    Example: fjord work mails --exec ./send-mail --workers 4 --timeout 30

    Example: fjord work pages --exec 'curl -sSf "$FJORD_KEY" >/dev/null' --drain
    """
    from fjord.worker import Result, WorkOptions

    options = WorkOptions(
        table=table,
        command=command,
        lease=lease,
        domain=domain or None,
        workers=workers,
        timeout=timeout,
        backoff=backoff,
        wake=wake,
        poll=POLL if poll is None else poll,
        once=once,
        drain=drain,
        out=sys.stderr.fileno() if as_json else None,
        on_result=_print_json if as_json else _tell_result,
        on_stop=_tell_stop,
        on_unavailable=lambda text: tell(f"fjord: {text}"),
    )
    with explained():
        if not command.strip():
            raise UsageError("--exec needs a command")
        if once and drain:
            raise UsageError("--once and --drain both say when to end; give one of them")
        if wake:
            _check_wake(options, data)
        elif poll is not None:
            raise UsageError("--poll goes with --wake; without, a worker waits on the server")
        worker = _run(options, to, data)
    counts = worker.counts
    _tell_counts(counts, as_json=as_json)
    total = sum(counts.values())
    is_undone = (once or drain) and counts[Result.DONE] != total
    if worker.was_cut or is_undone or (once and not total):
        raise typer.Exit(EXIT_ERROR)


def _print_json(found: JobResult) -> None:
    output.print_json(
        {
            "key": found.job.key,
            "xid": found.job.xid,
            "result": found.result,
            "reason": found.reason,
            "seconds": round(found.seconds, 3),
        }
    )


def _tell_result(found: JobResult) -> None:
    text = f"{found.result} {found.job.key}"
    tell(f"{text}: {found.reason}" if found.reason else text)


def _tell_counts(counts: dict[Result, int], *, as_json: bool) -> None:
    if as_json:
        output.print_json({result.replace(" ", "_"): count for result, count in counts.items()})
    else:
        tell(
            ", ".join(f"{count} {result}" for result, count in counts.items() if count) or "0 done"
        )


def _tell_stop() -> None:
    tell("no new jobs; a second signal gives back those under way", style="dim")


def _check_wake(options: WorkOptions, data: str) -> None:
    if data:
        raise UsageError("--wake is of a daemon; nobody sends wake-ups for a directory")
    if not is_shared(wake_address(options.wake)) and options.workers > 1:
        raise UsageError(
            f"{options.wake} is heard by one worker only; give a port alone for several of them"
        )


def _run(options: WorkOptions, to: str, data: str) -> Worker:
    from fjord.worker import Worker

    with database(to, data) as waiting:
        # One process writes to a directory, so all threads share it.
        if not is_there(waiting, options.table):
            tell(f"there is no table {options.table} yet", style="dim")
        worker = Worker(options, waiting, None if data else lambda: database(to, data))
        worker.run()
        return worker
