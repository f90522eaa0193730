"""How a queue of Kestrel's is to behave: every name of its configuration, and who inherits what.

    built in  ->  default  ->  the queue  ->  its fanout child

A later one says only what it changes.  Names are those of Kestrel 2 (`maxItems`) and those of 1.x
(`max_items`), which are not the same: what 1.x calls max_journal_size is defaultJournalSize of 2.
Times are milliseconds.  None means that there is no bound, as in Kestrel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from fjord import disk as disks
from fjord import limits
from fjord.clock import Clock
from fjord.errors import UsageError
from fjord.kestrel import names
from fjord.kestrel.codec import Dialect

_T = TypeVar("_T")


class Status(enum.StrEnum):
    """What a server does for clients; a later one is stricter."""

    UP = "up"
    READONLY = "readonly"  # nothing is put, flushed or deleted
    QUIESCENT = "quiescent"  # and nothing is taken; what is open can be closed


_STRICTNESS: Final = {status: number for number, status in enumerate(Status)}
_WRITTEN: Final = {Status.UP: "Up", Status.READONLY: "ReadOnly", Status.QUIESCENT: "Quiescent"}
_FILE_BYTES_MAX: Final = 64


class Standing:
    """The status of a server, as it is told and as it is enforced."""

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
        is_stricter = _STRICTNESS[wanted] > _STRICTNESS[enforced]
        self.told = wanted
        self._enforced = enforced if is_stricter else wanted
        self._since_us = self._clock.monotonic_us() + self._grace_us


def read_status(disk: disks.Disk, path: str) -> tuple[Status | None, str]:
    """Returns the status that a file keeps, None if it is none; and what is in it, for people.

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
_NUMBER_MAX: Final = 2**31 - 1  # of a server

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


def _age(name: str, value: object) -> object:
    """Reads a time of 1.x, where 0 means that there is none."""
    return _number(name, value) or None


def _switch(name: str, value: object) -> bool:
    if value in ("on", "off"):
        return value == "on"
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
    problem = names.queue_problem(value) if isinstance(value, str) else f"{value!r} is no name"
    if problem is not None:
        raise UsageError(f"{name}: {problem}")
    return str(value)


def _words(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{name} is a list of names, not {value!r}")
    return tuple(value)


def _one_of(kind: type[enum.StrEnum], *, in_any_case: bool = False) -> _Read:
    def read_word(name: str, value: object) -> enum.StrEnum:
        word = str(value).strip().lower() if in_any_case else str(value)
        if word not in list(kind):
            raise UsageError(f"{name} is one of {', '.join(kind)}, not {value!r}")
        return kind(word)

    return read_word


def _path(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or value.endswith("/"):
        raise UsageError(f"{name} is the whole path of a file, not {value!r}")
    return value


def _setting(default: _T, name: str, read_value: _Read, **older: _Read) -> _T:
    """A field that a configuration calls `name`; `older` are its names in 1.x."""
    return field(default=default, metadata={name: read_value, **older})


def _settings(config: type) -> dict[str, tuple[str, _Read]]:
    """Returns the names in a configuration, each with its field and how its value is read."""
    fields = dataclasses.fields(config)
    return {
        name: (one.name, read_value) for one in fields for name, read_value in one.metadata.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """One queue's configuration, with the values that Kestrel has built in."""

    # So many items wait; more are refused.
    max_items: int = _setting(ITEMS_MAX, "maxItems", _number, max_items=_number)
    # So many bytes wait; more are refused.
    max_size: int = _setting(BYTES_MAX, "maxSize", _number, max_size=_number)
    # A larger item is refused.
    max_item_size: int = _setting(BYTES_MAX, "maxItemSize", _number, max_item_size=_number)
    # An item expires then at the latest.
    max_age_ms: int | None = _setting(None, "maxAge", _optional(_number), max_age=_age)
    # The journal of an empty queue is erased at this size.
    default_journal_size: int = _setting(
        16 * limits.MIB, "defaultJournalSize", _number, max_journal_size=_number
    )
    # Of items in memory, and of a file; then read-behind.
    max_memory_size: int = _setting(
        128 * limits.MIB, "maxMemorySize", _number, max_memory_size=_number
    )
    # Of all files; then they are rewritten.
    max_journal_size: int = _setting(
        1024 * limits.MIB, "maxJournalSize", _number, max_journal_size_absolute=_number
    )
    # Between two rewrites of a queue that is not empty.
    min_journal_compact_delay_ms: int = _setting(60_000, "minJournalCompactDelay", _number)
    # The oldest items give way instead of refusing new ones.
    discard_old_when_full: bool = _setting(
        False, "discardOldWhenFull", _switch, discard_old_when_full=_switch
    )
    # False: in memory alone.
    keep_journal: bool = _setting(True, "keepJournal", _switch, journal=_switch)
    # 0: at every write; None: never; else as often as that.
    sync_journal_ms: int | None = _setting(None, "syncJournal", _sync, sync_journal=_sync)
    # Where expired items go.
    expire_to_queue: str | None = _setting(None, "expireToQueue", _queue, move_expired_to=_queue)
    # So many items expire in one go.
    max_expire_sweep: int = _setting(ITEMS_MAX, "maxExpireSweep", _number)
    # It keeps nothing itself; its children do.
    fanout_only: bool = _setting(False, "fanoutOnly", _switch)
    # An empty queue that nobody used for so long is deleted.
    max_queue_age_ms: int | None = _setting(None, "maxQueueAge", _optional(_number))
    # What clients do with it is logged.
    enable_trace: bool = _setting(False, "enableTrace", _switch)
    # The delay is kept for empty queues, too.
    disable_aggressive_rewrites: bool = _setting(False, "disableAggressiveRewrites", _switch)
    # Then an open item goes back.
    open_transaction_timeout_ms: int | None = _setting(
        None, "openTransactionTimeout", _optional(_number)
    )
    # Who may take and add, by ids that only thrift has; a server says that it does not look.
    white_list_client_id_for_dequeue: tuple[str, ...] | None = _setting(
        None, "whiteListClientIdForDequeue", _optional(_words)
    )
    white_list_client_id_for_enqueue: tuple[str, ...] | None = _setting(
        None, "whiteListClientIdForEnqueue", _optional(_words)
    )
    # Which ops are written.
    dialect: Dialect = _setting(Dialect.V24, "dialect", _one_of(Dialect))  # noqa: RUF009 - a field


_OVERFLOW: Final = "max_journal_overflow"  # of 1.x: how many defaultJournalSize are maxJournalSize
_NAMES: Final = {**_settings(QueueConfig), _OVERFLOW: (_OVERFLOW, _number)}


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


def changes(given: Mapping[str, object]) -> dict[str, object]:
    """Returns what a part of a configuration changes, by the fields of QueueConfig.

    Raises:
        UsageError: if there is no such name, or it cannot have such a value.
    """
    made: dict[str, object] = {}
    for name, value in given.items():
        if name not in _NAMES:
            raise UsageError(f"a queue has no {name}; it has {', '.join(sorted(_NAMES))}")
        changed, read_value = _NAMES[name]
        made[changed] = read_value(name, value)
    overflow = made.pop(_OVERFLOW, None)
    if isinstance(overflow, int) and "max_journal_size" not in made:
        size = made.get("default_journal_size", QueueConfig().default_journal_size)
        assert isinstance(size, int)
        made["max_journal_size"] = overflow * size
    return made


def _part(name: str, value: object) -> dict[str, object]:
    given = _mapping(name, value)
    try:
        return changes(given)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _mapping(name: str, value: object) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} has names and values, not {value!r}")
    return {str(key): one for key, one in value.items()}


# -- what a configuration says of the server, under the names that Kestrel has for it -------------
#
# Times are milliseconds.  None means that there is no bound.  What the command line says, or what
# Fjord does not have, may be there and is told of.


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How a server behaves, with the values that Kestrel has built in."""

    # Items that a connection may have open of one queue.
    open_max: int = _setting(1, "maxOpenTransactions", _numbers(1, _NUMBER_MAX))
    # A connection that asks nothing is closed.
    idle_ms: int | None = _setting(None, "clientTimeout", _numbers(1, _NUMBER_MAX))
    # Expired items are looked for that often.
    sweep_ms: int | None = _setting(None, "expirationTimerFrequency", _numbers(1, _NUMBER_MAX))
    # Keeps the status.
    status_file: str | None = _setting(None, "statusFile", _path)
    # If there is no such file.
    default_status: Status = _setting(  # noqa: RUF009 - a field
        Status.UP, "defaultStatus", _one_of(Status, in_any_case=True)
    )
    # Until a stricter status is enforced.
    grace_ms: int = _setting(0, "statusChangeGracePeriod", _numbers(0, _NUMBER_MAX))
    # So many connections.
    refuse_writes_over: int | None = _setting(
        None, "connectionLimitRefuseWrites", _numbers(0, _NUMBER_MAX)
    )
    refuse_reads_over: int | None = _setting(
        None, "connectionLimitRefuseReads", _numbers(0, _NUMBER_MAX)
    )
    ignored: tuple[str, ...] = ()  # names that are there and change nothing


_SERVER_NAMES: Final = _settings(ServerConfig)


def read_server(given: Mapping[str, object]) -> tuple[ServerConfig, dict[str, object]]:
    """Returns what is said of the server, and all the rest.

    Raises:
        UsageError: if a value is none that it can have.
    """
    made: dict[str, object] = {}
    rest: dict[str, object] = {}
    ignored: list[str] = []
    for name, value in given.items():
        if name in _SERVER_NAMES:
            field, read_value = _SERVER_NAMES[name]
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
        for name in ("whiteListClientIdForDequeue", "whiteListClientIdForEnqueue")
        if any(queues.given(_NAMES[name][0]))
    ]
    return told


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
