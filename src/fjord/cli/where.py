"""Where the data is: options that verbs share, and the database or the directory they name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

import fjord
from fjord.cli.failing import READ_ONLY_ADVICE, usage
from fjord.client.address import parse_url, split_url
from fjord.client.database import Database
from fjord.errors import DirectoryError, DirectoryInUseError, NotFoundError, UsageError
from fjord.wire import wakeups
from fjord.wire.wakeups import Address

if TYPE_CHECKING:
    from fjord.engine.layout import Layout

DAEMON: Final = "fjord://127.0.0.1:17994"
# Says where the cold blocks of directories are, if they are not in the directory itself.
BLOCKS_VARIABLE: Final = "FJORD_BLOCKS"

To = Annotated[str, typer.Option(help="Address of the daemon.")]
Data = Annotated[str, typer.Option(help="A data directory, used instead of a daemon.")]
# For verbs that work on a directory only.
Directory = Annotated[str, typer.Option("--data", help="The data directory.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]

# Each wake-up is sent to all of them; one address may be heard by any number of processes.
_WAKE_MAX: Final = 16
_ASK_INSTEAD: Final = ", or, if it is a daemon, give --to instead of --data to ask it"


def database(to: str, data: str, *, read_only: bool = False) -> Database:
    """Opens the directory, if one is named, or connects to the daemon.

    Raises:
        UsageError: if `to` is no address.
        FjordError: if there is no such directory or daemon.
    """
    if not data:
        with usage():
            parse_url(to)
        return fjord.connect(to)
    check_directory(data)
    try:
        return fjord.open(data, read_only=read_only, blocks=os.environ.get(BLOCKS_VARIABLE))
    except DirectoryInUseError as error:
        text = str(error).replace(READ_ONLY_ADVICE, _ASK_INSTEAD)
        raise DirectoryInUseError(text) from error


def loopback(text: str) -> tuple[str, int]:
    """Returns an address to listen on, of which a port alone is enough.

    Raises:
        UsageError: if it is none, or others could reach it.
    """
    from fjord.server.service import check_host

    with usage():
        host, port = split_url(f"127.0.0.1:{text}" if text.isdigit() else text)
        check_host(host)
    if port is None:
        raise UsageError(f"{text} has no port; it looks like 127.0.0.1:17994, or is a port alone")
    return host, port


def wake_address(text: str) -> Address:
    """Returns where wake-ups go to, or are heard; a port alone is enough.

    Raises:
        UsageError: if it is none, or not on this machine.
    """
    try:
        return wakeups.parse_address(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def wake_addresses(text: str) -> tuple[Address, ...]:
    """Returns all addresses of a list with commas; none of an empty one."""
    found = tuple(dict.fromkeys(map(wake_address, text.split(",")))) if text else ()
    if len(found) > _WAKE_MAX:
        raise UsageError(f"wake-ups go to at most {_WAKE_MAX} addresses, not {len(found)}")
    return found


def shown_address(scheme: str, address: tuple[str, int]) -> str:
    host, port = address
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_there(db: Database, table: str) -> bool:
    """Says whether a table has come into being."""
    try:
        db.table(table)
    except NotFoundError:
        return False
    return True


def check_directory(data: str) -> None:
    """Ensures that a name is that of a directory, or of nothing yet.

    Raises:
        DirectoryError: if it is something else.
    """
    if os.path.exists(data) and not os.path.isdir(data):
        raise DirectoryError(f"{data} is a file, not a directory")


def layout_of(data: str, *, may_be_empty: bool = False) -> Layout:
    """Returns the paths of a data directory; it may be one whose segments are all gone.

    Raises:
        DirectoryError: if it is not one, or cannot be read.
    """
    from fjord.disk import LocalDisk
    from fjord.engine.layout import Layout
    from fjord.journal import names

    check_directory(data)
    layout = Layout(data)
    try:
        found = LocalDisk().names(layout.journal) if data else []
    except NotADirectoryError:
        found = []
    except OSError as error:
        raise DirectoryError(f"{data} cannot be opened: {error}") from error
    is_empty = not any(names.segment_number(name) for name in found)
    if is_empty and not (may_be_empty and LocalDisk().exists(layout.published)):
        raise DirectoryError(f"{data or '--data'} is not a Fjord data directory")
    return layout
