"""The work of `fjord journal`, and its output.

Separate from the verbs, since it imports the engine and the journal, which load slowly.
"""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Final

from fjord import disk as disks
from fjord import limits, values
from fjord.cli.output import Bar, date_of_us
from fjord.disk import LocalDisk
from fjord.engine import layout as layouts
from fjord.engine.layout import Clean, Layout
from fjord.errors import Code, DirectoryError, DiskFullError
from fjord.jobs import How, State
from fjord.journal import inspect
from fjord.journal import repair as repairing
from fjord.journal.inspect import DumpRow, Report, SegmentReport, Wanted
from fjord.journal.survey import Damage
from fjord.tables.jobs import layout as job_row
from fjord.text import key_text, value_text
from fjord.values import ROW, RowType, Type, Value

# Shorter work needs no progress bar.
_SHOWN_BYTES: Final = 16 * limits.MIB
# Columns that are text wherever their bytes are; all other strings are bytes.
_TEXTS: Final = frozenset({"key", "name", "target"})
# Columns of bytes that are shown as hexadecimal.
_IDENTITIES: Final = frozenset({"client", "uuid"})


def dump(layout: Layout, first_seq: int, last_seq: int, table: str) -> Iterator[DumpRow | Damage]:
    """Yields the rows of the journal; raises LookupError at its end if there is no such table."""
    wanted = Wanted(first_seq=first_seq, last_seq=last_seq, table=table)
    return inspect.dump(
        LocalDisk(), layout.journal, wanted, durable_seq=layouts.known_seq(LocalDisk(), layout)
    )


def verify(layout: Layout) -> Report:
    """Verifies the whole journal, with a progress bar if it is long.

    Raises:
        DirectoryError: if there is no journal, and none is known to have been there.
    """
    shown = 0
    with Bar("verifying") as bar:

        def update(done: int, total: int) -> None:
            nonlocal shown
            if done >= shown + _SHOWN_BYTES:
                shown = done
                bar.update(done, total)

        known_seq = layouts.known_seq(LocalDisk(), layout)
        report = inspect.verify(LocalDisk(), layout.journal, update, durable_seq=known_seq)
    if not report.segments:
        raise DirectoryError(f"{layout.root} has no journal; restore a backup")
    return report


def repair(layout: Layout, *, wanted: bool) -> tuple[Report, list[repairing.Repaired]]:
    """Verifies the journal under the writer's lock, and repairs damage if `wanted`.

    Raises:
        DirectoryError: if the directory cannot be written to, or somebody else writes to it.
    """
    try:
        lock = LocalDisk().lock(layout.lock)
    except OSError as error:
        raise DirectoryError(f"{layout.root} cannot be opened: {error}") from error
    try:
        report = verify(layout)
        return report, _repair(layout) if wanted and report.damages else []
    finally:
        lock.release()


def _repair(layout: Layout) -> list[repairing.Repaired]:
    disk, known_seq = LocalDisk(), layouts.known_seq(LocalDisk(), layout)
    try:
        # A repair moves frames, so the index must not be used any more.
        clean = layouts.read_mark(disk, layout.clean, Clean)
        if clean is not None:
            layouts.write_mark(disk, layout.clean, dataclasses.replace(clean, index=""))
        if disk.exists(layout.owner):
            disk.remove(layout.owner)
            disk.sync_directory(layout.index)
        quarantine = os.path.join(layout.root, "quarantine")
        return repairing.repair(disk, layout.journal, quarantine, durable_seq=known_seq)
    except OSError as error:
        text = f"the repair stopped: {error}; fix that and run it again"
        if disks.is_full(error):
            raise DiskFullError(Code.DISK_FULL, text) from error
        raise DirectoryError(text) from error


# -- what the verbs say ---------------------------------------------------------------------------


def segment_line(segment: SegmentReport) -> str:
    return (
        f"segment {segment.segment}: {segment.bytes} bytes, {segment.used_bytes} used, "
        f"{segment.frames} frames, {segment.rows} rows, "
        f"seqs {segment.first_seq} to {segment.last_seq}"
    )


def sentence(damage: Damage) -> str:
    lost = ""
    if damage.rows:
        lost = f"; seqs {damage.first_seq} to {damage.first_seq + damage.rows - 1} are lost"
    return f"{damage.path} is damaged at byte {damage.offset}: {damage.reason}{lost}"


def verdict(report: Report) -> str:
    if not report.damages:
        return f"whole: {len(report.segments)} segments"
    return f"damaged: {len(report.damages)} places, {report.lost_rows} rows are lost"


def report_json(report: Report) -> dict[str, object]:
    return {
        "damaged": bool(report.damages),
        "lost_rows": report.lost_rows,
        "segments": [dataclasses.asdict(segment) for segment in report.segments],
    }


def row_json(row: DumpRow) -> dict[str, object]:
    return {
        "seq": row.seq,
        "at": date_of_us(row.wall_us),
        "op": row.op,
        "table": row.table,
        "segment": row.segment,
        "offset": row.offset,
        "fields": _fields(row),
    }


def row_cells(row: DumpRow) -> list[str]:
    cells = [f"{name}={_text(name, value)}" for name, value in _fields(row).items()]
    return [str(row.seq), date_of_us(row.wall_us), row.op, row.table or "-", *cells]


def _fields(row: DumpRow) -> dict[str, values.Value]:
    shown: dict[str, values.Value] = {
        name: key_text(value) if name in _TEXTS and isinstance(value, bytes) else value
        for name, value in row.fields.items()
    }
    if row.op.startswith(PREFIX):
        shown = readable(shown)
    type_, value = row.fields.get("type"), row.fields.get("value")
    if type_ == values.ROW:  # whose columns are in the settings of its table
        return {**shown, "type": type_name(type_)}
    if not isinstance(type_, int) or not isinstance(value, bytes) or type_ > Type.BOOLEAN:
        return shown
    if values.problem(type_, value) is not None:
        return shown
    return {**shown, "type": Type(type_).name.lower(), "value": values.decode(type_, value)}


def _text(name: str, value: values.Value) -> str:
    if not isinstance(value, bytes):
        return value_text(value)
    return value.hex() if name in _IDENTITIES else value.decode("utf-8", "backslashreplace")


# -- rows of jobs, with their packed columns decoded ----------------------------------------------


PREFIX: Final = "JOB_"
# The fields of an image that are shown; the rest is for the index.
_IMAGE: Final = (
    "row",
    "priority",
    "process_at_us",
    "inserted_us",
    "updated_us",
    "expires_at_us",
    "timeouts",
)


def readable(fields: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the columns of a row, with packed ones decoded where possible."""
    found: dict[str, Value] = {}
    for name, value in fields.items():
        try:
            parts = _parts(name, value)
        except (ValueError, struct.error):
            parts = {name: value}
        found = found | parts | found  # the first value of a name stays
    return found


def _parts(name: str, value: Value) -> dict[str, Value]:
    match name, value:
        case "image", bytes():
            return _image(value)
        case "was" | "place", bytes():
            return _place(name, value)
        case "domain" | "reason", bytes():
            return {name: key_text(value)}
        case "slot" | "head", bytes():
            return {name: value.hex()}
        case "state", int():
            return {name: State(value).name.lower()}
        case "how", int():
            return {name: How(value).name.lower()}
    return {name: value}


def type_name(number: int) -> str:
    """Returns the name of a type of values.

    Raises:
        ValueError: if there is no such type.
    """
    return (RowType if number == ROW else Type)(number).name.lower()


def _image(value: bytes) -> dict[str, Value]:
    row = job_row.decode(value)
    return {
        "key": key_text(row.key),
        "domain": key_text(row.domain),
        **{name: getattr(row, name) for name in _IMAGE},
        "type": type_name(row.type),
    }


def _place(name: str, value: bytes) -> dict[str, Value]:
    if not value:
        return {}  # it had none
    _, priority, process_at_us, row = job_row.PLACE.unpack(value)
    prefix = "was_" if name == "was" else ""
    return {f"{prefix}priority": priority, f"{prefix}process_at_us": process_at_us, "row": row}
