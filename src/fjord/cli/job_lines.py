"""Jobs from JSON lines: read one by one, pushed many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Final

from fjord import limits
from fjord.cli import arguments, lines, row_json
from fjord.cli.lines import Bad, Row
from fjord.declared import rows as declared_rows
from fjord.declared.schema import Schema
from fjord.errors import UsageError

if TYPE_CHECKING:
    from fjord.client.jobs import Jobs

BATCH_ROWS: Final = 1_000
# Bytes of lines, never fewer than those of their jobs, but for columns that are not there.
BATCH_BYTES: Final = limits.BATCH_BYTES_MAX // 2
_NONE: Final = Schema()


class Pushing:
    """Pushes a file of lines, and counts."""

    def __init__(
        self, jobs: Jobs, progress: Callable[[int, int | None], None], schema: Schema = _NONE
    ) -> None:
        self._jobs = jobs
        self._read = typed(schema) if schema.columns else job_of
        self._rows_max = min(BATCH_ROWS, BATCH_BYTES // declared_rows.of(schema).bytes_min)
        self._progress = progress
        self.pushed = 0
        self.bad = 0

    def run(self, file: IO[bytes], total: int | None) -> Iterator[Bad]:
        """Pushes all lines of a file of so many bytes; yields those that are bad."""
        for bad in self._run(file, total):
            self.bad += 1
            yield bad

    def _run(self, file: IO[bytes], total: int | None) -> Iterator[Bad]:
        rows: list[Row[dict[str, Any]]] = []
        read_bytes = batch_bytes = 0
        for number, line in enumerate(lines.one_by_one(file), start=1):
            read_bytes += len(line)
            if not line.strip():
                continue
            found = lines.parse(number, line, self._read)
            if isinstance(found, Bad):
                yield found
            else:
                rows.append(found)
                batch_bytes += len(line)
            if len(rows) == self._rows_max or batch_bytes > BATCH_BYTES:
                yield from lines.in_halves(rows, self._push)
                self._progress(read_bytes, total)
                rows, batch_bytes = [], 0
        yield from lines.in_halves(rows, self._push)

    def _push(self, rows: list[Row[dict[str, Any]]]) -> None:
        self._jobs.push_many([row.what for row in rows])
        self.pushed += len(rows)


def job_of(line: bytes) -> dict[str, Any]:
    """Returns the job of a line, as `Jobs.push_many` takes it.

    Raises:
        UsageError: if it is none; the text says why.
    """
    job = lines.fields_of(line, "job", _FIELDS)
    _check_dates(job)
    return {"key": b"", "value": None, **job}


def typed(schema: Schema) -> Callable[[bytes], dict[str, Any]]:
    """Returns what does the same for a table with declared columns."""
    fields = row_json.fields(schema, _FIELDS)

    def read(line: bytes) -> dict[str, Any]:
        job = row_json.gathered(lines.fields_of(line, "job", fields), _FIELDS)
        _check_dates(job)
        return job if schema.key else {"key": b"", **job}

    return read


def _check_dates(job: Mapping[str, Any]) -> None:
    if "delay" in job and "process_at" in job:
        raise UsageError("delay and process_at both say when; give one of them")


def _priority(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UsageError(f"{name} is a number from 0 to 255, or a name")
    return arguments.priority(str(value))


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _YEAR:
        raise UsageError(f"{name} is a number of seconds, at most 366 days")
    return value


def _date(name: str, value: object) -> Any:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} is a date such as 2026-01-31T12:00:00Z")
    return arguments.moment(value)


_YEAR: Final = 366 * 24 * 3600
_FIELDS: Final[dict[str, lines.Field]] = {
    "key": lines.key,
    "value": lines.value,
    "priority": _priority,
    "delay": _seconds,
    "process_at": _date,
    "expires_at": _date,
    "domain": lines.text,
}
