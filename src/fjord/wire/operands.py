"""Operands of ADD and TRUNCATE: what may stand there, and how it reaches the table."""

from __future__ import annotations

from typing import Final

from fjord.commands import Change, Refusal
from fjord.errors import Code
from fjord.values import Type

_SIZES: Final[dict[int, tuple[int, ...]]] = {Type.INTEGER: (1, 2, 4, 8), Type.FLOAT: (8,)}
_TYPES: Final[dict[Change, tuple[int, ...]]] = {
    Change.ADD: (Type.INTEGER, Type.FLOAT),
    Change.TRUNCATE: (Type.INTEGER,),
}


def widen(change: Change, type_: int, data: bytes) -> bytes | Refusal:
    """Returns the 8 bytes of an operand, integers of 1, 2 and 4 bytes made wider.

    Stored integers have 8 bytes; whoever counts in bytes should not have to fill up the rest.
    """
    if change is Change.NOT:
        return Refusal(code=Code.BAD_VALUE, text="NOT has no operand") if data else data
    if type_ not in _TYPES[change]:
        wanted = " or ".join(f"{Type(one)} ({Type(one).name.lower()})" for one in _TYPES[change])
        return Refusal(code=Code.BAD_TYPE, text=f"{change.name} takes an operand of type {wanted}")
    if len(data) not in _SIZES[type_]:
        sizes = ", ".join(map(str, _SIZES[type_]))
        return Refusal(
            code=Code.BAD_VALUE, text=f"an operand of type {int(type_)} has {sizes} bytes"
        )
    if len(data) == 8:
        return data
    return int.from_bytes(data, "little", signed=True).to_bytes(8, "little", signed=True)
