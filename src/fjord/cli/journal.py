"""`fjord journal`: what a journal says, whether it is whole, and what to do if it is not."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from fjord import disk as disks
from fjord import limits, values
from fjord.cli import output
from fjord.cli.failing import EXIT_USAGE, errors, explained
from fjord.cli.progress import Bar
from fjord.cli.where import Json
from fjord.disk import Disk, LocalDisk
from fjord.engine import layout as layouts
from fjord.engine.layout import Clean, Layout
from fjord.errors import Code, DirectoryError, DiskFullError
from fjord.journal import inspect, names
from fjord.journal.explain import explain as explain_segment
from fjord.journal.inspect import Report, Row, SegmentReport, Wanted
from fjord.journal.repair import Repaired
from fjord.journal.repair import repair as repair_journal
from fjord.journal.survey import Damage
from fjord.values import Type

app = typer.Typer(
    name="journal",
    help="Shows, verifies, explains and repairs the journal of a data directory.",
    no_args_is_help=True,
)

Data = Annotated[str, typer.Option(help="The data directory.")]
# Less than this is done before anybody could read a progress bar.
_SHOWN_BYTES: Final = 16 * limits.MIB
_SEQ_MAX: Final = 2**64 - 1


@app.command()
def dump(
    data: Data,
    first: Annotated[int, typer.Option("--from", help="The first seq.", min=0)] = 0,
    last: Annotated[int, typer.Option("--to", help="The last seq.", min=0)] = _SEQ_MAX,
    table: Annotated[str, typer.Option(help="Rows of this table only.")] = "",
    as_json: Json = False,
) -> None:
    """Prints what the journal says, one line a row, beside a running daemon or without one.

    Ends with 2 if something is damaged; what is readable behind it is printed all the same.

    Example: fjord journal dump --data /var/lib/fjord --from 1000 --table settings
    """
    with explained():
        disk, layout = LocalDisk(), _layout(data)
        wanted = Wanted(first_seq=first, last_seq=last, table=table)
        known_seq = _known_seq(disk, layout)
        damaged = False
        for step in inspect.dump(disk, layout.journal, wanted, durable_seq=known_seq):
            if isinstance(step, Damage):
                damaged = True
                errors.print(_sentence(step), soft_wrap=True, markup=False)
            elif as_json:
                output.print_json(_row_json(step))
            else:
                output.print_line(*_row_cells(step))
    if damaged:
        raise typer.Exit(EXIT_USAGE)


@app.command()
def verify(data: Data, as_json: Json = False) -> None:
    """Checks every frame of the journal, beside a running daemon or without one.

    Ends with 2 if something is damaged.

    Example: fjord journal verify --data /var/lib/fjord
    """
    with explained():
        disk, layout = LocalDisk(), _layout(data)
        report = _verify(disk, layout)
        if as_json:
            output.print_json(_report_json(report))
        else:
            for segment in report.segments:
                output.print_line(_segment_line(segment))
            for damage in report.damages:
                output.print_line(_sentence(damage))
            output.print_line(_verdict(report))
    if report.damages:
        raise typer.Exit(EXIT_USAGE)


@app.command()
def explain(
    data: Data,
    segment: Annotated[int, typer.Option(help="Number of the segment.", min=1)],
    at: Annotated[
        int | None, typer.Option(help="A byte of it; without it, where it begins.", min=0)
    ] = None,
    as_json: Json = False,
) -> None:
    """Names every byte of a segment's header, or of the frame that holds a byte.

    Example: fjord journal explain --data /var/lib/fjord --segment 3 --at 4096
    """
    with explained():
        try:
            fields = explain_segment(LocalDisk(), _layout(data).journal, segment, at)
        except LookupError as error:
            raise DirectoryError(str(error.args[0])) from error
        for field in fields:
            if as_json:
                output.print_json(dataclasses.asdict(field))
            else:
                here = "<--" if at is not None and field.offset <= at < field.end else ""
                place = f"{field.offset:08x}"
                output.print_line(place, str(field.size), field.name, field.value, here)


@app.command()
def repair(
    data: Data,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else only say what it would do.")] = (
        False
    ),
    as_json: Json = False,
) -> None:
    """Moves damaged segments to quarantine and puts in their place what of them can be read.

    Says what is lost, and changes something only with --yes. No daemon may run meanwhile. The next
    start rebuilds the index. Restoring a backup or a replica's copy is better, if there is one.

    Example: fjord journal repair --data /var/lib/fjord --yes
    """
    with explained():
        disk, layout = LocalDisk(), _layout(data)
        lock = disk.lock(layout.lock)
        try:
            report = _verify(disk, layout)
            repaired = _repair(disk, layout) if yes and report.damages else []
        finally:
            lock.release()
        if as_json:
            done = [dataclasses.asdict(one) for one in repaired]
            output.print_json({**_report_json(report), "repaired": done})
            return
        for damage in report.damages:
            output.print_line(_sentence(damage))
        for one in repaired:
            kept = f"; the damaged file is {one.kept_in}" if one.kept_in else ""
            output.print_line(
                f"{one.path} is repaired: {one.frames} frames kept, "
                f"{one.lost_rows} rows are lost{kept}"
            )
        if report.damages and not yes:
            output.print_line(f"{_verdict(report)}; nothing was changed: say --yes to repair it")
        elif not report.damages:
            output.print_line(_verdict(report))


# -- what the verbs do ----------------------------------------------------------------------------


def _layout(data: str) -> Layout:
    layout = Layout(data)
    found = LocalDisk().names(layout.journal) if data and os.path.isdir(layout.journal) else []
    if not any(names.segment_number(name) for name in found):
        raise DirectoryError(f"{data or '--data'} is not a Fjord data directory")
    return layout


def _known_seq(disk: Disk, layout: Layout) -> int:
    """Returns what was durable, from whatever says so beside the journal itself."""
    clean = layouts.read_mark(disk, layout.clean, Clean)
    return max(clean.seq if clean else 0, layouts.read_published(disk, layout)[0])


def _verify(disk: Disk, layout: Layout) -> Report:
    shown = 0
    with Bar("verifying") as bar:

        def update(done: int, total: int) -> None:
            nonlocal shown
            if done >= shown + _SHOWN_BYTES:
                shown = done
                bar.update(done, total)

        known_seq = _known_seq(disk, layout)
        return inspect.verify(disk, layout.journal, update, durable_seq=known_seq)


def _repair(disk: Disk, layout: Layout) -> list[Repaired]:
    known_seq = _known_seq(disk, layout)
    with _told():
        # What is repaired has its frames elsewhere: no index may point there.
        clean = layouts.read_mark(disk, layout.clean, Clean)
        if clean is not None:
            layouts.write_mark(disk, layout.clean, dataclasses.replace(clean, index=""))
        if disk.exists(layout.owner):
            disk.remove(layout.owner)
            disk.sync_directory(layout.index)
        quarantine = os.path.join(layout.root, "quarantine")
        return repair_journal(disk, layout.journal, quarantine, durable_seq=known_seq)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turns what the disk refuses into an error that can be told."""
    try:
        yield
    except OSError as error:
        text = f"the repair stopped: {error}; run it again when that is put right"
        if disks.is_full(error):
            raise DiskFullError(Code.DISK_FULL, text) from error
        raise DirectoryError(text) from error


# -- what the verbs say ---------------------------------------------------------------------------


def _segment_line(segment: SegmentReport) -> str:
    return (
        f"segment {segment.segment}: {segment.bytes} bytes, {segment.used_bytes} used, "
        f"{segment.frames} frames, {segment.rows} rows, "
        f"seqs {segment.first_seq} to {segment.last_seq}"
    )


def _sentence(damage: Damage) -> str:
    lost = ""
    if damage.rows:
        lost = f"; seqs {damage.first_seq} to {damage.first_seq + damage.rows - 1} are lost"
    return f"{damage.path} is damaged at byte {damage.offset}: {damage.reason}{lost}"


def _verdict(report: Report) -> str:
    if not report.damages:
        return f"whole: {len(report.segments)} segments"
    return f"damaged: {len(report.damages)} places, {report.lost_rows} rows are lost"


def _report_json(report: Report) -> dict[str, object]:
    return {
        "damaged": bool(report.damages),
        "lost_rows": report.lost_rows,
        "segments": [dataclasses.asdict(segment) for segment in report.segments],
    }


def _row_json(row: Row) -> dict[str, object]:
    shown = {name: _json(value) for name, value in row.fields.items()}
    return {
        "seq": row.seq,
        "at": _moment(row.wall_us),
        "op": row.op,
        "table": row.table,
        "segment": row.segment,
        "offset": row.offset,
        **shown,
        **_typed(row),
    }


def _row_cells(row: Row) -> list[str]:
    shown = {**row.fields, **_typed(row)}
    cells = [f"{name}={_text(value)}" for name, value in shown.items()]
    return [str(row.seq), _moment(row.wall_us), row.op, row.table or "-", *cells]


def _typed(row: Row) -> dict[str, object]:
    """Returns a value as what it is, where the row has a type for it."""
    type_, value = row.fields.get("type"), row.fields.get("value")
    if not isinstance(type_, int) or not isinstance(value, bytes) or type_ > Type.BOOLEAN:
        return {}
    if values.problem(type_, value) is not None:
        return {}
    decoded = values.decode(type_, value)
    return {"type": Type(type_).name.lower(), "value": output.json_value(decoded)}


def _json(value: int | bytes) -> object:
    """Returns bytes as text where they are text, or else as an object that says base64."""
    if isinstance(value, int):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": output.json_value(value)}


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _moment(wall_us: int) -> str:
    try:
        return datetime.fromtimestamp(wall_us / 1_000_000, tz=UTC).isoformat()
    except (OverflowError, ValueError):
        return str(wall_us)
