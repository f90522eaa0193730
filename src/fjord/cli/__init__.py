"""The `fjord` command."""

from __future__ import annotations

import errno
import sys
from typing import Final

# Errors of a write without space.  Verbs report those of their own files, so this is most likely
# standard output.
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Runs the command line, or says which package is missing."""
    try:
        from fjord.cli.commands import app
    except ModuleNotFoundError as error:
        sys.exit(f"fjord: the command needs {error.name}: pip install 'fjord-journal[server]'")
    try:
        app()
    except OSError as error:
        if error.errno not in _NO_SPACE or error.filename is not None:
            raise
        sys.exit(f"fjord: cannot write to standard output or a file: {error.strerror}")
