"""`fjord kestrel`: what the journals of a Kestrel say, and whether they are whole."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from fjord import limits
from fjord.cli import output
from fjord.cli.failing import EXIT_ERROR, explained, tell
from fjord.cli.progress import Bar
from fjord.cli.where import Json
from fjord.clock import SystemClock
from fjord.errors import UsageError

app = typer.Typer(
    name="kestrel",
    help="Shows and verifies the queues of a Kestrel, or of a Starling. Nothing is changed.",
    no_args_is_help=True,
)

# The largest item that a journal can hold at all.
_ITEM_MIB_MAX: Final = 2047

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="DIR|FILE...", help="A directory of queues, or journal files.", show_default=False
    ),
]
Queue = Annotated[str, typer.Option("--queue", help="This queue only.", metavar="NAME")]
LargestItem = Annotated[
    int,
    typer.Option("--largest-item-mib", help="Larger items are damage.", min=1, max=_ITEM_MIB_MAX),
]


@app.command()
def dump(
    paths: Paths,
    queue: Queue = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the sums.")] = False,
    contents: Annotated[
        bool, typer.Option("--contents", "-d", help="What is in the items, too.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", "-A", help="What is in all items, as it is, and nothing else.")
    ] = False,
    raw_queue: Annotated[
        bool,
        typer.Option(
            "--raw-queue", "-Q", help="The same of the items that are still in the queue."
        ),
    ] = False,
    largest_item_mib: LargestItem = 64,
    as_json: Json = False,
) -> None:
    """Prints the ops of journals, one line an op, as Kestrel's qdump does.

    The files of a queue in a directory are one journal; a file that is named alone is one by
    itself. Ends with 1 if something is damaged; what is before it, and in later files, is printed.

    Example: fjord kestrel dump /var/spool/kestrel --queue cars
    """
    from fjord.cli import kestrel_reports as reports

    with explained(repairable=False):
        if raw + raw_queue + as_json > 1:
            raise UsageError("--raw, --raw-queue and --json each say how to print; give one")
        now_ms = SystemClock().wall_us() // 1000
        style = reports.Style(
            now_ms=now_ms,
            is_quiet=quiet,
            has_contents=contents,
            is_raw=raw,
            is_raw_queue=raw_queue,
            is_json=as_json,
        )
        damaged = False
        for found in reports.journals(paths, queue):
            options = reports.options(now_ms, largest_item_mib * limits.MIB)
            for file in reports.dump(found, style, options):
                damaged = damaged or file.is_damaged
                if file.broken is not None:
                    tell(reports.broken_sentence(file))
    if damaged:
        raise typer.Exit(EXIT_ERROR)


@app.command()
def verify(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A directory of queues.", show_default=False)
    ],
    queue: Queue = "",
    largest_item_mib: LargestItem = 64,
    as_json: Json = False,
) -> None:
    """Reads every op of every file of every queue, and says what there is and what is damaged.

    Ends with 1 if something is damaged. A torn tail of a queue's last file is no damage: its
    writer died in the middle of an op.

    Example: fjord kestrel verify /var/spool/kestrel
    """
    from fjord.cli import kestrel_reports as reports

    verdict = reports.Verdict()
    with explained(repairable=False), Bar("verifying") as bar:
        options = reports.options(0, largest_item_mib * limits.MIB)
        for one in reports.verify(directory, queue, bar.update, options):
            verdict.add(one)
            if as_json:
                output.print_json(reports.queue_json(one))
                continue
            for line in reports.queue_lines(one):
                output.print_line(line)
        if not as_json:
            for name in reports.foreign(directory):
                output.print_line(f"{name} is no file of a queue")
            output.print_line(verdict.sentence())
    if verdict.damaged:
        raise typer.Exit(EXIT_ERROR)
