"""`fjord kestrel`: what the queues of a Kestrel hold, whether they are whole, and where they go."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from fjord import limits
from fjord.cli import arguments, output
from fjord.cli.arguments import DAEMON, Json, argument, noun, option, verb
from fjord.cli.output import Bar, counted, explained, tell, usage
from fjord.client.address import parse_url
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.errors import DirectoryError, UsageError
from fjord.kestrel import collection, inspect, journal, reader
from fjord.kestrel.codec import Dialect, Op, Opcode, Placed
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.exporter import ExportOptions, export
from fjord.kestrel.importer import Importer, ImportOptions, ImportOutcome
from fjord.kestrel.inspect import QueueReport
from fjord.kestrel.reader import Ending, QueueSurvey, ReadOptions
from fjord.kinds import Kind

app = noun(
    "kestrel", "Shows, verifies, packs, serves and moves the queues of a Kestrel, or of a Starling."
)

Directory = Annotated[str, argument("DIR", "A directory of queues.")]
Queue = Annotated[str, option("Only this queue.", metavar="NAME")]
# The largest item that a journal can hold at all has 2047 MiB.
LargestItem = Annotated[int, option("Larger items are damage.", min=1, max=2047)]

# qdump's words for ops; of CONTINUE and those that add something, the size follows.
_WORDS: Final = {
    Opcode.ADD: "ADD",
    Opcode.REMOVE: "REM",
    Opcode.ADDX: "ADD",
    Opcode.REMOVE_TENTATIVE: "RSV",
    Opcode.SAVE_XID: "XID",
    Opcode.UNREMOVE: "CAN",
    Opcode.CONFIRM_REMOVE: "ACK",
    Opcode.ADD_XID: "ADD",
    Opcode.CONTINUE: "CON",
    Opcode.REMOVE_TENTATIVE_XID: "RSV",
    Opcode.STATE_DUMP: "DMP",
}


# -- dump -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What of a journal is printed, and how: options of `dump`."""

    quiet: Annotated[bool, option("Only the sums.", "--quiet", "-q")] = False
    contents: Annotated[bool, option("Data of items, too.", "--contents", "-d")] = False
    raw: Annotated[bool, option("Only the data of all items.", "--raw", "-A")] = False
    raw_queue: Annotated[
        bool, option("Only the data of items in the queue.", "--raw-queue", "-Q")
    ] = False


@verb(app)
@explained(repairable=False)
def dump(
    style: Style,
    paths: Annotated[list[str], argument("DIR|FILE...", "Directories, or files.")],
    queue: Queue = "",
    largest_item_mib: LargestItem = 64,
) -> None:
    """Prints the ops of journals, one line an op, as Kestrel's qdump does.

    The files of a queue in a directory are one journal; a file that is named alone is one by
    itself. Ends with 1 if something is damaged; what is before it, and in later files, is printed.

    Example: fjord kestrel dump /var/spool/kestrel --queue cars
    """
    if style.raw and style.raw_queue:
        raise UsageError("--raw and --raw-queue each say what to print; give one")
    now_ms = SystemClock().wall_us() // 1000
    options = ReadOptions(now_ms=now_ms, item_bytes_max=largest_item_mib * limits.MIB)
    damaged = [_dump(found, style, options) for found in _surveys(paths, queue)]
    output.exit_if(any(damaged))


def _surveys(paths: Sequence[str], queue: str) -> Iterator[QueueSurvey]:
    """Yields the queues of directories; a file is a journal of its own."""
    for path in paths:
        if os.path.isdir(path):
            yield from reader.surveys(LocalDisk(), path, queue)
        elif queue:
            raise UsageError(f"{path} is not a directory; --queue names a queue of one")
        else:
            yield reader.alone(LocalDisk(), path)


def _dump(found: QueueSurvey, style: Style, options: ReadOptions) -> bool:
    """Prints a journal, and what is wrong with it; says whether something is."""
    is_text = not (style.raw or style.raw_queue)
    # A file that was named alone is no queue of a directory.
    is_alone = [file.path for file in found.files] == [found.queue]
    # The sums of many queues need their names; qdump has one journal, and does without.
    if is_text and not (style.quiet and is_alone):
        output.print_line(f"Queue: {found.queue}")
    size = 0
    items, files = inspect.replayed(found, options, inspect.MEMORY_BYTES_MAX)
    for file, segment in files:
        if is_text and not style.quiet and not is_alone:
            output.print_line(f"File: {file.name}")
        for placed in file.ops(options):
            items.apply(placed[0], segment, placed[1])
            size += placed[2]
            _print_op(placed, items.reserved_xid, style)
    items.end_apply()
    reports = [file.report() for file in found.files] + [lost.report() for lost in found.missing]
    while style.raw_queue and (head := items.head()) is not None:
        sys.stdout.buffer.write(head.data)
        items.take()
    sys.stdout.buffer.flush()
    if is_text:
        ops, count = sum(file.ops for file in reports), items.count + len(items.open)
        item_bytes = items.bytes + items.open_bytes
        typer.echo(f"\nJournal size: {size} bytes, with {ops} operations.")
        typer.echo(f"{count} items totalling {item_bytes} bytes.")
    for one in (one for one in reports if one.ending is not Ending.WHOLE):
        tell(one.sentence)
    return any(one.is_damaged for one in reports)


def _print_op(placed: Placed, reserved_xid: int, style: Style) -> None:
    op, offset, _ = placed
    if style.raw and op.item is not None:
        sys.stdout.buffer.write(op.item.data)
    if style.quiet or style.raw or style.raw_queue:
        return
    output.print_line(f"{offset & 0xFFFFFFFF:08x}  {_op_text(op, reserved_xid)}")
    if style.contents and op.item is not None:
        output.print_line("    " + bytes(op.item.data).decode("latin-1"))


def _op_text(op: Op, reserved_xid: int) -> str:
    """Returns an op in the words of qdump."""
    opcode, xid, item, open_count = op
    word = _WORDS[opcode]
    if item is not None:
        expiry = ""
        if item.expiry_ms:
            left_ms = item.expiry_ms - SystemClock().wall_us() // 1000
            expiry = " expired" if left_ms < 0 else f" exp={left_ms}"
        return f"{word} {item.size:<6d}{f' xid={xid}' if xid else ''}{expiry}"
    if opcode is Opcode.REMOVE:
        return word
    if opcode is Opcode.STATE_DUMP:
        return f"{word} {xid} {open_count}"
    return f"{word} {xid or reserved_xid}"


# -- verify ---------------------------------------------------------------------------------------


@verb(app)
def verify(
    directory: Directory,
    queue: Queue = "",
    largest_item_mib: LargestItem = 64,
    as_json: Json = False,
) -> None:
    """Reads every op of every file of every queue, and says what there is and what is damaged.

    Ends with 1 if something is damaged. A torn tail of a queue's last file is no damage: its
    writer died in the middle of an op.

    Example: fjord kestrel verify /var/spool/kestrel
    """
    found: list[QueueReport] = []
    with Bar("verifying") as bar:
        options = ReadOptions(item_bytes_max=largest_item_mib * limits.MIB)
        surveys = reader.surveys(LocalDisk(), directory, queue, passes_unreadable=True)
        for one in inspect.verify(surveys, bar.update, options):
            found.append(one)
            if as_json:
                what = {**dataclasses.asdict(one), "ops": one.ops, "damaged": one.is_damaged}
                output.print_json(what)
                continue
            for line in _queue_lines(one):
                output.print_line(line)
    files = [file for one in found for file in one.files]
    damaged = sum(file.is_damaged for file in files)
    if not as_json:
        for line in _foreign(directory):
            output.print_line(line)
        queues, count = counted(len(found), "queue"), counted(len(files), "file")
        told = f"damaged: {damaged} of {count}" if damaged else f"whole: {queues}, {count}"
        output.print_line(told)
    output.exit_if(damaged)


def _queue_lines(one: QueueReport) -> Iterator[str]:
    for file in one.files:
        yield f"{file.sentence}; {counted(file.ops, 'op')}"
    for name in one.dead:
        yield f"{name} is dead: a pack has taken its place"
    for name in one.temporary:
        yield f"{name} is temporary and counts for nothing"
    yield (
        f"{one.queue}: {counted(one.ops, 'op')}, {counted(one.items, 'item')} of "
        f"{one.bytes} bytes, {counted(one.open_items, 'open item')} of "
        f"{one.open_bytes} bytes, last xid {one.last_xid}"
    )
    if one.missed:
        yield f"{one.queue}: {counted(one.missed, 'op')} on what was not there"
    if one.displaced:
        yield f"{one.queue}: {counted(one.displaced, 'open item')} got another xid"


def _foreign(directory: str) -> Iterator[str]:
    """Yields what else is in a directory, in words."""
    disk = LocalDisk()
    for name in reader.foreign(disk, directory):
        yield f"{name} is no file of a queue"
    kept = os.path.join(directory, journal.DIRECTORY)
    for name in disk.names(kept) if disk.exists(kept) else ():
        yield f"{journal.DIRECTORY}/{name} keeps what could not be read of a queue"


# -- pack and serve -------------------------------------------------------------------------------


@verb(app)
def pack(
    directory: Directory,
    queue: Queue = "",
    dialect: Annotated[str, option("kestrel-2.4 or kestrel-doc.")] = Dialect.V24.value,
    largest_item_mib: LargestItem = 64,
    as_json: Json = False,
) -> None:
    """Replaces the files of each queue by one that has what is in the queue, and no more.

    Open items stay open. What is damaged is kept in a file of its own, and told. No Kestrel may
    run on the directory meanwhile.

    Example: fjord kestrel pack /var/spool/kestrel
    """
    if dialect not in list(Dialect):
        raise UsageError(f"--dialect is one of {', '.join(Dialect)}")
    config, bytes_max = QueueConfig(dialect=Dialect(dialect)), largest_item_mib * limits.MIB
    problems: list[str] = []
    for one in collection.pack_queues(
        LocalDisk(), directory, queue, config, SystemClock(), item_bytes_max=bytes_max
    ):
        if isinstance(one, DirectoryError):
            problems.append(f"fjord: {one}")
            continue
        problems += one.alerts
        text = (
            f"{one.queue}: {counted(one.items, 'item')}, {counted(one.open_items, 'open item')}; "
            f"{one.bytes_before} bytes of files are {one.bytes_after} now"
        )
        output.print_one(one._asdict(), text, as_json=as_json)
    for problem in problems:
        tell(problem)
    output.exit_if(problems)


@verb(app)
def serve(
    directory: Annotated[
        str, option("Directory of the queues; made if it is not there.", "--dir")
    ] = "",
    to: Annotated[str, option("A daemon whose jobs tables are the queues, instead of --dir.")] = "",
    listen: Annotated[
        str, option("Loopback address and port, or a port alone, for memcache.")
    ] = "127.0.0.1:22133",
    text: Annotated[str, option("The same for the text protocol, or off.")] = "127.0.0.1:2222",
    config: Annotated[str, option("A JSON file that says how queues behave.", metavar="FILE")] = "",
    exact: Annotated[
        bool, option("Answer byte for byte as Kestrel, not as memcached.", "--exact")
    ] = False,
    largest_item_mib: Annotated[int, option("Larger: refused.", min=1, max=64)] = 64,
    max_connections: Annotated[
        int, option("Connections at a time; further ones are closed.", min=1)
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

    def ready(addresses: Sequence[tuple[str, int]]) -> None:
        arguments.say_ready(**dict(zip(("memcache", "text"), addresses, strict=False)))

    if bool(directory) == bool(to):
        raise UsageError("give --dir with a directory, or --to with a daemon")
    if to and config:
        raise UsageError("--config is for --dir; tables of a daemon have settings of their own")
    check_address(to or DAEMON)
    arguments.check_directory(directory)
    addresses = [arguments.loopback(one) for one in (listen, text) if one != "off"]
    options = ServerOptions(
        is_exact=exact,
        item_bytes_max=largest_item_mib * limits.MIB,
        connections_max=max_connections,
        awake_us=default_awake_us() if awake_us is None else awake_us,
    )
    logs.set_up(log_format, logging.DEBUG if verbose else logging.INFO)
    service.serve(directory, to, addresses, config, options, on_ready=ready)


# -- import and export ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing(ImportOptions):
    """What is imported, and where to: options of both imports."""

    directory: Directory
    url: Annotated[str, option("Address of the daemon.", "--to")] = DAEMON
    queues: Annotated[
        list[str] | None, option("Only this queue; repeatable.", "--queue", metavar="NAME")
    ] = None
    tables: Annotated[
        list[str] | None,
        option("Another name for a table; repeatable.", "--table", metavar="QUEUE=TABLE"),
    ] = None
    kind: Annotated[str, option("What items become: jobs or stream.", "--as", metavar="KIND")] = (
        Kind.JOBS.value
    )
    anew: Annotated[bool, option("Import also what was imported before.", "--anew")] = False
    moved: Annotated[bool, option("The directory was moved; continue there.", "--moved")] = False
    skip_too_large: Annotated[
        bool, option("Leave out items of more than 1 MiB.", "--skip-too-large")
    ] = False
    damaged: Annotated[bool, option("Import what damaged files still hold.", "--damaged")] = False
    dry_run: Annotated[bool, option("Only print what would be done.", "--dry-run")] = False


@verb(app, "import")
@explained(repairable=False)
def import_(options: Importing, as_json: Json = False) -> None:
    """Copies what is in queues to tables of a daemon, in order, and each item once.

    A queue becomes a jobs table that does not merge, as `fjord kestrel serve --to` makes them. If
    it is cut short, by whatever, the same command goes on where it was. The directory is only
    read; stop the Kestrel first, so that nothing is added meanwhile.

    Example: fjord kestrel import /var/spool/kestrel --to fjord://127.0.0.1:17994

    Example: fjord kestrel import /var/spool/kestrel --table cars+seo=cars_seo
    """
    from fjord.cli.pipelines import running

    count = imported = 0
    would = "to be imported" if options.dry_run else "imported"
    check_address(options.url)
    with running.progress() as show:
        importer = Importer(options, show)
        for plan in importer.plans():
            one = importer.send(plan)
            count, imported = count + 1, imported + one.tally.imported
            for sentence in one.damaged:
                tell(sentence, style="yellow")
            what = {**dataclasses.asdict(one), **one.tally._asdict(), "dry_run": options.dry_run}
            del what["tally"]
            output.print_one(what, _import_line(one, would), as_json=as_json)
    if not as_json:
        output.print_line(f"{counted(count, 'queue')}, {counted(imported, 'item')} {would}")


def _import_line(one: ImportOutcome, would: str) -> str:
    """Returns what became of a queue, in words."""
    items = counted(one.items, "item")
    into = f"{one.kind} table" if one.kind is Kind.JOBS else "stream"
    if not one.items:
        return f"{one.queue}: no items"
    if one.is_done:
        return f"{one.queue}: {items}, imported into {into} {one.table} before"
    left_out = {
        "imported before": one.imported_before,
        "expired": one.tally.expired,
        "too large": one.tally.too_large,
    }
    notes = ", ".join(f"{count} {what}" for what, count in left_out.items() if count)
    told = f"{one.tally.imported} {would} into {into} {one.table}"
    return f"{one.queue}: {items}, {told}" + (f" ({notes})" if notes else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporting(ExportOptions):
    """What is exported, and where to: options of `export`."""

    table: Annotated[str, argument("TABLE", "A jobs table or a stream.")]
    directory: Annotated[str, option("Directory of queues; made if it is not there.", "--dir")]
    url: Annotated[str, option("Address of the daemon.", "--from")] = DAEMON
    queue: Annotated[str, option("The queue.", metavar="NAME", shown="named as the table")] = ""
    after: Annotated[int | None, option("Of a stream, messages behind this seq only.", min=0)] = (
        None
    )
    append: Annotated[bool, option("Add behind what the queue has.", "--append")] = False


@verb(app, "export")
@explained(repairable=False)
def export_(options: Exporting, as_json: Json = False) -> None:
    """Writes what waits in a jobs table, or is in a stream, as a queue of Kestrel's.

    All of it or nothing: the queue is there when it is whole and on disk. The table stays as it
    is. Nobody may work on a jobs table meanwhile, and no Kestrel may run on the directory.

    Example: fjord kestrel export cars --dir /var/spool/kestrel
    """
    if not options.directory:
        raise UsageError("give --dir with a directory")
    check_address(options.url)
    arguments.check_directory(options.directory)
    with Bar("exporting") as bar:
        one = export(options, bar.update)
    expired = f" ({one.expired} expired)" if one.expired else ""
    items = counted(one.items, "item")
    text = f"{one.table}: {items} exported to queue {one.queue}, {one.bytes} bytes{expired}"
    output.print_one(one._asdict(), text, as_json=as_json)


def check_address(url: str) -> None:
    with usage():
        parse_url(url)
