"""Options shared by verbs, and parsing of arguments."""

from __future__ import annotations

import enum
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from types import MethodType
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

import fjord
from fjord import limits
from fjord.cli import output
from fjord.cli.output import READ_ONLY_ADVICE, usage
from fjord.client.address import parse_url, split_url
from fjord.client.blocking.database import Database
from fjord.errors import DirectoryError, DirectoryInUseError, NotFoundError, UsageError
from fjord.jobs import PRIORITY_MAX, Priority
from fjord.values import Value
from fjord.wire import wakeups
from fjord.wire.wakeups import Address

if TYPE_CHECKING:
    from fjord.engine.layout import Layout

What = TypeVar("What")

DAEMON: Final = "fjord://127.0.0.1:17994"
# The location of cold blocks, if they are not in the data directory itself.
BLOCKS_VARIABLE: Final = "FJORD_BLOCKS"


def argument(name: str, what: str, *, shown: bool | str = False, **more: Any) -> Any:
    """Returns a verb's argument; `shown` describes its default in the help."""
    return typer.Argument(metavar=name, help=what, show_default=shown, **more)


def option(what: str, *names: str, shown: bool | str = True, **more: Any) -> Any:
    """Returns a verb's option; `shown` describes its default in the help."""
    return typer.Option(*names, help=what, show_default=shown, **more)


To = Annotated[str, option("Address of the daemon.")]
Data = Annotated[str, option("A data directory, used instead of a daemon.")]
# For verbs that work on a directory only.
Directory = Annotated[str, option("The data directory.", "--data")]
Json = Annotated[bool, option("Print JSON, one object per line.", "--json")]

# Each wake-up is sent to all of them; any number of processes can listen at one address.
_WAKE_MAX: Final = 16
_ASK_INSTEAD: Final = ", or, if it is a daemon, use --to instead of --data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A daemon or a data directory, and how to print results: options of most verbs."""

    to: To = DAEMON
    data: Data = ""
    as_json: Json = False

    def open(self, *, read_only: bool = False) -> Database:
        """Connects to the daemon, or opens the directory if one is named.

        Raises:
            UsageError: if `to` is not a valid address.
            FjordError: if there is no such directory or daemon.
        """
        if not self.data:
            with usage():
                parse_url(self.to)
            return fjord.connect(self.to)
        check_directory(self.data)
        try:
            blocks = os.environ.get(BLOCKS_VARIABLE)
            return fjord.open(self.data, read_only=read_only, blocks=blocks)
        except DirectoryInUseError as error:
            text = str(error).replace(READ_ONLY_ADVICE, _ASK_INSTEAD)
            raise DirectoryInUseError(text) from error

    def done(self, text: str = "", /, **what: object) -> None:
        """Prints a result: as JSON, or this text if there is one."""
        if self.as_json:
            output.print_json(what)
        elif text:
            output.tell(text)

    def end(self, problems: Sequence[str], **what: object) -> None:
        """Prints the result as JSON, or each problem; exit code 1 if there are problems."""
        self.done(**what)
        for one in () if self.as_json else problems:
            output.tell(f"fjord: {one}")
        output.exit_if(problems)

    def print_value(self, value: Value, what: Mapping[str, object]) -> None:
        """Prints a JSON object, or the value alone."""
        if self.as_json:
            output.print_json(what)
        else:
            output.print_value(value)

    def print_all(
        self,
        found: Iterable[What],
        describe: Callable[[What], Mapping[str, object]],
        names: Sequence[str],
        cells: Callable[[What], Sequence[str]],
    ) -> None:
        """Prints a list: JSON objects, or rows of cells below these names."""
        if self.as_json:
            for one in found:
                output.print_json(describe(one))
        else:
            output.print_rows(names, map(cells, found))


def noun(name: str, what: str) -> typer.Typer:
    """Returns a noun's app, to which `verb` adds commands."""
    return typer.Typer(name=name, cls=PlainGroup, help=what, no_args_is_help=True)


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Makes a verb a command, which explains its errors.

    A parameter whose type is a dataclass becomes one option for each field.  If it is the
    first parameter, like `Node`, its options are listed last.
    """
    options: list[inspect.Parameter] = []
    groups: dict[str, tuple[Callable[..., object], list[str]]] = {}
    first, *others = inspect.signature(verb, eval_str=True).parameters.values()
    for one in (*others, first) if is_dataclass(first.annotation) else (first, *others):
        if isinstance(one.annotation, type) and is_dataclass(one.annotation):
            fields = inspect.signature(one.annotation, eval_str=True).parameters
            groups[one.name] = one.annotation, list(fields)
            options += fields.values()
        else:
            options.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        for name, (make, fields) in groups.items():
            given[name] = make(**{field: given.pop(field) for field in fields})
        with output.explained():
            verb(**given)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run


def verb(
    app: typer.Typer, name: str | None = None, cls: type[TyperCommand] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a function to an app as a command; see `with_options`."""
    return lambda function: app.command(name, cls=cls or Plain)(with_options(function))


# -- arguments and options of several verbs -------------------------------------------------------

DEFAULT_LEVEL: Final = str(Priority.DEFAULT.value)
PRIORITIES: Final = ", ".join(
    f"{one.name.lower().replace('_', '-')} {one.value}" for one in Priority
)

AnyKind = Annotated[str, argument("TABLE", "The table.")]
TableName = Annotated[str, argument("TABLE", "The jobs table.")]
StreamName = Annotated[str, argument("TABLE", "The stream.")]
Key = Annotated[str, argument("KEY", "The key.")]
Keys = Annotated[list[str], argument("KEY", "One or more keys.")]
Xids = Annotated[list[int], argument("XID", "One or more xids, as printed by `fjord next`.")]

Awake = Annotated[
    int | None,
    option(
        "Microseconds to stay awake after a reply: faster answers for some processor "
        "time. 0 = sleep at once.",
        min=0,
        max=limits.AWAKE_US_MAX,
        shown="150, or 0 with one processor",
    ),
]


def seconds(low: float = 0.0, high: float = float("inf")) -> Callable[[str], float]:
    """Returns a parser of a finite number of seconds from `low` to `high`."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError as error:
            raise typer.BadParameter(f"{text} is not a number of seconds") from error
        if not low <= found <= high or found == float("inf"):
            raise typer.BadParameter(f"{text} is not {_range(low, high)}")
        return found

    read.__name__ = "seconds"  # shown in the help
    return read


def _range(low: float, high: float) -> str:
    if high == float("inf"):
        return f"a finite number of seconds, {low:g} or more"
    days, rest = divmod(high, 24 * 3600)
    return f"within {low:g} to {high:.10g} seconds" + ("" if rest else f", which is {days:g} days")


SOME: Final = limits.LEASE_US_MIN / 1_000_000  # the least that is more than nothing
WAIT_MAX: Final = limits.WAIT_US_MAX / 1_000_000
read_delay: Final = seconds(high=limits.PROCESS_AHEAD_US_MAX / 1_000_000)
read_lease: Final = seconds(SOME, limits.LEASE_US_MAX / 1_000_000)
_PERIOD_MAX: Final = 7 * 24 * 3600

Delay = Annotated[float | None, option("Seconds from now.", parser=read_delay, shown=False)]
At = Annotated[
    str, option("A date within 366 days, with a time zone: 2026-01-31T12:00:00Z.", "--at")
]
Period = Annotated[
    float,
    option(
        "Seconds after which writers begin a new file; the same for a whole spool.",
        parser=seconds(1, _PERIOD_MAX),
    ),
]
Domain = Annotated[str, option("This domain only; the table needs fairness.")]
Lease = Annotated[
    float | None, option("Length of the lease, in seconds.", parser=read_lease, shown="the table's")
]


class TypeName(enum.StrEnum):
    """The types of a value."""

    void = "void"
    buffer = "buffer"
    string = "string"
    integer = "integer"
    float = "float"
    boolean = "boolean"


Given = Annotated[str | None, argument("VALUE", "The value; - reads standard input.")]
Typed = Annotated[
    TypeName | None, option("The type of VALUE.", "--type", shown="string; buffer for -")
]
Level = Annotated[str, option(f"0 to 255, smaller first, or a name: {PRIORITIES}.")]
Wait = Annotated[float, option("Seconds to wait for the first one.", parser=seconds(high=WAIT_MAX))]
Http = Annotated[
    str,
    option("Loopback address and port, or a port alone, for /metrics and /healthz.", shown="off"),
]


class LogFormat(enum.StrEnum):
    """Formats of the log."""

    text = "text"
    json = "json"


LogForm = Annotated[
    LogFormat, option("Log lines for people, or JSON for machines.", "--log-format")
]
Verbose = Annotated[bool, option("Log more.", "--verbose")]


class Plain(TyperCommand):
    """A command that starts fast; see `_light`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _light(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """The same for an app."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _light(super().get_params(ctx))


def _light(parameters: list[Any]) -> list[Any]:
    """Passes plain text and missing values through; otherwise typer loads Pydantic."""
    for one in parameters:
        usual = getattr(one, "get_runtime_param", None)
        if isinstance(usual, MethodType):  # otherwise done already, or typer is older
            one.get_runtime_param = functools.partial(_Coercion, usual)
    return parameters


class _Coercion:
    def __init__(self, usual: Callable[[], Any]) -> None:
        self._usual = usual

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        is_absent = value is None and not param.multiple and param.nargs == 1
        is_text = param.type_descriptor.annotation is str and isinstance(value, str)
        if is_absent or (is_text and value.isascii()):
            return value
        return self._usual().coerce(value, param=param, ctx=ctx)


class Numeric(Plain):
    """A command that takes a negative number as an argument, not as an unknown option."""

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
                ctx.fail(f"No such option: {name}. Write -- before an argument that begins with -.")
            if takes_value[name] and not is_joined:
                next(rest, None)


def value(text: str, type_: TypeName) -> Value:
    """Parses a value.

    Raises:
        UsageError: if the text is not of that type.
    """
    try:
        return _PARSERS[type_](text)
    except ValueError as error:
        raise UsageError(f"{text} is not a valid {type_}") from error


def number(text: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue  # the next kind may fit
    raise UsageError(f"{text} is not a number")


def moment(text: str) -> datetime | None:
    """Parses a date; None if there is no text."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text} is not a date; expected one like 2026-01-31T12:00:00Z") from error
    if found.tzinfo is None:
        raise UsageError(
            f"{text} has no time zone; write Z for UTC, or an offset: 2026-01-31T12:00:00+01:00"
        )
    if found.timestamp() <= 0:
        raise UsageError(f"{text} is before 1970")
    return found


def start(text: str) -> str | int | datetime:
    """Parses a place in a stream."""
    if text in ("beginning", "end"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = moment(text)
    except UsageError as error:
        raise UsageError(f"{error}; or write beginning, end or a seq") from error
    if found is None:
        raise UsageError("give beginning, end, a seq, or a date such as 2026-01-31T12:00:00Z")
    return found


def priority(text: str) -> int:
    """Parses a priority: a number, or one of the names."""
    name = text.upper().replace("-", "_")
    if name in Priority.__members__:
        return Priority[name].value
    if text.isascii() and text.isdigit() and int(text) <= PRIORITY_MAX:
        return int(text)
    raise UsageError(f"{text} is not a priority; give a number from 0 to 255, or {PRIORITIES}")


def one_date(delay: float | None, at: str) -> dict[str, Any]:
    """Returns the library's arguments for when a job is due."""
    until = moment(at)
    if delay is not None and until is not None:
        raise UsageError("--delay and --at exclude each other; give one of them")
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


# -- addresses and directories --------------------------------------------------------------------


def loopback(text: str) -> tuple[str, int]:
    """Parses a loopback address to listen on, or a port alone.

    Raises:
        UsageError: if it is not one.
    """
    from fjord.server.service import check_host

    with usage():
        host, port = split_url(f"127.0.0.1:{text}" if text.isdigit() else text)
        check_host(host)
    if port is None:
        raise UsageError(f"{text} has no port; expected one like 127.0.0.1:17994, or a port alone")
    return host, port


def wake_address(text: str) -> Address:
    """Parses an address of wake-ups, or a port alone.

    Raises:
        UsageError: if it is not a loopback address.
    """
    try:
        return wakeups.parse_address(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def wake_addresses(text: str) -> tuple[Address, ...]:
    """Parses a comma-separated list of addresses, which may be empty."""
    found = tuple(dict.fromkeys(map(wake_address, text.split(",")))) if text else ()
    if len(found) > _WAKE_MAX:
        raise UsageError(f"wake-ups go to at most {_WAKE_MAX} addresses, not {len(found)}")
    return found


def shown_address(scheme: str, address: tuple[str, int]) -> str:
    host, port = address
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def say_ready(**addresses: tuple[str, int] | None) -> None:
    """Prints that a service is ready, and its addresses by scheme."""
    shown = [shown_address(scheme, at) for scheme, at in addresses.items() if at is not None]
    typer.echo(" ".join(["ready", *shown]))


def is_there(db: Database, table: str) -> bool:
    """Says whether a table exists."""
    try:
        db.table(table)
    except NotFoundError:
        return False
    return True


def check_directory(data: str) -> None:
    """Raises DirectoryError if the name is that of something other than a directory."""
    if os.path.exists(data) and not os.path.isdir(data):
        raise DirectoryError(f"{data} is a file, not a directory")


def layout_of(data: str, *, may_be_empty: bool = False) -> Layout:
    """Returns the paths of a data directory, with `may_be_empty` also of one without segments.

    Raises:
        DirectoryError: if it is not a data directory, or cannot be read.
    """
    from fjord.disk import LocalDisk
    from fjord.engine.layout import Layout
    from fjord.journal import frame

    check_directory(data)
    layout = Layout(data)
    try:
        found = LocalDisk().names(layout.journal) if data else []
    except NotADirectoryError:
        found = []
    except OSError as error:
        raise DirectoryError(f"{data} cannot be opened: {error}") from error
    is_empty = not any(frame.segment_number(name) for name in found)
    if is_empty and not (may_be_empty and LocalDisk().exists(layout.published)):
        raise DirectoryError(f"{data or '--data'} is not a Fjord data directory")
    return layout
