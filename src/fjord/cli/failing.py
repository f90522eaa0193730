"""How a command ends when it fails: one sentence on standard error, and a code.

Exit codes: 0 done; 1 an error that the text explains; 2 wrong use, or a directory that cannot be
opened; 3 the disk failed to keep data.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

import typer

from fjord.cli import output
from fjord.errors import (
    CorruptionError,
    DirectoryError,
    DirectoryInUseError,
    DurabilityError,
    FjordError,
    UsageError,
)

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


def tell(text: str, *, style: str = "") -> None:
    """Prints a line on standard error; in a style where that is a terminal."""
    if not sys.stderr.isatty():
        typer.echo(output.escaped(text), err=True)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text(output.escaped(text), style=style), soft_wrap=True)


def _sentence(error: FjordError, *, repairable: bool) -> str:
    if isinstance(error, DirectoryInUseError):
        return str(error).replace(READ_ONLY_ADVICE, "")
    if isinstance(error, CorruptionError) and repairable:
        return f"{error} Without one, {_REPAIR_ADVICE}."
    return str(error)


def _exit_code(error: FjordError) -> int:
    if isinstance(error, DurabilityError):
        return EXIT_DISK
    if isinstance(error, CorruptionError | DirectoryError | UsageError):
        return EXIT_USAGE
    return EXIT_ERROR
