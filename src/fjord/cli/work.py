"""`fjord work`: a ready worker that runs a command for each job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from fjord.cli import arguments, output
from fjord.cli.arguments import Domain, Node, TableName, is_there, option, wake_address
from fjord.cli.output import tell
from fjord.errors import UsageError
from fjord.wire.wakeups import is_shared

if TYPE_CHECKING:
    from fjord.worker import JobResult, WorkOptions

WORKERS_MAX = 256
POLL, POLL_MIN = 30.0, 0.01
_STOP = "no new jobs; a second signal gives back those under way"


Exec = Annotated[str, option("What the shell runs for each job.", "--exec", metavar="CMD")]
KeptLease = Annotated[
    float,
    option(
        "Seconds after which a job of a worker that died waits again.",
        parser=arguments.read_lease,
    ),
]
Timeout = Annotated[
    float | None,
    option(
        "Seconds that a command may run.", parser=arguments.seconds(arguments.SOME), shown="no end"
    ),
]
Backoff = Annotated[
    float,
    option(
        "Seconds that a job waits after its first failure; twice as long each time, "
        "at most five minutes.",
        parser=arguments.seconds(),
    ),
]
Wake = Annotated[
    str,
    option(
        "Where `fjord serve --wake` sends wake-ups to: ask when one comes, instead of "
        "waiting on the server.",
        shown="off",
    ),
]
Poll = Annotated[
    float | None,
    option(
        "With --wake: ask this often, in seconds, also if none comes.",
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
    once: Annotated[bool, option("Work on one job a worker, and end.", "--once")] = False,
    drain: Annotated[
        bool, option("End when nothing is due, instead of waiting.", "--drain")
    ] = False,
    timeout: Timeout = None,
    backoff: Backoff = 1.0,
    wake: Wake = "",
    poll: Poll = None,
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
    """Refuses what contradicts itself."""
    if not options.command.strip():
        raise UsageError("--exec needs a command")
    if options.once and options.drain:
        raise UsageError("--once and --drain both say when to end; give one of them")
    if not options.wake:
        if is_polled:
            raise UsageError("--poll goes with --wake; without, a worker waits on the server")
        return
    if data:
        raise UsageError("--wake is of a daemon; nobody sends wake-ups for a directory")
    if not is_shared(wake_address(options.wake)) and options.workers > 1:
        raise UsageError(
            f"{options.wake} is heard by one worker only; give a port alone for several of them"
        )


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
