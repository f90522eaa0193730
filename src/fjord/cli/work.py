"""`fjord work`: runs a command for each job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from fjord.cli import arguments, output
from fjord.cli.arguments import Domain, Node, TableName, is_there, option, wake_address
from fjord.cli.output import tell
from fjord.errors import UsageError
from fjord.wire.wakeups import is_shared

if TYPE_CHECKING:
    from fjord.client.blocking.jobs import Job
    from fjord.worker import Result, WorkOptions

WORKERS_MAX = 256
POLL, POLL_MIN = 30.0, 0.01
_STOP = "taking no new jobs; a second signal gives back the running ones"


Exec = Annotated[str, option("The shell command to run for each job.", "--exec", metavar="CMD")]
KeptLease = Annotated[
    float,
    option(
        "Seconds after which the job of a dead worker waits again.", parser=arguments.read_lease
    ),
]
Timeout = Annotated[
    float | None,
    option(
        "Seconds that a command may run.",
        parser=arguments.seconds(arguments.SOME),
        shown="no limit",
    ),
]
Backoff = Annotated[
    float,
    option(
        "Seconds that a job waits after its first failure; doubled each time, up to five minutes.",
        parser=arguments.seconds(),
    ),
]
Wake = Annotated[
    str,
    option(
        "Wait for wake-ups at this address, that of `fjord serve --wake`, instead of on "
        "the server.",
        shown="off",
    ),
]
Poll = Annotated[
    float | None,
    option(
        "With --wake: also ask for jobs this often, in seconds.",
        parser=arguments.seconds(POLL_MIN, arguments.WAIT_MAX),
        shown="30",
    ),
]


def work(
    node: Node,
    table: TableName,
    command: Exec,
    lease: KeptLease = 60.0,
    domain: Domain = "",
    workers: Annotated[int, option("Commands at a time.", min=1, max=WORKERS_MAX)] = 1,
    once: Annotated[bool, option("Work on one job per worker, and exit.", "--once")] = False,
    drain: Annotated[
        bool, option("Exit when no job is due, instead of waiting.", "--drain")
    ] = False,
    timeout: Timeout = None,
    backoff: Backoff = 1.0,
    wake: Wake = "",
    poll: Poll = None,
) -> None:
    """Runs a command for each due job, until SIGTERM or Ctrl-C.

    The value is its standard input; FJORD_TABLE, FJORD_KEY, FJORD_TYPE, FJORD_XID,
    FJORD_PRIORITY, FJORD_DOMAIN and FJORD_TIMEOUTS are in its environment. Exit code 0 means
    done; with any other the job has failed, and the reason is that code with the last line of
    standard error. The lease is renewed while the command runs. After the first signal the worker
    takes no new jobs and waits for the running ones; the second gives them back.

    Exit code 1 after a second signal; with --once and --drain also if a job is not done, for
    example because it failed; with --once also if there was no job.

    Example: fjord work mails --exec ./send-mail --workers 4 --timeout 30

    Example: fjord work pages --exec 'curl -sSf "$FJORD_KEY" >/dev/null' --drain
    """
    from fjord.worker import Result, Worker, WorkOptions

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
        out=sys.stderr.fileno() if node.as_json else None,
        on_result=_print_json if node.as_json else _tell_result,
        on_stop=lambda: tell(_STOP, style="dim"),
        on_unavailable=lambda text: tell(f"fjord: {text}"),
    )
    _check(options, node.data, is_polled=poll is not None)
    with node.open() as waiting:
        if not is_there(waiting, table):
            tell(f"there is no table {table} yet", style="dim")
        # One process writes to a directory, so all threads share it.
        worker = Worker(options, waiting, None if node.data else node.open)
        worker.run()
    counts = worker.counts
    text = ", ".join(f"{count} {result}" for result, count in counts.items() if count)
    node.done(text or "0 done", **{one.replace(" ", "_"): count for one, count in counts.items()})
    total = sum(counts.values())
    is_undone = (once or drain) and counts[Result.DONE] != total
    output.exit_if(worker.was_cut or is_undone or (once and not total))


def _check(options: WorkOptions, data: str, *, is_polled: bool) -> None:
    if not options.command.strip():
        raise UsageError("--exec needs a command")
    if options.once and options.drain:
        raise UsageError("--once and --drain exclude each other; give one of them")
    if not options.wake:
        if is_polled:
            raise UsageError("--poll needs --wake; without it, a worker waits on the server")
        return
    if data:
        raise UsageError("--wake needs a daemon; give --to instead of --data")
    if not is_shared(wake_address(options.wake)) and options.workers > 1:
        raise UsageError(
            f"only one worker can listen at {options.wake}; for several, give a port alone"
        )


def _print_json(job: Job, result: Result, reason: str, seconds: float) -> None:
    what = {"key": job.key, "xid": job.xid, "result": result, "reason": reason}
    output.print_json({**what, "seconds": round(seconds, 3)})


def _tell_result(job: Job, result: Result, reason: str, seconds: float) -> None:
    text = f"{result} {job.key}"
    tell(f"{text}: {reason}" if reason else text)
