"""How results are shown: a table for people, plain lines for pipes, or JSON.

JSON is one object a line, so a long list can be read as it comes; `fjord.text` says how values are
written in it.  A row of declared columns is an object of them, in plain lines too, see `lines`.  In
plain lines, what would break a line or control a terminal is escaped; only `fjord kv get` prints a
value as it is.
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


# So many rows are laid out at a time, whatever the length of the list.
_ROWS: Final = 1000
_CELL_CHARACTERS: Final = 80


def print_json(what: Mapping[str, object]) -> None:
    """Prints one object on a line of its own: strict JSON, whatever is in it."""
    typer.echo(json.dumps(json_value(what), allow_nan=False))
    sys.stdout.flush()


def print_rows(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints rows of text: laid out on a terminal, else with tabs between."""
    if sys.stdout.isatty():
        _print_tables(names, iter(rows))
    else:
        for row in rows:
            print_line(*row)


def print_line(*cells: str) -> None:
    """Prints one line that stays one, whatever is in it."""
    typer.echo("\t".join(map(escaped, cells)))


def print_one(what: Mapping[str, object], *cells: str, as_json: bool) -> None:
    """Prints one thing: an object of JSON, or a line of cells."""
    if as_json:
        print_json(what)
    else:
        print_line(*cells)


def print_value(value: Any) -> None:
    """Prints a value alone: bytes as they are, all else with the end of a line."""
    if isinstance(value, bytes):
        sys.stdout.buffer.write(value)
    else:
        typer.echo(value_text(value))


def counted(number: int, noun: str) -> str:
    """Returns a number of things in words."""
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
    """Returns a moment of the clock as a date; one that no date can be as its number."""
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

# What the library tells a caller in Python, who has no command line.
READ_ONLY_ADVICE: Final = ", or open with read_only=True"
_REPAIR_ADVICE: Final = "see `fjord journal verify` and `fjord journal repair`"


@contextlib.contextmanager
def explained(*, repairable: bool = True) -> Iterator[None]:
    """Turns an error of Fjord into a sentence and an exit code.

    What is damaged is a journal that the verbs of `fjord journal` may mend, unless said otherwise.
    """
    try:
        yield
    except FjordError as error:
        tell(f"fjord: {_sentence(error, repairable=repairable)}", style="red")
        raise typer.Exit(_exit_code(error)) from error


@contextlib.contextmanager
def usage() -> Iterator[None]:
    """Turns an error of Fjord into wrong use: what was given on the command line is at fault."""
    try:
        yield
    except FjordError as error:
        raise UsageError(str(error)) from error


def exit_if(failed: object, code: int = EXIT_ERROR) -> None:
    """Ends the command with this code if something is not as it should be."""
    if failed:
        raise typer.Exit(code)


def tell(text: str, *, style: str = "") -> None:
    """Prints a line on standard error; in a style where that is a terminal."""
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
    """Shows how far a long work is; nothing before the first `update`, or without a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._running: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def describe(self, label: str) -> None:
        """Shows what is done right now."""
        self._label = label
        if self._running is not None:
            progress, task = self._running
            progress.update(task, description=label)

    def update(self, done: int, total: int | None) -> None:
        """Shows that so much is done; a total of None is one that nobody knows."""
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
