"""How results are printed: a table for people, plain lines for pipes, or JSON.

JSON is one object per line, so long lists can be processed as they arrive; `fjord.text` writes
the values in it.  A row of declared columns is a JSON object, in plain lines too; see `lines`.
Plain lines escape control characters; only `fjord kv get` prints raw values.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import typer

from fjord import errors
from fjord.client.entries import Change, Entry, Key
from fjord.errors import FjordError, UsageError
from fjord.text import escaped, json_value, key_text, type_name, value_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


# Rows laid out at a time, whatever the length of the list.
_ROWS: Final = 1000
_CELL_CHARACTERS: Final = 80


def print_json(what: Mapping[str, object]) -> None:
    """Prints one object as a line of strict JSON."""
    typer.echo(json.dumps(json_value(what), allow_nan=False))
    sys.stdout.flush()


def print_rows(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints rows of text: as a table on a terminal, otherwise tab-separated."""
    if sys.stdout.isatty():
        _print_tables(names, iter(rows))
    else:
        for row in rows:
            print_line(*row)


def print_line(*cells: str) -> None:
    """Prints one line, escaping whatever would break it."""
    typer.echo("\t".join(map(escaped, cells)))


def print_one(what: Mapping[str, object], *cells: str, as_json: bool) -> None:
    """Prints one result: a JSON object, or a line of cells."""
    if as_json:
        print_json(what)
    else:
        print_line(*cells)


def print_value(value: Any) -> None:
    """Prints a value alone: raw bytes, or text with a newline."""
    if isinstance(value, bytes):
        sys.stdout.buffer.write(value)
    else:
        typer.echo(value_text(value))


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, in the plural if needed."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def describe(key: Key, entry: Entry) -> dict[str, object]:
    """Returns an entry for `print_json`."""
    return {
        "key": key_text(key),
        "type": entry.type.name.lower(),
        "value": entry.value,
        "written_at": entry.written_at.isoformat(),
        "created_at": entry.created_at.isoformat(),
        "accessed_at": date(entry.accessed_at),
        "expires_at": date(entry.expires_at),
        "ttl": entry.ttl,
        "locked": entry.locked,
        "worked_on": entry.worked_on,
    }


def describe_change(change: Change) -> dict[str, object]:
    """Returns a change for `print_json`."""
    type_ = None if change.deleted else type_name(change.value)
    return {
        "key": key_text(change.key),
        "type": type_,
        "value": change.value,
        "deleted": change.deleted,
        "written_at": change.written_at.isoformat(),
        "expires_at": date(change.expires_at),
    }


def date(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def date_of_us(wall_us: int) -> str:
    """Returns a time as a date, or as its number if it is out of range."""
    try:
        return datetime.fromtimestamp(wall_us / 1_000_000, tz=UTC).isoformat()
    except (OverflowError, ValueError):
        return str(wall_us)


def _print_tables(names: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    while part := list(itertools.islice(rows, _ROWS)):
        table = Table(*names, header_style="bold", box=None)
        for row in part:
            table.add_row(*(Text(_short(escaped(cell))) for cell in row))
        console.print(table)


def _short(text: str) -> str:
    return text if len(text) <= _CELL_CHARACTERS else f"{text[: _CELL_CHARACTERS - 1]}\u2026"


# -- how a command ends when it fails: one sentence on standard error, and a code -----------------
#
# Exit codes: 0 done; 1 an error that the text explains; 2 wrong use, or a directory that cannot be
# opened; 3 the disk failed to keep data.


EXIT_ERROR, EXIT_USAGE, EXIT_DISK = 1, 2, 3

# Advice in the library's messages that is for callers in Python only.
READ_ONLY_ADVICE: Final = ", or open with read_only=True"
_REPAIR_ADVICE: Final = "see `fjord journal verify` and `fjord journal repair`"


@contextlib.contextmanager
def explained(*, repairable: bool = True) -> Iterator[None]:
    """Turns a FjordError into a message and an exit code.

    If `repairable`, damage is that of a journal, which `fjord journal repair` can repair.
    """
    try:
        yield
    except FjordError as error:
        tell(f"fjord: {_sentence(error, repairable=repairable)}", style="red")
        raise typer.Exit(_exit_code(error)) from error


@contextlib.contextmanager
def usage() -> Iterator[None]:
    """Turns a FjordError into a UsageError: an argument is wrong."""
    try:
        yield
    except FjordError as error:
        raise UsageError(str(error)) from error


@contextlib.contextmanager
def needs(text: str) -> Iterator[None]:
    """Turns a missing package into a FjordError with this text; `{}` is the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise FjordError(text.format(error.name)) from error


def exit_if(failed: object, code: int = EXIT_ERROR) -> None:
    """Ends the command with this code if something failed."""
    if failed:
        raise typer.Exit(code)


def tell(text: str, *, style: str = "") -> None:
    """Prints a line on standard error, styled on a terminal."""
    if not sys.stderr.isatty():
        typer.echo(escaped(text), err=True)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text(escaped(text), style=style), soft_wrap=True)


def _sentence(error: FjordError, *, repairable: bool) -> str:
    if isinstance(error, errors.DirectoryInUseError):
        return str(error).replace(READ_ONLY_ADVICE, "")
    if isinstance(error, errors.CorruptionError) and repairable:
        return f"{error} Without one, {_REPAIR_ADVICE}."
    return str(error)


def _exit_code(error: FjordError) -> int:
    if isinstance(error, errors.DurabilityError):
        return EXIT_DISK
    if isinstance(error, errors.CorruptionError | errors.DirectoryError | UsageError):
        return EXIT_USAGE
    return EXIT_ERROR


# -- a progress bar on standard error, which appears only if there is something to wait for -------


class Bar:
    """A progress bar; hidden before the first `update`, and without a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._running: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def describe(self, label: str) -> None:
        """Changes the label."""
        self._label = label
        if self._running is not None:
            progress, task = self._running
            progress.update(task, description=label)

    def update(self, done: int, total: int | None) -> None:
        """Shows the progress; a total of None is unknown."""
        if not sys.stderr.isatty():
            return
        if self._running is None:
            self._running = _start(self._label)
        progress, task = self._running
        progress.update(task, completed=done, total=total)

    def stop(self) -> None:
        if self._running is not None:
            progress, _ = self._running
            self._running = None
            progress.stop()


def _start(label: str) -> tuple[Progress, TaskID]:
    from rich import progress as bars
    from rich.console import Console

    progress = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task(label, total=None)
    progress.start()
    return progress, task
