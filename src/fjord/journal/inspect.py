"""Inspecting a journal: checking it, and showing its contents.

verify   walks over every frame of every segment, and continues after damage
dump     yields the contents of ops, row by row
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fjord import disk as disks
from fjord.journal import frame as frames
from fjord.journal import survey
from fjord.journal.reader import Located
from fjord.journal.survey import Damage, Part
from fjord.ops import Op, Opcode

# Called with the number of bytes examined, and their total.
Progress = Callable[[int, int], None]
# The fields of a row beside its seq, by the names of the columns.
Fields = dict[str, int | bytes]

_SEQ_MAX: Final = 2**64 - 1


def silent(done: int, total: int) -> None:
    """Reports no progress."""


@dataclass(slots=True, kw_only=True)
class SegmentReport:
    """The contents of one segment."""

    segment: int
    path: str
    bytes: int  # of the file
    used_bytes: int = frames.SEGMENT_HEADER_BYTES  # up to the end of the last whole frame
    frames: int = 0
    rows: int = 0
    first_seq: int = 0
    last_seq: int = 0  # below first_seq if there is no frame
    damages: list[Damage] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The contents of a journal."""

    segments: list[SegmentReport]

    @property
    def damages(self) -> list[Damage]:
        return [damage for segment in self.segments for damage in segment.damages]

    @property
    def lost_rows(self) -> int:
        return sum(damage.rows for damage in self.damages)


def verify(
    disk: disks.Disk, directory: str, progress: Progress = silent, *, durable_seq: int = 0
) -> Report:
    """Walks over the whole journal; damage does not stop it.

    Raises:
        CorruptionError: if far too many segments are missing for this to be one journal.
    """
    parts = survey.make_out(disk, directory, durable_seq=durable_seq)
    total, done = sum(part.size for part in parts), 0
    report, begin = Report(segments=[]), survey.Begin()
    for part in parts:
        segment = _report_of(part)
        report.segments.append(segment)
        for step in survey.walk(disk, part, durable_seq=durable_seq):
            begin.note(step)
            _record(segment, part, step)
            progress(done + segment.used_bytes, total)
        done += part.size
        progress(done, total)
    _judge_begin(disk, report, parts, begin, durable_seq)
    return report


def _report_of(part: Part) -> SegmentReport:
    first_seq = part.header.first_seq
    return SegmentReport(
        segment=part.segment,
        path=part.path,
        bytes=part.size,
        first_seq=first_seq,
        last_seq=first_seq - 1,
    )


def _judge_begin(
    disk: disks.Disk, report: Report, parts: Sequence[Part], begin: survey.Begin, durable_seq: int
) -> None:
    """Adds what is missing before the first segment, and drops segments that were packed."""
    for part, segment in zip(parts, report.segments, strict=True):
        if begin.is_packed(part):
            segment.damages = [replace(one, first_seq=0, rows=0) for one in segment.damages]
    found = {segment.segment: segment for segment in report.segments}
    for part in set(begin.settle(parts)).difference(parts):
        found[part.segment] = segment = _report_of(part)
        for step in survey.walk(disk, part, durable_seq=durable_seq):
            _record(segment, part, step)
    uncertainty = begin.uncertainty(parts)
    if uncertainty is not None:
        found[uncertainty.segment].damages.insert(0, uncertainty)
    report.segments[:] = [found[number] for number in sorted(found)]


def _record(segment: SegmentReport, part: Part, step: Located | Damage) -> None:
    if isinstance(step, Damage):
        segment.damages.append(step)
        return
    frame = step.frame
    segment.frames += 1
    segment.rows += frame.rows
    segment.last_seq = frame.last_seq
    segment.used_bytes = step.end
    damage = _unreadable(part, step)
    if damage is not None:
        segment.damages.append(damage)


def _unreadable(part: Part, located: Located) -> Damage | None:
    """Returns the error for undecodable ops with a right checksum, perhaps of a newer version.

    They do not count as lost, and a repair leaves them unchanged.
    """
    try:
        list(located.ops())
    except ValueError as error:
        return Damage(part.segment, part.path, located.offset, str(error))
    return None


# -- contents -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpRow:
    """One row of one op."""

    seq: int
    wall_us: int  # when its frame was written
    segment: int
    offset: int  # of its frame
    op: str
    table: str  # its name, or its number if the name is not known; empty for none
    fields: Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows to dump."""

    first_seq: int = 0
    last_seq: int = _SEQ_MAX
    table: str = ""  # empty = all


def dump(
    disk: disks.Disk, directory: str, wanted: Wanted | None = None, *, durable_seq: int = 0
) -> Iterator[DumpRow | Damage]:
    """Yields the contents of the journal, in order, with the damage in between.

    It always begins at the first segment, since tables get their names there.

    Raises:
        LookupError: at the end, if the wanted table does not exist.
        CorruptionError: if far too many segments are missing for this to be one journal.
    """
    wanted = wanted or Wanted()
    tables: dict[int, str] = {}
    for part, step in _steps(disk, directory, wanted.last_seq, durable_seq):
        if isinstance(step, Damage):
            yield step
        else:
            yield from _rows_of(part, step, tables, wanted)
    if wanted.table and wanted.table not in tables.values():
        until = "" if wanted.last_seq == _SEQ_MAX else f" up to seq {wanted.last_seq}"
        raise LookupError(f"the journal has no table {wanted.table}{until}")


def _steps(
    disk: disks.Disk, directory: str, last_seq: int, durable_seq: int
) -> Iterator[tuple[Part, Located | Damage]]:
    parts, begin = survey.make_out(disk, directory, durable_seq=durable_seq), survey.Begin()
    for part in parts:
        for step in survey.walk(disk, part, durable_seq=durable_seq):
            if isinstance(step, Located) and step.frame.first_seq > last_seq:
                return
            begin.note(step)
            yield part, step
    for part in set(begin.settle(parts)).difference(parts):
        for step in survey.walk(disk, part, durable_seq=durable_seq):
            if isinstance(step, Damage):
                yield part, step


def _rows_of(
    part: Part, located: Located, tables: dict[int, str], wanted: Wanted
) -> Iterator[DumpRow | Damage]:
    damage = _unreadable(part, located)
    if damage is not None:
        yield damage
        return
    for op, place in located.ops():
        if op.opcode is Opcode.CREATE_TABLE:
            name = op.column("name")
            tables[op.table] = name[0].decode(errors="replace")
        table = tables.setdefault(op.table, str(op.table)) if op.table else ""
        if wanted.table not in ("", table):
            continue
        first = max(0, wanted.first_seq - place.seq)
        last = min(op.rows - 1, wanted.last_seq - place.seq)
        if op.opcode is Opcode.LOST:
            last = min(first, last)  # one for all of them: their rows have no fields
        for row in range(first, last + 1):
            yield DumpRow(
                seq=place.seq + row,
                wall_us=located.frame.wall_us,
                segment=located.segment,
                offset=located.offset,
                op=op.opcode.name,
                table=table,
                fields=_fields(op, row),
            )


def _fields(op: Op, row: int) -> Fields:
    if op.opcode is Opcode.LOST:
        return {"rows": op.rows - row}
    names = (name for name, _ in op.opcode.columns)
    return {name: column[row] for name, column in zip(names, op.columns, strict=True)}
