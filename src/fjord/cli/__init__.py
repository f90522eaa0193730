"""The `fjord` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; says what to install where that is missing."""
    try:
        from fjord.cli.commands import app
    except ModuleNotFoundError as error:
        sys.exit(f"fjord: the command needs {error.name}: pip install 'fjord-journal[server]'")
    app()
