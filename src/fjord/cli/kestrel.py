"""`fjord kestrel`: what the journals of a Kestrel say, and whether they are whole."""

from __future__ import annotations

import logging
from typing import Annotated, Final

import typer

from fjord import limits
from fjord.cli import kestrel_moving, output
from fjord.cli.arguments import (
    DAEMON,
    Awake,
    Json,
    LogForm,
    LogFormat,
    Verbose,
    check_directory,
    loopback,
    shown_address,
)
from fjord.cli.output import EXIT_ERROR, Bar, explained, tell, usage
from fjord.client.address import parse_url
from fjord.clock import SystemClock
from fjord.errors import DirectoryError, UsageError

app = typer.Typer(
    name="kestrel",
    help="Shows, verifies, packs, serves and moves the queues of a Kestrel, or of a Starling.",
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
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Answer byte for byte as Kestrel; clients of memcached may not understand it.",
    ),
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
                damaged = damaged or file.is_damaged or file.changed is not None
                if file.broken is not None:
                    tell(reports.broken_sentence(file))
                if file.changed is not None:
                    tell(reports.changed_sentence(file))
            for lost in found.missing:
                damaged = True
                tell(lost.sentence)
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
            for line in reports.foreign(directory):
                output.print_line(line)
            output.print_line(verdict.sentence())
    if verdict.damaged:
        raise typer.Exit(EXIT_ERROR)


@app.command()
def pack(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A directory of queues.", show_default=False)
    ],
    queue: Queue = "",
    dialect: Annotated[
        str, typer.Option(help="kestrel-2.4, or kestrel-doc as its document says.")
    ] = "kestrel-2.4",
    largest_item_mib: LargestItem = 64,
    as_json: Json = False,
) -> None:
    """Replaces the files of each queue by one that has what is in the queue, and no more.

    Open items stay open. What is damaged is kept in a file of its own, and told. No Kestrel may
    run on the directory meanwhile.

    Example: fjord kestrel pack /var/spool/kestrel
    """
    from fjord.cli import kestrel_pack

    has_failed = False
    with explained(repairable=False):
        if dialect not in kestrel_pack.DIALECTS:
            raise UsageError(f"--dialect is one of {', '.join(kestrel_pack.DIALECTS)}")
        for one in kestrel_pack.pack(directory, queue, dialect, largest_item_mib * limits.MIB):
            if isinstance(one, DirectoryError):
                has_failed = True
                tell(f"fjord: {one}", style="red")
                continue
            if as_json:
                output.print_json(kestrel_pack.as_json(one))
            else:
                output.print_line(kestrel_pack.line(one))
            for alert in one.alerts:
                has_failed = True
                tell(alert)
    if has_failed:
        raise typer.Exit(EXIT_ERROR)


@app.command()
def serve(
    directory: Annotated[
        str, typer.Option("--dir", help="Directory of the queues; made if it is not there.")
    ] = "",
    to: Annotated[
        str, typer.Option(help="A daemon whose jobs tables are the queues, instead of --dir.")
    ] = "",
    listen: Annotated[
        str, typer.Option(help="Loopback address and port, or a port alone, for memcache.")
    ] = "127.0.0.1:22133",
    text: Annotated[
        str, typer.Option(help="The same for the text protocol, or off.")
    ] = "127.0.0.1:2222",
    config: Annotated[
        str, typer.Option(help="A JSON file that says how queues behave.", metavar="FILE")
    ] = "",
    exact: Exact = False,
    largest_item_mib: Annotated[
        int,
        typer.Option("--largest-item-mib", help="Larger items are refused.", min=1, max=64),
    ] = 64,
    max_connections: Annotated[
        int, typer.Option(help="Connections at a time; further ones are closed.", min=1)
    ] = limits.CONNECTIONS_MAX,
    awake_us: Awake = None,
    log_format: LogForm = LogFormat.text,
    verbose: Verbose = False,
) -> None:
    """Serves queues as Kestrel does, until SIGTERM or Ctrl-C.

    Clients of Kestrel go on as they are. Answers wait for the disk, unless the configuration says
    that they do not. No Kestrel may run on the directory meanwhile.

    Example: fjord kestrel serve --dir /var/spool/kestrel --listen 127.0.0.1:22133

    Example: fjord kestrel serve --to fjord://127.0.0.1:17994
    """
    from fjord.cli import kestrel_serving
    from fjord.server import logs

    def ready(at: tuple[str, int], text_at: tuple[str, int] | None) -> None:
        words = ["ready", shown_address("memcache", at)]
        typer.echo(" ".join([*words, *([shown_address("text", text_at)] if text_at else [])]))

    with explained(repairable=False):
        if bool(directory) == bool(to):
            raise UsageError("give --dir with a directory, or --to with a daemon")
        if to and config:
            raise UsageError("--config is for --dir; tables of a daemon have settings of their own")
        with usage():
            parse_url(to or DAEMON)
        check_directory(directory)
        serving = kestrel_serving.Serving(
            directory=directory,
            to=to,
            at=loopback(listen),
            text_at=None if text == "off" else loopback(text),
            config=config,
            is_exact=exact,
            item_bytes_max=largest_item_mib * limits.MIB,
            connections_max=max_connections,
            awake_us=awake_us,
            on_ready=ready,
        )
        logs.set_up(log_format, logging.DEBUG if verbose else logging.INFO)
        kestrel_serving.serve(serving)


app.command(name="import")(kestrel_moving.import_)
app.command()(kestrel_moving.export)
