"""How a command ends when it fails: one sentence on standard error, and a code.

Exit codes: 0 done; 1 an error that the text explains; 2 wrong use, or a directory that cannot be
opened; 3 the disk failed to keep data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import typer
from rich.console import Console
from rich.text import Text

from fjord.errors import CorruptionError, DirectoryError, DurabilityError, FjordError

EXIT_ERROR, EXIT_USAGE, EXIT_DISK = 1, 2, 3

errors = Console(stderr=True)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turns an error of Fjord into a sentence and an exit code."""
    try:
        yield
    except FjordError as error:
        errors.print(Text(f"fjord: {error}", style="red"), soft_wrap=True)
        raise typer.Exit(_exit_code(error)) from error


def _exit_code(error: FjordError) -> int:
    if isinstance(error, DurabilityError):
        return EXIT_DISK
    if isinstance(error, CorruptionError | DirectoryError):
        return EXIT_USAGE
    return EXIT_ERROR
