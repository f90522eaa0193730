"""Where the data is: options that every verb on tables has, and the database they name."""

from __future__ import annotations

from typing import Annotated, Final

import typer

import fjord
from fjord.client.database import Database

DAEMON: Final = "fjord://127.0.0.1:17994"

To = Annotated[str, typer.Option(help="Address of the daemon.")]
Data = Annotated[str, typer.Option(help="A data directory, used instead of a daemon.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def database(to: str, data: str, *, read_only: bool = False) -> Database:
    """Opens the directory, if one is named, or connects to the daemon."""
    return fjord.open(data, read_only=read_only) if data else fjord.connect(to)
