"""`fjord journal`: shows, verifies, explains and repairs a journal."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Final

from fjord.cli import output
from fjord.cli.arguments import Directory, Json, layout_of, noun, option, verb
from fjord.cli.output import EXIT_USAGE, tell
from fjord.errors import Code, NotFoundError, UsageError

app = noun("journal", "Shows, verifies, explains and repairs the journal of a data directory.")

_SEQ_MAX: Final = 2**64 - 1


@verb(app)
def dump(
    data: Directory,
    first: Annotated[int, option("The first seq.", "--from", min=0)] = 0,
    last: Annotated[int, option("The last seq.", "--to", min=0)] = _SEQ_MAX,
    table: Annotated[str, option("Rows of this table only.")] = "",
    as_json: Json = False,
) -> None:
    """Prints the ops of the journal, one line per row; a daemon may run.

    Exit code 2 if something is damaged; readable rows after it are still printed.

    Example: fjord journal dump --data /var/lib/fjord --from 1000 --table settings
    """
    from fjord.cli import journal_reports as reports
    from fjord.journal.survey import Damage

    if first > last:
        raise UsageError(f"--from {first} is greater than --to {last}")
    damaged = False
    try:
        for step in reports.dump(layout_of(data), first, last, table):
            if isinstance(step, Damage):
                damaged = True
                tell(reports.sentence(step))
            elif as_json:
                output.print_json(reports.row_json(step))
            else:
                output.print_line(*reports.row_cells(step))
    except LookupError as error:
        if not damaged:  # otherwise its name may be damaged
            raise NotFoundError(Code.NOT_FOUND, str(error.args[0])) from error
    output.exit_if(damaged, EXIT_USAGE)


@verb(app)
def verify(data: Directory, as_json: Json = False) -> None:
    """Checks every frame of the journal; a daemon may run.

    Exit code 2 if something is damaged.

    Example: fjord journal verify --data /var/lib/fjord
    """
    from fjord.cli import journal_reports as reports

    report = reports.verify(layout_of(data, may_be_empty=True))
    if as_json:
        output.print_json(reports.report_json(report))
    else:
        for segment in report.segments:
            output.print_line(reports.segment_line(segment))
        for damage in report.damages:
            output.print_line(reports.sentence(damage))
        output.print_line(reports.verdict(report))
    output.exit_if(report.damages, EXIT_USAGE)


@verb(app)
def explain(
    data: Directory,
    segment: Annotated[int, option("Number of the segment.", min=1)],
    at: Annotated[int | None, option("An offset; without it, the header.", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Names every byte of a segment's header, or of the frame at an offset.

    Example: fjord journal explain --data /var/lib/fjord --segment 3 --at 4096
    """
    from fjord.disk import LocalDisk
    from fjord.journal import explain as explaining

    try:
        fields = explaining.explain(LocalDisk(), layout_of(data).journal, segment, at)
    except LookupError as error:
        raise UsageError(str(error.args[0])) from error
    for field in fields:
        here = "<--" if at is not None and field.offset <= at < field.end else ""
        cells = f"{field.offset:08x}", str(field.size), field.name, field.value, here
        output.print_one(dataclasses.asdict(field), *cells, as_json=as_json)


@verb(app)
def repair(
    data: Directory,
    yes: Annotated[bool, option("Do it, instead of only reporting.", "--yes")] = False,
    as_json: Json = False,
) -> None:
    """Moves damaged segments to quarantine and replaces them with everything readable in them.

    Prints what is lost, and changes nothing without --yes. No daemon may run meanwhile. The next
    start rebuilds the index. If there is a backup, restoring that is better.

    Example: fjord journal repair --data /var/lib/fjord --yes
    """
    from fjord.cli import journal_reports as reports

    report, repaired = reports.repair(layout_of(data, may_be_empty=True), wanted=yes)
    if as_json:
        done = [dataclasses.asdict(one) for one in repaired]
        output.print_json({**reports.report_json(report), "repaired": done})
        return
    for damage in report.damages:
        output.print_line(reports.sentence(damage))
    for one in repaired:
        kept = f"; the damaged file is {one.kept_in}" if one.kept_in else ""
        output.print_line(
            f"{one.path} is repaired: {one.frames} frames kept, {one.lost_rows} rows are lost{kept}"
        )
    if report.damages and not yes:
        output.print_line(f"{reports.verdict(report)}; nothing was changed; repair it with --yes")
    elif not report.damages:
        output.print_line(reports.verdict(report))
