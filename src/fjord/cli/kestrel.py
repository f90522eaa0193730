"""`fjord kestrel`: what the journals of a Kestrel say, and whether they are whole."""

from __future__ import annotations

import enum
import logging
from typing import Annotated

import typer

from fjord import limits
from fjord.cli import arguments, output
from fjord.cli.output import Bar, explained, tell, usage
from fjord.client.address import parse_url
from fjord.clock import SystemClock
from fjord.errors import DirectoryError, UsageError

app = typer.Typer(
    name="kestrel",
    help="Shows, verifies, packs, serves and moves the queues of a Kestrel, or of a Starling.",
    no_args_is_help=True,
)

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="A directory of queues.", show_default=False)
]
Queue = Annotated[str, typer.Option("--queue", help="Only this queue.", metavar="NAME")]
# The largest item that a journal can hold at all has 2047 MiB.
LargestItem = Annotated[
    int, typer.Option("--largest-item-mib", help="Larger items are damage.", min=1, max=2047)
]
Queues = Annotated[
    list[str] | None, typer.Option("--queue", help="Only this queue; repeatable.", metavar="NAME")
]
Tables = Annotated[
    list[str] | None,
    typer.Option("--table", help="Another name for a table; repeatable.", metavar="QUEUE=TABLE"),
]
Anew = Annotated[bool, typer.Option("--anew", help="Import all, whatever was imported before.")]
Moved = Annotated[bool, typer.Option("--moved", help="The directory was moved; continue there.")]
SkipTooLarge = Annotated[
    bool, typer.Option("--skip-too-large", help="Leave out items of more than 1 MiB.")
]
Damaged = Annotated[bool, typer.Option("--damaged", help="Import what damaged files still hold.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


class ItemsAs(enum.StrEnum):
    """What items become."""

    JOBS = "jobs"
    STREAM = "stream"


As = Annotated[ItemsAs, typer.Option("--as", help="What items become.")]


@app.command()
def dump(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="DIR|FILE...", help="Directories, or files.", show_default=False),
    ],
    queue: Queue = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the sums.")] = False,
    contents: Annotated[bool, typer.Option("--contents", "-d", help="Data of items, too.")] = False,
    raw: Annotated[bool, typer.Option("--raw", "-A", help="Only the data of all items.")] = False,
    raw_queue: Annotated[
        bool, typer.Option("--raw-queue", "-Q", help="Only the data of items in the queue.")
    ] = False,
    largest_item_mib: LargestItem = 64,
    as_json: arguments.Json = False,
) -> None:
    """Prints the ops of journals, one line an op, as Kestrel's qdump does.

    The files of a queue in a directory are one journal; a file that is named alone is one by
    itself. Ends with 1 if something is damaged; what is before it, and in later files, is printed.

    Example: fjord kestrel dump /var/spool/kestrel --queue cars
    """
    from fjord.cli import kestrel_output
    from fjord.kestrel.reader import ReadOptions

    with explained(repairable=False):
        if raw + raw_queue + as_json > 1:
            raise UsageError("--raw, --raw-queue and --json each say how to print; give one")
        now_ms = SystemClock().wall_us() // 1000
        style = kestrel_output.Style(
            now_ms=now_ms,
            is_quiet=quiet,
            has_contents=contents,
            is_raw=raw,
            is_raw_queue=raw_queue,
            is_json=as_json,
        )
        options = ReadOptions(now_ms=now_ms, item_bytes_max=largest_item_mib * limits.MIB)
        journals = kestrel_output.journals(paths, queue)
        damaged = [kestrel_output.dump(found, style, options) for found in journals]
    output.exit_if(any(damaged))


@app.command()
def verify(
    directory: Directory,
    queue: Queue = "",
    largest_item_mib: LargestItem = 64,
    as_json: arguments.Json = False,
) -> None:
    """Reads every op of every file of every queue, and says what there is and what is damaged.

    Ends with 1 if something is damaged. A torn tail of a queue's last file is no damage: its
    writer died in the middle of an op.

    Example: fjord kestrel verify /var/spool/kestrel
    """
    from fjord.cli import kestrel_output
    from fjord.disk import LocalDisk
    from fjord.kestrel import inspect, reader

    found: list[inspect.QueueReport] = []
    with explained(repairable=False), Bar("verifying") as bar:
        options = reader.ReadOptions(item_bytes_max=largest_item_mib * limits.MIB)
        surveys = reader.surveys(LocalDisk(), directory, queue, passes_unreadable=True)
        for one in inspect.verify(surveys, bar.update, options):
            found.append(one)
            if as_json:
                output.print_json(kestrel_output.queue_json(one))
                continue
            for line in kestrel_output.queue_lines(one):
                output.print_line(line)
        if not as_json:
            for line in kestrel_output.foreign(directory):
                output.print_line(line)
            output.print_line(kestrel_output.verdict(found))
    output.exit_if(any(one.is_damaged for one in found))


@app.command()
def pack(
    directory: Directory,
    queue: Queue = "",
    dialect: Annotated[str, typer.Option(help="kestrel-2.4 or kestrel-doc.")] = "kestrel-2.4",
    largest_item_mib: LargestItem = 64,
    as_json: arguments.Json = False,
) -> None:
    """Replaces the files of each queue by one that has what is in the queue, and no more.

    Open items stay open. What is damaged is kept in a file of its own, and told. No Kestrel may
    run on the directory meanwhile.

    Example: fjord kestrel pack /var/spool/kestrel
    """

    from fjord.cli import kestrel_output
    from fjord.disk import LocalDisk
    from fjord.kestrel import collection
    from fjord.kestrel.codec import Dialect
    from fjord.kestrel.config import QueueConfig

    has_failed = False
    with explained(repairable=False):
        if dialect not in list(Dialect):
            raise UsageError(f"--dialect is one of {', '.join(Dialect)}")
        for one in collection.pack_queues(
            LocalDisk(),
            directory,
            queue,
            QueueConfig(dialect=Dialect(dialect)),
            SystemClock(),
            item_bytes_max=largest_item_mib * limits.MIB,
        ):
            if isinstance(one, DirectoryError):
                has_failed = True
                tell(f"fjord: {one}", style="red")
                continue
            output.print_one(one._asdict(), kestrel_output.pack_line(one), as_json=as_json)
            for alert in one.alerts:
                has_failed = True
                tell(alert)
    output.exit_if(has_failed)


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
    exact: Annotated[
        bool, typer.Option("--exact", help="Answer byte for byte as Kestrel, not as memcached.")
    ] = False,
    largest_item_mib: Annotated[int, typer.Option(help="Larger: refused.", min=1, max=64)] = 64,
    max_connections: Annotated[
        int, typer.Option(help="Connections at a time; further ones are closed.", min=1)
    ] = limits.CONNECTIONS_MAX,
    awake_us: arguments.Awake = None,
    log_format: arguments.LogForm = arguments.LogFormat.text,
    verbose: arguments.Verbose = False,
) -> None:
    """Serves queues as Kestrel does, until SIGTERM or Ctrl-C.

    Clients of Kestrel go on as they are. Answers wait for the disk, unless the configuration says
    that they do not. No Kestrel may run on the directory meanwhile.

    Example: fjord kestrel serve --dir /var/spool/kestrel --listen 127.0.0.1:22133

    Example: fjord kestrel serve --to fjord://127.0.0.1:17994
    """
    from fjord.kestrel import service
    from fjord.kestrel.server import ServerOptions
    from fjord.server import logs
    from fjord.server.service import default_awake_us

    def ready(at: tuple[str, int], text_at: tuple[str, int] | None) -> None:
        text_shown = [arguments.shown_address("text", text_at)] if text_at else []
        typer.echo(" ".join(["ready", arguments.shown_address("memcache", at), *text_shown]))

    with explained(repairable=False):
        if bool(directory) == bool(to):
            raise UsageError("give --dir with a directory, or --to with a daemon")
        if to and config:
            raise UsageError("--config is for --dir; tables of a daemon have settings of their own")
        with usage():
            parse_url(to or arguments.DAEMON)
        arguments.check_directory(directory)
        serving = service.ServiceOptions(
            directory=directory,
            to=to,
            at=arguments.loopback(listen),
            text_at=None if text == "off" else arguments.loopback(text),
            config=config,
            server=ServerOptions(
                is_exact=exact,
                item_bytes_max=largest_item_mib * limits.MIB,
                connections_max=max_connections,
                awake_us=default_awake_us() if awake_us is None else awake_us,
            ),
            on_ready=ready,
        )
        logs.set_up(log_format, logging.DEBUG if verbose else logging.INFO)
        service.serve(serving)


@app.command(name="import")
def import_(
    directory: Directory,
    to: arguments.To = arguments.DAEMON,
    queue: Queues = None,
    table: Tables = None,
    as_: As = ItemsAs.JOBS,
    anew: Anew = False,
    moved: Moved = False,
    skip_too_large: SkipTooLarge = False,
    damaged: Damaged = False,
    dry_run: DryRun = False,
    as_json: arguments.Json = False,
) -> None:
    """Copies what is in queues to tables of a daemon, in order, and each item once.

    A queue becomes a jobs table that does not merge, as `fjord kestrel serve --to` makes them. If
    it is cut short, by whatever, the same command goes on where it was. The directory is only
    read; stop the Kestrel first, so that nothing is added meanwhile.

    Example: fjord kestrel import /var/spool/kestrel --to fjord://127.0.0.1:17994

    Example: fjord kestrel import /var/spool/kestrel --table cars+seo=cars_seo
    """
    from fjord.cli import kestrel_output
    from fjord.cli.pipelines import running
    from fjord.kestrel.importer import Importer, ImportOptions, ImportOutcome
    from fjord.kinds import Kind

    found: list[ImportOutcome] = []
    with explained(repairable=False), running.progress() as show:
        with usage():
            parse_url(to)
        options = ImportOptions(
            directory=directory,
            url=to,
            queues=queue or (),
            tables=table or (),
            kind=Kind[as_.name],
            anew=anew,
            moved=moved,
            dry_run=dry_run,
            skip_too_large=skip_too_large,
            damaged=damaged,
        )
        importer = Importer(options, show)
        for plan in importer.plans():
            one = importer.send(plan)
            found.append(one)
            for sentence in one.damaged:
                tell(sentence, style="yellow")
            what = kestrel_output.import_json(one)
            output.print_one(what, kestrel_output.import_line(one), as_json=as_json)
    if not as_json:
        output.print_line(kestrel_output.import_total(found))


@app.command(name="export")
def export_(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A jobs table or a stream.", show_default=False)
    ],
    directory: Annotated[
        str, typer.Option("--dir", help="Directory of queues; made if it is not there.")
    ],
    from_: Annotated[str, typer.Option("--from", help="Address of the daemon.")] = arguments.DAEMON,
    queue: Annotated[
        str, typer.Option(help="The queue.", metavar="NAME", show_default="named as the table")
    ] = "",
    after: Annotated[
        int | None, typer.Option(help="Of a stream, messages behind this seq only.", min=0)
    ] = None,
    subscriber: Annotated[
        str,
        typer.Option(help="Of a stream, what this one has not processed only.", metavar="NAME"),
    ] = "",
    append: Annotated[
        bool, typer.Option("--append", help="Add behind what the queue has.")
    ] = False,
    as_json: arguments.Json = False,
) -> None:
    """Writes what waits in a jobs table, or is in a stream, as a queue of Kestrel's.

    All of it or nothing: the queue is there when it is whole and on disk. The table stays as it
    is. Nobody may work on a jobs table meanwhile, and no Kestrel may run on the directory.

    Example: fjord kestrel export cars --dir /var/spool/kestrel
    """
    import dataclasses

    from fjord.cli import kestrel_output
    from fjord.kestrel.exporter import ExportOptions, export

    with explained(repairable=False), Bar("exporting") as bar:
        if not directory:
            raise UsageError("give --dir with a directory")
        with usage():
            parse_url(from_)
        arguments.check_directory(directory)
        options = ExportOptions(
            table=table,
            url=from_,
            directory=directory,
            queue=queue,
            after=after,
            subscriber=subscriber,
            appends=append,
        )
        outcome = export(options, bar.update)
    what = dataclasses.asdict(outcome)
    output.print_one(what, kestrel_output.export_line(outcome), as_json=as_json)
