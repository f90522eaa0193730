"""The configuration of queues and of the server, under the names of Kestrel 2, and inheritance.

    built in  ->  default  ->  the queue  ->  its fanout child

A later one says only what it changes.  Times are milliseconds.  None means that there is no bound,
as in Kestrel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fjord import disk as disks
from fjord import limits
from fjord.clock import Clock
from fjord.errors import UsageError
from fjord.kestrel import names
from fjord.kestrel.codec import Dialect


class Status(enum.StrEnum):
    """What a server does for clients; a later one is stricter."""

    UP = "up"
    READONLY = "readonly"  # nothing is put, flushed or deleted
    QUIESCENT = "quiescent"  # and nothing is taken; what is open can be closed


_WRITTEN: Final = {Status.UP: "Up", Status.READONLY: "ReadOnly", Status.QUIESCENT: "Quiescent"}
_FILE_BYTES_MAX: Final = 64


class Standing:
    """The status of a server, as it is reported and as it is enforced."""

    def __init__(
        self,
        clock: Clock,
        first: Status = Status.UP,
        *,
        grace_us: int = 0,
        keep: Callable[[Status], None] | None = None,
    ) -> None:
        """Begins with `first`; `keep` makes a status durable, or raises an OSError."""
        self._clock = clock
        self._grace_us = grace_us
        self._keep = keep
        self.told = first
        self._enforced = first
        self._since_us = 0  # when `told` is enforced

    @property
    def enforced(self) -> Status:
        if self._enforced is not self.told and self._clock.monotonic_us() >= self._since_us:
            self._enforced = self.told
        return self._enforced

    def change(self, wanted: Status) -> None:
        """Changes the status; a change that is not enforced yet gives way to this one.

        Raises:
            OSError: if it could not be kept; nothing has changed then.
        """
        enforced = self.enforced
        if self._keep is not None:
            self._keep(wanted)
        is_stricter = list(Status).index(wanted) > list(Status).index(enforced)
        self.told = wanted
        self._enforced = enforced if is_stricter else wanted
        self._since_us = self._clock.monotonic_us() + self._grace_us


def read_status(disk: disks.Disk, path: str) -> tuple[Status | None, str]:
    """Returns the status in a file, None if it has none, and the text of the file.

    Raises:
        OSError: if it cannot be read.
    """
    if not disk.exists(path):
        return None, ""
    with contextlib.closing(disk.open(path)) as file:
        word = file.read(0, _FILE_BYTES_MAX).decode(errors="replace").strip()
    return next((status for status in Status if status == word.lower()), None), word


def write_status(disk: disks.Disk, path: str, status: Status) -> None:
    """Ensures that a file durably keeps a status; directories above it are made."""
    disk.make_directory(os.path.dirname(path))
    disks.replace_whole(disk, path, f"{_WRITTEN[status]}\n".encode())


# What Kestrel calls Int.MaxValue and Long.MaxValue.
ITEMS_MAX: Final = 2**31 - 1
BYTES_MAX: Final = 2**63 - 1

# Reads a value; its name is for the error.
_Read = Callable[[str, object], object]


def _numbers(low: int, high: int) -> _Read:
    def read_number(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise UsageError(f"{name} is a number from {low} to {high}, not {value!r}")
        return value

    return read_number


_number: Final = _numbers(0, BYTES_MAX)


def _optional(read_value: _Read) -> _Read:
    return lambda name, value: None if value is None else read_value(name, value)


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} is true or false, not {value!r}")
    return value


def _sync(name: str, value: object) -> object:
    if value == "never" or value is False or value is None:
        return None
    if value is True or value == "always":
        return 0
    if isinstance(value, str):
        raise UsageError(f"{name} is always, never, or a number of milliseconds, not {value!r}")
    return _number(name, value)


def _queue(name: str, value: object) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise UsageError(f"{name}: not a valid queue name: {value!r}; expected text")
    if (problem := names.queue_problem(value)) is not None:
        raise UsageError(f"{name}: {problem}")
    return value


def _words(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{name} is a list of names, not {value!r}")
    return tuple(value)


def _one_of(kind: type[enum.StrEnum]) -> _Read:
    def read_word(name: str, value: object) -> enum.StrEnum:
        word = str(value).strip().lower()
        if word not in list(kind):
            raise UsageError(f"{name} is one of {', '.join(kind)}, not {value!r}")
        return kind(word)

    return read_word


def _path(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or value.endswith("/"):
        raise UsageError(f"{name} is the whole path of a file, not {value!r}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """One queue's configuration, with the values that Kestrel has built in.

    `max_items` is `maxItems` in a configuration, and so on; times in milliseconds end with `_ms`
    here alone.
    """

    max_items: int = ITEMS_MAX  # more are refused
    max_size: int = BYTES_MAX  # a queue with so many bytes refuses more
    max_item_size: int = BYTES_MAX  # a larger item is refused
    max_age_ms: int | None = None  # an item expires then at the latest
    default_journal_size: int = 16 * limits.MIB  # the journal of an empty queue is erased then
    max_memory_size: int = 128 * limits.MIB  # of items in memory, and of a file; then read-behind
    max_journal_size: int = 1024 * limits.MIB  # of all files; then they are rewritten
    min_journal_compact_delay_ms: int = 60_000  # between two rewrites of a queue that has items
    discard_old_when_full: bool = False  # the oldest items give way instead of refusing new ones
    keep_journal: bool = True  # False: in memory alone
    sync_journal_ms: int | None = None  # 0: at every write; None: never; else as often as that
    expire_to_queue: str | None = None  # where expired items go
    max_expire_sweep: int = ITEMS_MAX  # how many items expire in one go
    fanout_only: bool = False  # it keeps nothing itself; its children do
    max_queue_age_ms: int | None = None  # an empty queue that nobody used for so long is deleted
    enable_trace: bool = False  # what clients do with it is logged
    disable_aggressive_rewrites: bool = False  # the delay holds for empty queues, too
    open_transaction_timeout_ms: int | None = None  # then an open item goes back
    dialect: Dialect = Dialect.V24  # which ops are written


# How values are read, by the types of their fields; None where the field itself says how.
_READS: Final[dict[str, _Read]] = {
    "int": _number,
    "int | None": _optional(_number),
    "bool": _switch,
    "str | None": _queue,
    "Dialect": _one_of(Dialect),
}


def _names() -> dict[str, tuple[str, _Read]]:
    """Returns the names in a configuration, each with its field and how its value is read."""
    reads = {one.name: _READS[str(one.type)] for one in dataclasses.fields(QueueConfig)}
    reads["sync_journal_ms"] = _sync
    known = {}
    for field_name, read_value in reads.items():
        first, *others = field_name.removesuffix("_ms").split("_")
        known[first + "".join(map(str.capitalize, others))] = field_name, read_value
    return known


_NAMES: Final = _names()


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration of all queues: what each changes, by the fields of QueueConfig."""

    default: Mapping[str, object] = field(default_factory=dict)
    queues: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # write-only names

    def of(self, queue: str) -> QueueConfig:
        """Returns what holds for a queue."""
        changes = dict(self.default)
        parent = names.parent_of(queue)
        if parent is not None:
            # A child is no parent, and what its parent leaves to children it must not.
            changes |= {k: v for k, v in self.queues.get(parent, {}).items() if k != "fanout_only"}
        changes |= self.queues.get(queue, {})
        return dataclasses.replace(QueueConfig(), **changes)  # type: ignore[arg-type]

    def given(self, name: str) -> list[object]:
        """Returns every value that some part of it has for a field."""
        return [part[name] for part in (self.default, *self.queues.values()) if name in part]


def read(given: Mapping[str, object]) -> Configuration:
    """Returns the configuration of a file: `default`, `queues` by name, `aliases` by name.

    Raises:
        UsageError: if a name or a value is none that a queue can have.
    """
    unknown = sorted(set(given) - {"default", "queues", "aliases"})
    if unknown:
        raise UsageError(
            f"{unknown[0]} is no part of a configuration: default, queues, aliases, "
            "and what is said of the server, such as maxOpenTransactions"
        )
    aliases = {
        name: _words(f"alias {name}", targets)
        for name, targets in _mapping("aliases", given.get("aliases")).items()
    }
    queues = {
        name: _part(f"queue {name}", one)
        for name, one in _mapping("queues", given.get("queues")).items()
    }
    for name in (*queues, *aliases):
        problem = names.queue_problem(name)
        if problem is not None:
            raise UsageError(problem)
    default = _part("default", given.get("default"))
    return Configuration(default=default, queues=queues, aliases=aliases)


def _part(name: str, value: object) -> dict[str, object]:
    """Returns what a part of a configuration changes, by the fields of QueueConfig."""
    made: dict[str, object] = {}
    for key, one in _mapping(name, value).items():
        if key not in _NAMES:
            raise UsageError(f"{name}: a queue has no {key}; it has {', '.join(sorted(_NAMES))}")
        field_name, read_value = _NAMES[key]
        made[field_name] = read_value(f"{name}: {key}", one)
    return made


def _mapping(name: str, value: object) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} has names and values, not {value!r}")
    return {str(key): one for key, one in value.items()}


# -- what a configuration says of the server, under the names that Kestrel has for it -------------
#
# Times are milliseconds.  None means that there is no bound.


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How a server behaves, with the values that Kestrel has built in."""

    open_max: int = 1  # items that a connection may have open of one queue
    idle_ms: int | None = None  # a connection that asks nothing for so long is closed
    sweep_ms: int | None = None  # how often expired items are looked for
    status_file: str | None = None  # keeps the status
    default_status: Status = Status.UP  # if there is no such file
    grace_ms: int = 0  # until a stricter status is enforced
    refuse_writes_over: int | None = None  # so many connections
    refuse_reads_over: int | None = None


_SERVER_NAMES: Final[dict[str, tuple[str, _Read]]] = {
    "maxOpenTransactions": ("open_max", _numbers(1, ITEMS_MAX)),
    "clientTimeout": ("idle_ms", _numbers(1, ITEMS_MAX)),
    "expirationTimerFrequency": ("sweep_ms", _numbers(1, ITEMS_MAX)),
    "statusFile": ("status_file", _path),
    "defaultStatus": ("default_status", _one_of(Status)),
    "statusChangeGracePeriod": ("grace_ms", _numbers(0, ITEMS_MAX)),
    "connectionLimitRefuseWrites": ("refuse_writes_over", _numbers(0, ITEMS_MAX)),
    "connectionLimitRefuseReads": ("refuse_reads_over", _numbers(0, ITEMS_MAX)),
}


def read_server(given: Mapping[str, object]) -> tuple[ServerConfig, dict[str, object]]:
    """Returns what is said of the server, and all the rest.

    Raises:
        UsageError: if a value is none that it can have.
    """
    made = {
        field_name: read_value(name, given[name])
        for name, (field_name, read_value) in _SERVER_NAMES.items()
        if given.get(name) is not None
    }
    rest = {name: value for name, value in given.items() if name not in _SERVER_NAMES}
    return ServerConfig(**made), rest  # type: ignore[arg-type]
