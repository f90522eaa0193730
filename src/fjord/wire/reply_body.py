"""What the bodies of all replies share: how many rows they have, and that they end with them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from fjord import limits
from fjord.columns import Buffer
from fjord.commands import Reply

ROWS = struct.Struct(">I4x")
PAGE = struct.Struct(">II")  # rows, size of where the next page begins

ReplyEncoders = dict[type[Reply], Callable[[Any], bytes]]
ReplyDecoders = dict[type[Reply], Callable[[Buffer], Reply]]


def check_end(position: int, view: memoryview) -> None:
    if position != len(view):
        raise ValueError("the body is longer than its columns")


def check_rows(rows: int) -> None:
    if rows > limits.BATCH_ROWS_MAX:
        raise ValueError(f"a reply has at most {limits.BATCH_ROWS_MAX} rows")
