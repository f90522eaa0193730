"""`fjord wire`: explains messages of the FJ protocol to client authors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

from fjord import limits
from fjord.cli import output
from fjord.cli.arguments import Json, argument, noun, option, verb
from fjord.commands import FUNCTIONS
from fjord.errors import UsageError
from fjord.text import escaped
from fjord.wire import Function

if TYPE_CHECKING:
    from fjord.wire.explain import Line

app = noun("wire", "Explains messages of the FJ protocol.")

# Three characters per byte, for a few messages of the largest size.
_CHARACTERS_MAX: Final = 12 * limits.MESSAGE_BYTES_MAX
_BYTES_SHOWN: Final = 8


@app.callback()
def _options() -> None:
    """Explains messages of the FJ protocol."""


@verb(app, "explain")
def explain_(
    message: Annotated[
        str, argument("HEX", "Bytes as hexadecimal digits, spaces allowed; - reads standard input.")
    ],
    reply_to: Annotated[
        str, option("The function that a reply answers, such as GET_MANY, if there is no request.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Names every byte of requests, replies and changes.

    Exit code 1 if the bytes are not valid or end too early.

    Example: fjord wire explain "46 4a 00 01 00 00 00 07 00 00 00 00 00 00 00 00 00 00"
    """
    from fjord.wire.explain import explain

    lines = explain(_bytes(message), _function(reply_to))
    if as_json:
        for line in lines:
            output.print_json(_describe(line))
    elif sys.stdout.isatty():
        _print_table(lines)
    else:
        for line in lines:
            output.print_line(str(line.offset), line.data.hex(" "), line.field, line.meaning)
    output.exit_if(any(line.is_problem for line in lines))


def _bytes(text: str) -> bytes:
    if text == "-":
        text = sys.stdin.read(_CHARACTERS_MAX + 1)
    if len(text) > _CHARACTERS_MAX:
        raise UsageError(f"at most {_CHARACTERS_MAX} characters are explained at once")
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise UsageError("the bytes must be pairs of hexadecimal digits, such as 46 4a") from error
    if not data:
        raise UsageError("no bytes to explain; give some, such as 46 4a")
    return data


def _function(name: str) -> int | None:
    if not name:
        return None
    numbers = {one.name: int(one) for one in Function}
    numbers |= {row.name: row.number for row in FUNCTIONS.values()}
    if name.upper() not in numbers:
        raise UsageError(f"there is no function {name}; give one of {', '.join(numbers)}")
    return numbers[name.upper()]


def _describe(line: Line) -> dict[str, object]:
    return {
        "offset": line.offset,
        "bytes": line.data.hex(),
        "field": line.field,
        "meaning": line.meaning,
        "problem": line.is_problem,
    }


def _print_table(lines: list[Line]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("offset", justify="right")
    table.add_column("bytes", no_wrap=True)
    table.add_column("field")
    table.add_column("meaning", overflow="fold")
    for line in lines:
        style = "red" if line.is_problem else ""
        more = " ..." if len(line.data) > _BYTES_SHOWN else ""
        shown = line.data[:_BYTES_SHOWN].hex(" ") + more
        cells = (str(line.offset), shown, line.field, line.meaning)
        table.add_row(*(Text(escaped(cell), style=style) for cell in cells))
    Console().print(table)
