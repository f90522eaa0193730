"""`fjord kestrel import` and `fjord kestrel export`: from queues to tables, and back."""

from __future__ import annotations

from typing import Annotated

import typer

from fjord.cli import output
from fjord.cli.arguments import DAEMON, Json, To, check_directory
from fjord.cli.output import Bar, explained, tell, usage
from fjord.client.address import parse_url
from fjord.errors import UsageError
from fjord.kestrel.importing import Kind

Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", help="This queue only; may be given again.", metavar="NAME"),
]
Anew = Annotated[bool, typer.Option("--anew", help="Import all, whatever was imported before.")]
Moved = Annotated[
    bool,
    typer.Option("--moved", help="Go on with what was imported of the same files from elsewhere."),
]
SkipTooLarge = Annotated[
    bool, typer.Option("--skip-too-large", help="Leave out items of more than 1 MiB.")
]
Damaged = Annotated[
    bool, typer.Option("--damaged", help="Import what can be read of damaged files.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


def import_(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A directory of queues.", show_default=False)
    ],
    to: To = DAEMON,
    queue: Queues = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            help="A table that is not named as its queue; may be given again.",
            metavar="QUEUE=TABLE",
        ),
    ] = None,
    as_: Annotated[Kind, typer.Option("--as", help="What items become.")] = Kind.JOBS,
    anew: Anew = False,
    moved: Moved = False,
    skip_too_large: SkipTooLarge = False,
    damaged: Damaged = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Copies what is in queues to tables of a daemon, in order, and each item once.

    A queue becomes a jobs table that does not merge, as `fjord kestrel serve --to` makes them. If
    it is cut short, by whatever, the same command goes on where it was. The directory is only
    read; stop the Kestrel first, so that nothing is added meanwhile.

    Example: fjord kestrel import /var/spool/kestrel --to fjord://127.0.0.1:17994

    Example: fjord kestrel import /var/spool/kestrel --table cars+seo=cars_seo
    """
    from fjord.cli import kestrel_import
    from fjord.cli.kestrel_import import Options, Outcome

    found: list[Outcome] = []

    def on_outcome(one: Outcome) -> None:
        found.append(one)
        for sentence in one.damaged:
            tell(sentence, style="yellow")
        if as_json:
            output.print_json(kestrel_import.as_json(one))
        else:
            output.print_line(kestrel_import.line(one))

    with explained(repairable=False), Bar("importing") as bar:

        def show(label: str, done: int, total: int) -> None:
            bar.describe(label)
            bar.update(done, total)

        with usage():
            parse_url(to)
        options = Options(
            directory=directory,
            url=to,
            queues=tuple(queue or ()),
            tables=tuple(table or ()),
            kind=as_,
            is_anew=anew,
            is_moved=moved,
            is_dry=dry_run,
            skips_too_large=skip_too_large,
            takes_damaged=damaged,
        )
        kestrel_import.run(options, on_outcome, show)
    if not as_json:
        output.print_line(kestrel_import.total(found))


def export(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A jobs table or a stream.", show_default=False)
    ],
    directory: Annotated[
        str, typer.Option("--dir", help="Directory of queues; made if it is not there.")
    ],
    from_: Annotated[str, typer.Option("--from", help="Address of the daemon.")] = DAEMON,
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
    as_json: Json = False,
) -> None:
    """Writes what waits in a jobs table, or is in a stream, as a queue of Kestrel's.

    All of it or nothing: the queue is there when it is whole and on disk. The table stays as it
    is. Nobody may work on a jobs table meanwhile, and no Kestrel may run on the directory.

    Example: fjord kestrel export cars --dir /var/spool/kestrel
    """
    from fjord.cli import kestrel_export

    with explained(repairable=False), Bar("exporting") as bar:
        if not directory:
            raise UsageError("give --dir with a directory")
        with usage():
            parse_url(from_)
        check_directory(directory)
        options = kestrel_export.Options(
            table=table,
            url=from_,
            directory=directory,
            queue=queue,
            after=after,
            subscriber=subscriber,
            appends=append,
        )
        outcome = kestrel_export.run(options, bar.update)
    if as_json:
        output.print_json(kestrel_export.as_json(outcome))
    else:
        output.print_line(kestrel_export.line(outcome))
