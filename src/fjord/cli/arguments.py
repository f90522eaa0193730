"""What is typed on the command line, turned into what the library takes."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final

import typer
import typer.core

from fjord import limits
from fjord.errors import UsageError
from fjord.jobs import PRIORITY_MAX, Priority
from fjord.values import Value

PRIORITIES: Final = ", ".join(
    f"{one.name.lower().replace('_', '-')} {one.value}" for one in Priority
)

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The jobs table.", show_default=False)
]
StreamName = Annotated[str, typer.Argument(metavar="TABLE", help="The stream.", show_default=False)]
JobKeys = Annotated[
    list[str], typer.Argument(metavar="KEY", help="One or more keys.", show_default=False)
]
Xids = Annotated[
    list[int],
    typer.Argument(metavar="XID", help="Numbers that `fjord next` gave.", show_default=False),
]

Awake = Annotated[
    int | None,
    typer.Option(
        help="Microseconds to stay awake after a reply: faster answers for some processor "
        "time. 0 = sleep at once.",
        min=0,
        max=limits.AWAKE_US_MAX,
        show_default="150, or 0 with one processor",
    ),
]


def seconds(low: float = 0.0, high: float = float("inf")) -> Callable[[str], float]:
    """Returns what reads a number of seconds from `low` to `high`, which is not without end."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError as error:
            raise typer.BadParameter(f"{text} is no number of seconds") from error
        if not low <= found <= high or found == float("inf"):
            raise typer.BadParameter(f"{text} is not {_range(low, high)}")
        return found

    read.__name__ = "seconds"  # shown in the help
    return read


def _range(low: float, high: float) -> str:
    if high == float("inf"):
        return f"a number of seconds with an end, and {low:g} or more"
    days, rest = divmod(high, 24 * 3600)
    return f"within {low:g} to {high:.10g} seconds" + ("" if rest else f", which is {days:g} days")


SOME: Final = limits.LEASE_US_MIN / 1_000_000  # the least that is more than nothing
WAIT_MAX: Final = limits.WAIT_US_MAX / 1_000_000
DELAY_MAX: Final = limits.PROCESS_AHEAD_US_MAX / 1_000_000
LEASE_MAX: Final = limits.LEASE_US_MAX / 1_000_000
_PERIOD_MAX: Final = 7 * 24 * 3600

Delay = Annotated[
    float | None,
    typer.Option(parser=seconds(high=DELAY_MAX), help="Seconds from now on.", show_default=False),
]
At = Annotated[
    str, typer.Option("--at", help="A date within 366 days, with its zone: 2026-01-31T12:00:00Z.")
]
Period = Annotated[
    float,
    typer.Option(
        parser=seconds(1, _PERIOD_MAX),
        help="Seconds after which writers begin another file; the same for all of a spool.",
    ),
]
Domain = Annotated[str, typer.Option(help="Of this domain only; the table needs fairness.")]
Lease = Annotated[
    float | None,
    typer.Option(
        parser=seconds(SOME, LEASE_MAX),
        help="Seconds that they are yours.",
        show_default="as the table says",
    ),
]


class TypeName(enum.StrEnum):
    """What a value can be, in the words of the command line."""

    void = "void"
    buffer = "buffer"
    string = "string"
    integer = "integer"
    float = "float"
    boolean = "boolean"


class LogFormat(enum.StrEnum):
    """How the log is written."""

    text = "text"
    json = "json"


LogForm = Annotated[
    LogFormat, typer.Option("--log-format", help="Log lines for people, or JSON for machines.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Log more.")]


class Numeric(typer.core.TyperCommand):
    """A command of which a negative number is an argument, and no unknown option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = True
        self._refuse_unknown(ctx, args)
        return super().parse_args(ctx, args)

    def _refuse_unknown(self, ctx: Any, args: list[str]) -> None:
        takes_value = {
            name: not getattr(option, "is_flag", False) and not getattr(option, "count", False)
            for option in self.get_params(ctx)
            for name in (*option.opts, *option.secondary_opts)
        }
        rest = iter(args)
        for word in rest:
            if word == "--":
                return
            if not word.startswith("-") or word == "-" or _is_number(word):
                continue
            name, is_joined, _ = word.partition("=")
            if name not in takes_value:
                ctx.fail(f"No such option: {name}. Write -- before an argument that begins so.")
            if takes_value[name] and not is_joined:
                next(rest, None)


def value(text: str, type_: TypeName) -> Value:
    """Returns the value that a text stands for.

    Raises:
        UsageError: if it stands for none of that type.
    """
    try:
        return _PARSERS[type_](text)
    except ValueError as error:
        raise UsageError(f"{text} is no {type_}") from error


def number(text: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue  # the next kind may fit
    raise UsageError(f"{text} is no number")


def moment(text: str) -> datetime | None:
    """Returns the date that a text stands for, None if there is no text."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text} is no date; one looks like 2026-01-31T12:00:00Z") from error
    if found.tzinfo is None:
        raise UsageError(
            f"{text} has no time zone; write Z for UTC, or an offset: 2026-01-31T12:00:00+01:00"
        )
    if found.timestamp() <= 0:
        raise UsageError(f"{text} is before 1970")
    return found


def start(text: str) -> str | int | datetime:
    """Returns where to begin in a stream, as the library takes it."""
    if text in ("beginning", "end"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = moment(text)
    except UsageError as error:
        raise UsageError(f"{error}; or write beginning, end or a seq") from error
    if found is None:
        raise UsageError("say where: beginning, end, a seq, or a date as 2026-01-31T12:00:00Z")
    return found


def priority(text: str) -> int:
    """Returns the priority that a number, or one of the names, stands for."""
    name = text.upper().replace("-", "_")
    if name in Priority.__members__:
        return Priority[name].value
    if text.isascii() and text.isdigit() and int(text) <= PRIORITY_MAX:
        return int(text)
    raise UsageError(f"{text} is no priority; one is a number from 0 to 255, or {PRIORITIES}")


def one_date(delay: float | None, at: str) -> dict[str, Any]:
    """Returns when a job is due, as the library takes it."""
    until = moment(at)
    if delay is not None and until is not None:
        raise UsageError("--delay and --at both say when; give one of them")
    return {"delay": delay, "process_at": until}


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_PARSERS: Final[dict[TypeName, Callable[[str], Value]]] = {
    TypeName.void: lambda text: None,
    TypeName.buffer: lambda text: text.encode(errors="surrogateescape"),
    TypeName.string: str,
    TypeName.integer: int,
    TypeName.float: float,
    TypeName.boolean: _parse_boolean,
}
