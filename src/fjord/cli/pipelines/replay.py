"""`fjord pipeline replay`: rows of history are written again, exactly once."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fjord.cli import arguments
from fjord.cli.arguments import DAEMON, Data, Json, To
from fjord.cli.output import tell
from fjord.cli.pipelines import running
from fjord.cli.pipelines.running import Conf, DryRun, Master, explained

if TYPE_CHECKING:
    from fjord.spark.pipelines.replay import ReplayOptions

Table = Annotated[str, typer.Argument(metavar="TABLE", help="Whose history.", show_default=False)]
Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="The table to write to.", show_default=False)
]
Into = Annotated[
    str,
    typer.Option(help="The daemon that has the target.", show_default="the one of the table"),
]
Start = Annotated[int, typer.Option(min=1, help="The first seq.")]
End = Annotated[
    int, typer.Option(min=0, help="The first seq not to take.", show_default="the durable end")
]
Since = Annotated[str, typer.Option(help="Only rows from this moment on, as 2026-01-31T12:00:00Z.")]
Until = Annotated[str, typer.Option(help="Only rows from before this moment.")]
Ops = Annotated[
    list[str] | None, typer.Option("--op", help="Only rows of this op; may be given often.")
]
KeyPrefix = Annotated[str, typer.Option(help="Only rows whose keys begin so.")]
Redrive = Annotated[str, typer.Option(help="Only the jobs of a list by `dead-letters`.")]
Pace = Annotated[str, typer.Option(help="`fast`, `original`, or rows a second.")]
Keys = Annotated[str, typer.Option(help="`same`, or `fresh`: with the replay's id at their end.")]
Dates = Annotated[str, typer.Option(help="`moved` with the replay, or the `same` as they were.")]
Id = Annotated[str, typer.Option("--id", help="Go on with this replay.", show_default="a new one")]
BatchRows = Annotated[int, typer.Option(min=1, help="So many rows are written at once.")]

GO_ON: Final = "fjord: interrupted; what is written stays. Run the same again with --id {} to go on"


def replay(
    table: Table,
    target: Target,
    into: Into = "",
    start: Start = 1,
    end: End = 0,
    since: Since = "",
    until: Until = "",
    op: Ops = None,
    key_prefix: KeyPrefix = "",
    redrive: Redrive = "",
    pace: Pace = "fast",
    keys: Keys = "same",
    dates: Dates = "moved",
    replay_id: Id = "",
    batch_rows: BatchRows = 200_000,
    dry_run: DryRun = False,
    to: To = DAEMON,
    data: Data = "",
    master: Master = "",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Writes messages or jobs of a table's history again, to another table or the same.

    Every row is written once, however often the replay is interrupted, also by Ctrl-C: give its id
    again, which it tells at the beginning, and it goes on. A replay that is complete does nothing.
    With --dry-run it only says how many rows there are, by hour and op.

    Example: fjord pipeline replay events events-again --since 2026-11-01T00:00:00Z --dry-run

    Example: fjord pipeline replay pages pages --redrive rows.txt --id redrive-7

    Example: fjord pipeline replay events load-test --pace original --keys fresh
    """
    options: ReplayOptions = {
        "to": into,
        "start": start,
        "end": end,
        "ops": op or (),
        "key_prefix": key_prefix,
        "redrive": redrive,
        "pace": pace,
        "keys": keys,
        "dates": dates,
        "replay_id": replay_id,
        "batch_rows": batch_rows,
        "dry_run": dry_run,
    }
    with explained():
        if (moment := arguments.moment(since)) is not None:
            options["since"] = moment
        if (moment := arguments.moment(until)) is not None:
            options["until"] = moment
        source = running.location(to, data)
        from fjord.spark.pipelines import replay as job

        options["replay_id"] = replay_id or job.new_id()
        job.check(options)
        with running.spark_of(master, conf) as spark, running.progress() as progress:
            if not dry_run:
                tell(f"replay {options['replay_id']}: if it is interrupted, go on with this --id")
            with _stopped_by_interrupt() as options["stop"]:
                report = job.replay(spark, source, table, target, progress=progress, **options)
        if options["stop"].is_set() and not report.figures.get("complete", True):
            tell(GO_ON.format(options["replay_id"]))
            report = dataclasses.replace(report, ok=False)
        running.show(report, as_json=as_json)


@contextlib.contextmanager
def _stopped_by_interrupt() -> Iterator[threading.Event]:
    """Lets Ctrl-C end a replay behind the batch that is being written; a second one ends it now.

    Spark has put its own handler there, which cancels what runs.
    """
    stop = threading.Event()

    def set_stop(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        stop.set()

    before = signal.signal(signal.SIGINT, set_stop)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
