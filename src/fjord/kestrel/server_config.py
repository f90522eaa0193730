"""What a configuration says of the server, under the names that Kestrel has for it.

Times are milliseconds.  None means that there is no bound.  What the command line says, or what
Fjord does not have, may be there and is told of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fjord.errors import UsageError
from fjord.kestrel import status
from fjord.kestrel.config import Configuration
from fjord.kestrel.status import Status

_NUMBER_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How a server behaves, with the values that Kestrel has built in."""

    open_max: int = 1  # items that a connection may have open of one queue
    idle_ms: int | None = None  # a connection that asks nothing is closed
    sweep_ms: int | None = None  # expired items are looked for that often
    status_file: str | None = None  # keeps the status
    default_status: Status = Status.UP  # if there is no such file
    grace_ms: int = 0  # until a stricter status is enforced
    refuse_writes_over: int | None = None  # connections
    refuse_reads_over: int | None = None  # connections
    ignored: tuple[str, ...] = ()  # names that are there and change nothing


def read(given: Mapping[str, object]) -> tuple[ServerConfig, dict[str, object]]:
    """Returns what is said of the server, and all the rest.

    Raises:
        UsageError: if a value is none that it can have.
    """
    made: dict[str, object] = {}
    rest: dict[str, object] = {}
    ignored: list[str] = []
    for name, value in given.items():
        if name in _NAMES:
            field, read_value = _NAMES[name]
            if value is not None:
                made[field] = read_value(name, value)
        elif name in _IGNORED:
            ignored.append(name)
        else:
            rest[name] = value
    return ServerConfig(ignored=tuple(ignored), **made), rest  # type: ignore[arg-type]


def warnings(config: ServerConfig, queues: Configuration) -> list[str]:
    """Returns sentences about what is configured and changes nothing."""
    told = [f"{name} changes nothing: {_IGNORED[name]}" for name in config.ignored]
    told += [
        f"{name} is not looked at, so all clients are let in: only Kestrel's thrift has client ids"
        for field, name in _WHITE_LISTS.items()
        if any(queues.given(field))
    ]
    return told


def _number(name: str, value: object, *, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _NUMBER_MAX:
        raise UsageError(f"{name} is a number from {low} to {_NUMBER_MAX}, not {value!r}")
    return value


def _number_or_none(name: str, value: object) -> int:
    return _number(name, value, low=0)


def _path(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or value.endswith("/"):
        raise UsageError(f"{name} is the whole path of a file, not {value!r}")
    return value


def _status(name: str, value: object) -> Status:
    found = status.named(value) if isinstance(value, str) else None
    if found is None:
        raise UsageError(f"{name} is one of {', '.join(Status)}, not {value!r}")
    return found


_WHITE_LISTS: Final = {
    "white_list_client_id_for_dequeue": "whiteListClientIdForDequeue",
    "white_list_client_id_for_enqueue": "whiteListClientIdForEnqueue",
}
# By the name in a configuration: the field, and how its value is read.
_NAMES: Final[dict[str, tuple[str, Callable[[str, object], object]]]] = {
    "maxOpenTransactions": ("open_max", _number),
    "clientTimeout": ("idle_ms", _number),
    "expirationTimerFrequency": ("sweep_ms", _number),
    "statusFile": ("status_file", _path),
    "defaultStatus": ("default_status", _status),
    "statusChangeGracePeriod": ("grace_ms", _number_or_none),
    "connectionLimitRefuseWrites": ("refuse_writes_over", _number_or_none),
    "connectionLimitRefuseReads": ("refuse_reads_over", _number_or_none),
}
_LISTEN: Final = "--listen and --text say where clients are served"
# Names that Kestrel has, and why they change nothing.
_IGNORED: Final[dict[str, str]] = {
    "queuePath": "--dir says where the queues are",
    "listenAddress": _LISTEN,
    "memcacheListenAddress": _LISTEN,
    "memcacheListenPort": _LISTEN,
    "textListenAddress": _LISTEN,
    "textListenPort": _LISTEN,
    "thriftListenPort": "thrift is not served",
    "adminHttpPort": "there is no HTTP; ask for stats",
    "connectionBacklog": "it is fixed",
    "protocol": "there is one memcache protocol",
    "enableSessionTrace": "enableTrace of a queue logs what is asked of it",
    "zookeeper": "there is no ZooKeeper",
    "beFactoryClass": "there are no other backends",
    "loggers": "--log-format and --verbose say what is logged",
}
