"""The `fjord` command."""

from __future__ import annotations

import errno
import sys
from typing import Final

# What a write says that finds no space.  Verbs tell of their own files, so that of standard output
# is left; but the error does not say which file it was.
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Runs the command line; says what to install where that is missing."""
    try:
        from fjord.cli.commands import app
    except ModuleNotFoundError as error:
        sys.exit(f"fjord: the command needs {error.name}: pip install 'fjord-journal[server]'")
    try:
        app()
    except OSError as error:
        if error.errno not in _NO_SPACE or error.filename is not None:
            raise
        sys.exit(f"fjord: standard output, or a file, cannot be written: {error.strerror}")
