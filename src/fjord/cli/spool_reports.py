"""What `fjord spool` says of a spool: what waits, what each record holds, and what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from fjord import values
from fjord.cli import output
from fjord.client.spool import files, survey
from fjord.client.spool.files import Fate, SpoolFile
from fjord.client.spool.records import RecordRow, rows_of
from fjord.client.spool.survey import Alert, FileReport, Retried
from fjord.errors import DirectoryError
from fjord.values import Type

# Ages are told in the largest of these units of which there are at least two.
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"))

Progress = Callable[[int, int | None], None]
Found = TypeVar("Found")


def names_of(directory: str) -> list[str]:
    """Returns the files of a spool, those with what was set aside last.

    Raises:
        DirectoryError: if there is no such directory.
    """
    try:
        return files.waiting_names(directory) + files.aside_names(directory)
    except OSError as error:
        raise DirectoryError(f"{directory} is no spool: {error.strerror}") from error


def _in_files(
    directory: str,
    look: Callable[[SpoolFile], Iterable[Found]],
    failed: Callable[[str, OSError], None],
) -> Iterator[Found]:
    """Yields what is found in each file of a spool; one that cannot be read does not end it.

    Args:
        look: looks into one file.
        failed: told of each file that cannot be read.

    Raises:
        DirectoryError: if there is no such directory.
    """
    for name in names_of(directory):
        try:
            file = SpoolFile(directory, name, is_writable=False)
            try:
                yield from look(file)
            finally:
                file.close()
        except FileNotFoundError:
            continue  # it was sent meanwhile
        except OSError as error:
            failed(name, error)


def reason_of(error: OSError) -> str:
    return error.strerror or str(error)


def unreadable_line(name: str, reason: str) -> str:
    return f"{name} cannot be read: {reason}"


# -- status ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A spool as a whole."""

    directory: str
    is_forwarded: bool
    reports: list[FileReport]
    unreadable: dict[str, str]  # file: why
    alerts: list[Alert]
    now_us: int

    @property
    def beheaded(self) -> list[str]:
        """Files whose first line is damaged."""
        return [report.watched.name for report in self.reports if report.created_us is None]

    @property
    def is_well(self) -> bool:
        return not self.alerts and not self.unreadable and not self.beheaded

    @property
    def waiting(self) -> int:
        return sum(report.waiting for report in self.reports)

    @property
    def waiting_bytes(self) -> int:
        return sum(report.watched.waiting_bytes for report in self.reports)

    @property
    def oldest_us(self) -> int:
        return min((report.oldest_us for report in self.reports if report.oldest_us), default=0)

    @property
    def set_aside(self) -> int:
        return sum(report.watched.set_aside for report in self.reports)


def status(directory: str, now_us: int, progress: Progress) -> Status:
    """Reads all files of a spool.

    Raises:
        DirectoryError: if there is no such directory.
    """
    names = names_of(directory)
    reports: list[FileReport] = []
    unreadable: dict[str, str] = {}
    for number, name in enumerate(names):
        progress(number, len(names))
        try:
            reports.append(survey.report(directory, name))
        except FileNotFoundError:
            continue  # it was sent meanwhile
        except OSError as error:
            unreadable[name] = reason_of(error)
    outside = [survey.outside(directory, name) for name in unreadable]
    watched = [report.watched for report in reports] + [one for one in outside if one is not None]
    return Status(
        directory=directory,
        is_forwarded=files.is_forwarded(directory),
        reports=reports,
        unreadable=unreadable,
        alerts=survey.find(watched, survey.place(directory), now_us),
        now_us=now_us,
    )


def status_json(found: Status) -> dict[str, object]:
    return {
        "directory": found.directory,
        "forwarder": found.is_forwarded,
        "waiting": found.waiting,
        "waiting_bytes": found.waiting_bytes,
        "oldest_at": _moment(found.oldest_us),
        "set_aside": found.set_aside,
        "files": [_report_json(report) for report in found.reports],
        "unreadable": found.unreadable,
        "alerts": [asdict(alert) for alert in found.alerts],
    }


def status_rows(found: Status) -> Iterator[list[str]]:
    """Yields name, records, bytes, age and what was set aside, file by file."""
    for report in found.reports:
        watched = report.watched
        counts = report.waiting, watched.waiting_bytes
        age = _age(report.oldest_us, found.now_us)
        yield [watched.name, *map(str, counts), age, str(watched.set_aside)]


def status_lines(found: Status) -> Iterator[str]:
    """Yields what is true of all files together."""
    size = output.counted(found.waiting_bytes, "byte")
    text = f"{output.counted(found.waiting, 'record')} waiting, {size}"
    if found.oldest_us:
        text += f", the oldest for {_age(found.oldest_us, found.now_us)}"
    yield f"{text}; {found.set_aside} set aside"
    yield "a forwarder is running" if found.is_forwarded else "no forwarder is running"
    for name, reason in found.unreadable.items():
        yield unreadable_line(name, reason)
    for name in found.beheaded:
        yield f"{name}: its first line is damaged; a forwarder replaces it, and sends the rest"
    for alert in found.alerts:
        yield f"alert {alert.severity}: {alert.text}"


def _report_json(report: FileReport) -> dict[str, object]:
    watched = report.watched
    return {
        "file": watched.name,
        "waiting": report.waiting,
        "waiting_bytes": watched.waiting_bytes,
        "oldest_at": _moment(report.oldest_us),
        "newest_at": _moment(report.newest_us),
        "set_aside": watched.set_aside,
        "size": report.size,
        "half_bytes": report.half,
        "created_at": _moment(report.created_us),
        "modified_at": _moment(watched.modified_us),
        "damaged": report.is_damaged,
    }


def _age(then_us: int, now_us: int) -> str:
    if not then_us:
        return "-"
    seconds = max(0, now_us - then_us) // 1_000_000
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


# -- dump -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One row of a record; or a piece of a file that is none."""

    file: str
    offset: int
    row: RecordRow | None = None
    problem: str = ""  # why there is no row
    data: bytes = b""  # the piece then


def dump(
    directory: str, *, is_aside: bool, failed: Callable[[str, OSError], None]
) -> Iterator[Shown]:
    """Yields what waits in a spool, or what was set aside, row by row.

    Args:
        is_aside: what was set aside.
        failed: told of each file that cannot be read.

    Raises:
        DirectoryError: if there is no such directory.
    """
    return _in_files(directory, lambda file: _dump_file(file, is_aside=is_aside), failed)


def _dump_file(file: SpoolFile, *, is_aside: bool) -> Iterator[Shown]:
    if files.is_aside(file.name) and not is_aside:
        return
    for found in survey.walk(file):
        if not is_aside:
            for start, record in zip(found.starts, found.records, strict=True):
                yield from _rows(file.name, start, record)
            continue
        for piece in found.pieces:
            record_or_fate = survey.record_of(file, piece)
            if isinstance(record_or_fate, Fate):
                data = file.read(piece.start, piece.end - piece.start)
                problem = record_or_fate.value
                yield Shown(file=file.name, offset=piece.start, problem=problem, data=data)
            else:
                yield from _rows(file.name, piece.start, record_or_fate)


def _rows(name: str, offset: int, record: bytes) -> Iterator[Shown]:
    try:
        for row in rows_of(record):
            yield Shown(file=name, offset=offset, row=row)
    except ValueError as error:
        yield Shown(file=name, offset=offset, problem=f"unknown: {error}", data=record)


def shown_json(shown: Shown) -> dict[str, object]:
    row = shown.row
    if row is None:
        place = {"file": shown.file, "offset": shown.offset}
        return {**place, "problem": shown.problem, "data": shown.data}
    found: dict[str, object] = {
        "file": shown.file,
        "offset": shown.offset,
        "at": _moment(row.stamp_us),
        "what": row.what,
        "table": row.table,
        "key": output.key_text(row.key),
    }
    if row.what != "delete":
        type_, value = _value(row)
        found |= {"type": type_, "value": value, "expires_at": _moment(row.expires_us)}
    if row.what == "push":
        found |= {
            "priority": row.priority,
            "due_at": _moment(row.due_us),
            "domain": output.key_text(row.domain),
        }
    return found


def shown_cells(shown: Shown) -> list[str]:
    place = [shown.file, str(shown.offset)]
    row = shown.row
    if row is None:
        return [*place, shown.problem, shown.data.decode("latin-1")]
    found = shown_json(shown)
    at = _moment(row.stamp_us) or "-"
    cells = [*place, at, row.what, row.table, output.key_text(row.key)]
    if row.what != "delete":
        cells += [str(found["type"]), output.shown(_value(row)[1])]
    for name in ("priority", "due_at", "expires_at", "domain"):
        if found.get(name):
            cells.append(f"{name}={found[name]}")
    return cells


def _value(row: RecordRow) -> tuple[str, Any]:
    """Returns the name of a value's type, and the value; its bytes, if they are none of it."""
    if row.type > Type.BOOLEAN or values.problem(row.type, row.value) is not None:
        return f"type {row.type}", row.value
    return Type(row.type).name.lower(), values.decode(row.type, row.value)


def _moment(wall_us: int | None) -> str | None:
    if not wall_us:
        return None
    try:
        return datetime.fromtimestamp(wall_us / 1_000_000, tz=UTC).isoformat()
    except (OverflowError, ValueError):
        return str(wall_us)


# -- verify ---------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Checked:
    """What was found in one file."""

    file: str
    size: int
    waiting: int = 0  # whole records that are to be sent
    set_aside: int = 0  # whole records that were refused; `fjord spool retry` sends them again
    torn: int = 0  # whose writers died, or were told of an error
    damaged: int = 0  # pieces that are no lines, and the first line
    unknown: int = 0  # whole lines of which this program cannot read the record
    half_bytes: int = 0  # at the end: a line that is being written, or torn
    problem: str = ""  # why it cannot be read

    @property
    def is_damaged(self) -> bool:
        return self.damaged + self.unknown > 0


def verify(directory: str, progress: Progress) -> Iterator[Checked]:
    """Checks every line of every file; those that cannot be read come last.

    Raises:
        DirectoryError: if there is no such directory.
    """
    before = 0
    failed: list[Checked] = []

    def look(file: SpoolFile) -> Iterator[Checked]:
        nonlocal before
        checked = _verify(file, lambda done: progress(before + done, None))
        before += checked.size
        yield checked

    def note(name: str, error: OSError) -> None:
        failed.append(Checked(file=name, size=0, problem=reason_of(error)))

    yield from _in_files(directory, look, note)
    yield from failed


def _verify(file: SpoolFile, show: Callable[[int], None]) -> Checked:
    checked = Checked(file=file.name, size=file.size(), damaged=int(file.header is None))
    stop = min(files.HEADER_BYTES, checked.size)
    for found in survey.walk(file):
        for record in found.records:
            _count(checked, record, is_aside=False)
        for piece in found.pieces:
            _count(checked, survey.record_of(file, piece), is_aside=True)
        stop = found.stop
        show(stop)
    checked.half_bytes = max(0, checked.size - stop)
    return checked


def _count(checked: Checked, what: bytes | Fate, *, is_aside: bool) -> None:
    if what is Fate.TORN:
        checked.torn += 1
    elif isinstance(what, Fate):
        checked.damaged += 1
    elif not _is_known(what):
        checked.unknown += 1
    elif is_aside:
        checked.set_aside += 1
    else:
        checked.waiting += 1


def _is_known(record: bytes) -> bool:
    try:
        rows_of(record)
    except ValueError:
        return False
    return True


def checked_line(one: Checked) -> str:
    if one.problem:
        return unreadable_line(one.file, one.problem)
    size = output.counted(one.size, "byte")
    text = f"{one.file}: {size}, {one.waiting} waiting, {one.set_aside} set aside"
    counts = (one.torn, "torn"), (one.damaged, "damaged"), (one.unknown, "unknown")
    text += "".join(f", {number} {word}" for number, word in counts if number)
    if one.half_bytes:
        text += f", {output.counted(one.half_bytes, 'byte')} of a half line"
    return text


def verdict(*, total: int, damaged: int, unreadable: int) -> str:
    """Returns what is true of all files together."""
    files_ = output.counted(total, "file")
    text = f"damaged: {damaged} of {files_}" if damaged else f"whole: {files_}"
    if unreadable:
        text += f"; {output.counted(unreadable, 'file')} cannot be read"
    return text


# -- retry ----------------------------------------------------------------------------------------


def still_open(directory: str) -> Iterator[Retried]:
    """Yields files with records that were set aside, whose turn is when the rest is sent.

    Raises:
        DirectoryError: if there is no such directory.
    """
    failed: list[Retried] = []

    def note(name: str, error: OSError) -> None:
        if not files.is_aside(name):  # else it is met again
            failed.append(survey.unreadable(name, error))

    yield from _in_files(directory, _still_open, note)
    yield from failed


def _still_open(file: SpoolFile) -> Iterator[Retried]:
    if files.is_aside(file.name):
        return
    left = sum(len(found.pieces) for found in survey.walk(file))
    if left:
        why = "a writer still has it open"
        if file.try_lock():
            file.unlock()
            why = "it is not sent whole yet, or its period is not over"
        yield Retried(name=file.name, left=left, why=why)


def retried_line(one: Retried) -> str:
    return f"{one.name} is {one.new_name} now" if one.new_name else f"{one.name} stays: {one.why}"
