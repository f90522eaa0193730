"""`fjord spool`: shows, verifies and writes to spools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import fjord
from fjord import values
from fjord.cli import arguments, output
from fjord.cli.arguments import Given, Json, Key, Period, Typed, argument, noun, option, verb
from fjord.cli.output import EXIT_USAGE, Bar, tell
from fjord.cli.push import given
from fjord.client.spool.files import PERIOD_SECONDS
from fjord.clock import SystemClock
from fjord.errors import DurabilityError
from fjord.text import key_text, value_text
from fjord.values import Type

if TYPE_CHECKING:
    from fjord.client.spool import survey
    from fjord.client.spool.records import RecordRow

app = noun("spool", "Shows, verifies and writes to spools: writes that wait for `fjord forward`.")

Directory = Annotated[str, argument("DIR", "The directory of the spool.")]
KvName = Annotated[str, argument("TABLE", "The key/value table.")]


@verb(app)
def status(directory: Directory, as_json: Json = False) -> None:
    """Prints how many records wait in each file of a spool and since when, and the alerts.

    Writers and a forwarder may run. Exit code 1 if there are alerts, or if a file or its first
    line cannot be read.

    Example: fjord spool status /var/spool/fjord
    """
    from fjord.client.spool import survey

    with Bar("reading files") as bar:
        found = survey.status(directory, SystemClock().wall_us(), bar.update)
    if as_json:
        output.print_json(status_json(found))
    else:
        names = ["file", "records", "bytes", "oldest", "set aside"]
        output.print_rows(names, status_rows(found))
        for line in status_lines(found):
            output.print_line(line)
    output.exit_if(not found.is_well)


@verb(app)
def dump(
    directory: Directory,
    aside: Annotated[
        bool, option("Records that were set aside, instead of waiting ones.", "--aside")
    ] = False,
    limit: Annotated[int | None, option("Maximum number of rows.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Prints the waiting records of a spool, one line per row; writers and a forwarder may run.

    Exit code 1 if a file cannot be read; the others are printed.

    Example: fjord spool dump /var/spool/fjord --aside --json
    """
    from fjord.client.spool import survey

    unreadable: list[str] = []

    def note(name: str, error: OSError) -> None:
        unreadable.append(unreadable_line(name, survey.reason_of(error)))

    rows = survey.dump(directory, is_aside=aside, failed=note)
    for shown in itertools.islice(rows, limit):
        if as_json:
            output.print_json(shown_json(shown))
        else:
            output.print_line(*shown_cells(shown))
    for line in unreadable:
        tell(f"fjord: {line}", style="red")
    output.exit_if(unreadable)


@verb(app)
def verify(directory: Directory, as_json: Json = False) -> None:
    """Checks every line of every file of a spool; writers and a forwarder may run.

    Exit code 2 if something is damaged, or a file cannot be read. Torn lines are not damage:
    their writer got an error, or died.

    Example: fjord spool verify /var/spool/fjord
    """
    from fjord.client.spool import survey

    damaged = unreadable = total = 0
    with Bar("verifying") as bar:
        for one in survey.verify(directory, bar.update):
            total += not one.problem
            damaged += one.is_damaged
            unreadable += bool(one.problem)
            output.print_one(asdict(one), checked_line(one), as_json=as_json)
    if not as_json:
        output.print_line(verdict(total=total, damaged=damaged, unreadable=unreadable))
    output.exit_if(damaged or unreadable, EXIT_USAGE)


@verb(app)
def retry(directory: Directory, as_json: Json = False) -> None:
    """Sends intact records that were set aside again.

    Files that are still written to or not fully sent are left for later. Exit code 1 if any
    records are left, or if a file cannot be read.

    Example: fjord spool retry /var/spool/fjord
    """
    from fjord.client.spool import survey

    records = left = unreadable = 0
    retried = survey.retry(directory, SystemClock().wall_us())
    try:
        for one in itertools.chain(survey.still_open(directory), retried):
            records += one.records
            left += one.left
            unreadable += not one.is_readable
            output.print_one(asdict(one), retried_line(one), as_json=as_json)
    except OSError as error:
        raise DurabilityError(
            f"{directory} cannot be written to: {error.strerror}; fix that and run this again"
        ) from error
    if not as_json:
        text = f"{output.counted(records, 'record')} to be sent again, {left} left"
        if unreadable:
            text += f"; {output.counted(unreadable, 'file')} cannot be read"
        output.print_line(text)
    output.exit_if(left or unreadable)


# -- writing --------------------------------------------------------------------------------------


@verb(app, cls=arguments.Numeric)
def push(
    directory: Directory,
    table: arguments.TableName,
    key: Key,
    value: Given = None,
    type_: Typed = None,
    priority: arguments.Level = arguments.DEFAULT_LEVEL,
    delay: arguments.Delay = None,
    period: Period = PERIOD_SECONDS,
) -> None:
    """Writes a job to a spool, created if missing; returns when it is on disk.

    Example: fjord spool push /var/spool/fjord pages http://example.com/a --delay 5
    """
    found, number = given(value, type_), arguments.priority(priority)
    with _opened(directory, period) as spool:
        spool.jobs(table).push(key, found, priority=number, delay=delay)


@verb(app, cls=arguments.Numeric)
def append(
    directory: Directory,
    table: arguments.StreamName,
    value: Given = None,
    key: Annotated[str, option("The key.")] = "",
    type_: Typed = None,
    period: Period = PERIOD_SECONDS,
) -> None:
    """Writes a message to a spool, created if missing; returns when it is on disk.

    Example: fjord spool append /var/spool/fjord events "signed up" --key user:7
    """
    found = given(value, type_)
    with _opened(directory, period) as spool:
        spool.stream(table).append(found, key=key)


@verb(app, "set", cls=arguments.Numeric)
def set_(
    directory: Directory,
    table: KvName,
    key: Key,
    value: Given = None,
    type_: Typed = None,
    period: Period = PERIOD_SECONDS,
) -> None:
    """Writes a value to a spool, created if missing; returns when it is on disk.

    Example: fjord spool set /var/spool/fjord settings retries 3 --type integer
    """
    found = given(value, type_)
    with _opened(directory, period) as spool:
        spool.kv(table).set(key, found)


@verb(app)
def delete(directory: Directory, table: KvName, key: Key, period: Period = PERIOD_SECONDS) -> None:
    """Writes a deletion to a spool, created if missing; returns when it is on disk.

    Example: fjord spool delete /var/spool/fjord settings retries
    """
    with _opened(directory, period) as spool:
        spool.kv(table).delete(key)


def _opened(directory: str, period: float) -> fjord.Spool:
    return fjord.spool(directory, sync="each", period=period)


# -- what is printed -------------------------------------------------------------------------------


# Ages are printed in the largest unit of which there are at least two.
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"))


def unreadable_line(name: str, reason: str) -> str:
    return f"{name} cannot be read: {reason}"


def status_json(found: survey.SpoolStatus) -> dict[str, object]:
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


def status_rows(found: survey.SpoolStatus) -> Iterator[list[str]]:
    """Yields name, records, bytes, age and what was set aside, file by file."""
    for report in found.reports:
        watched = report.watched
        counts = report.waiting, watched.waiting_bytes
        age = _age(report.oldest_us, found.now_us)
        yield [watched.name, *map(str, counts), age, str(watched.set_aside)]


def status_lines(found: survey.SpoolStatus) -> Iterator[str]:
    size = output.counted(found.waiting_bytes, "byte")
    text = f"{output.counted(found.waiting, 'record')} waiting, {size}"
    if found.oldest_us:
        text += f", the oldest for {_age(found.oldest_us, found.now_us)}"
    yield f"{text}; {found.set_aside} set aside"
    yield "a forwarder is running" if found.is_forwarded else "no forwarder is running"
    for name, reason in found.unreadable.items():
        yield unreadable_line(name, reason)
    for name in found.beheaded:
        yield f"{name}: the first line is damaged; a forwarder replaces it and sends the rest"
    for alert in found.alerts:
        yield f"alert {alert.severity}: {alert.text}"


def _report_json(report: survey.FileReport) -> dict[str, object]:
    watched = report.watched
    return {
        "file": watched.name,
        "waiting": report.waiting,
        "waiting_bytes": watched.waiting_bytes,
        "oldest_at": _moment(report.oldest_us),
        "newest_at": _moment(report.newest_us),
        "set_aside": watched.set_aside,
        "size": watched.status.st_size,
        "half_bytes": report.half,
        "created_at": _moment(report.created_us),
        "modified_at": _moment(watched.status.st_mtime_ns // 1000),
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


def shown_json(shown: survey.DumpedRow) -> dict[str, object]:
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
        "key": key_text(row.key),
    }
    if row.what != "delete":
        type_, value = _value(row)
        found |= {"type": type_, "value": value, "expires_at": _moment(row.expires_us)}
    if row.what == "push":
        found |= {
            "priority": row.priority,
            "due_at": _moment(row.due_us),
            "domain": key_text(row.domain),
        }
    return found


def shown_cells(shown: survey.DumpedRow) -> list[str]:
    place = [shown.file, str(shown.offset)]
    row = shown.row
    if row is None:
        return [*place, shown.problem, shown.data.decode("latin-1")]
    found = shown_json(shown)
    at = _moment(row.stamp_us) or "-"
    cells = [*place, at, row.what, row.table, key_text(row.key)]
    if row.what != "delete":
        cells += [str(found["type"]), value_text(_value(row)[1])]
    for name in ("priority", "due_at", "expires_at", "domain"):
        if found.get(name):
            cells.append(f"{name}={found[name]}")
    return cells


def _value(row: RecordRow) -> tuple[str, Any]:
    """Returns the name of a value's type, and the value, or its bytes if they are invalid."""
    if row.type > Type.BOOLEAN or values.problem(row.type, row.value) is not None:
        return f"type {row.type}", row.value
    return Type(row.type).name.lower(), values.decode(row.type, row.value)


def _moment(wall_us: int | None) -> str | None:
    return output.date_of_us(wall_us) if wall_us else None


def checked_line(one: survey.FileCheck) -> str:
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
    files_ = output.counted(total, "file")
    text = f"damaged: {damaged} of {files_}" if damaged else f"whole: {files_}"
    if unreadable:
        text += f"; {output.counted(unreadable, 'file')} cannot be read"
    return text


def retried_line(one: survey.Retried) -> str:
    return f"{one.name} is {one.new_name} now" if one.new_name else f"{one.name} stays: {one.why}"
