"""What a client hands out as Arrow; pyarrow is loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fjord.commands import Messages, Scanned, ScannedArrow
from fjord.errors import FjordError

# What is returned are pyarrow tables.  They have no types here, since a client works without.


def messages_table(found: Messages) -> Any:
    """Returns messages as a table.

    Raises:
        FjordError: if pyarrow is not installed.
    """
    return _rows().messages_to_arrow(found)


def scanned_table(
    found: Scanned | ScannedArrow, start_seq: int, columns: Sequence[str], key_prefix: bytes
) -> Any:
    """Returns a piece of a scan from `start_seq` on as a table.

    A server makes the rows itself; those of a directory are made here.
    """
    if isinstance(found, Scanned):
        rows = _rows()
        data = rows.to_ipc(found, start_seq, found.end_seq, columns=columns, key_prefix=key_prefix)
    else:
        data = found.stream
    return _read(data)


def _read(data: bytes) -> Any:
    try:
        from pyarrow import ipc
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    return ipc.open_stream(data).read_all()


def _rows() -> Any:
    try:
        from fjord.blocks import rows
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    return rows


def _missing(error: ModuleNotFoundError) -> FjordError:
    return FjordError(f"Arrow needs {error.name}: pip install pyarrow")
