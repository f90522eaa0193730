"""Arrow tables for clients; pyarrow is imported on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fjord.commands import Messages, Scanned, ScannedArrow
from fjord.errors import FjordError

# These functions return pyarrow tables, untyped since a client works without pyarrow.


def messages_table(found: Messages) -> Any:
    """Returns messages as a table.

    Raises:
        FjordError: if pyarrow is not installed.
    """
    _, rows = _libraries()
    return rows.messages_to_arrow(found)


def scanned_table(
    found: Scanned | ScannedArrow, start_seq: int, columns: Sequence[str], key_prefix: bytes
) -> Any:
    """Returns a piece of a scan as a table.

    A server sends Arrow; the rows of a directory are converted here.
    """
    ipc, rows = _libraries()
    if isinstance(found, Scanned):
        data = rows.to_ipc(found, start_seq, found.end_seq, columns=columns, key_prefix=key_prefix)
    else:
        data = found.stream
    return ipc.open_stream(data).read_all()


def _libraries() -> tuple[Any, Any]:
    try:
        from pyarrow import ipc

        from fjord.blocks import rows
    except ModuleNotFoundError as error:
        raise FjordError(f"Arrow needs {error.name}: pip install pyarrow") from error
    return ipc, rows
