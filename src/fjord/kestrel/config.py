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


def status_named(word: str) -> Status | None:
    """Returns the status of this name, however it is spelt."""
    return next((status for status in Status if status == word.strip().lower()), None)


def read_status(disk: disks.Disk, path: str) -> tuple[Status | None, str]:
    """Returns the status that a file keeps, None if it is none; and what is in it, for people.

    Raises:
        OSError: if it cannot be read.
    """
    if not disk.exists(path):
        return None, ""
    with contextlib.closing(disk.open(path)) as file:
        word = file.read(0, _FILE_BYTES_MAX).decode(errors="replace")
    return status_named(word), word.strip()


def write_status(disk: disks.Disk, path: str, status: Status) -> None:
    """Ensures that a file durably keeps a status; directories above it are made."""
    disk.make_directory(os.path.dirname(path))
    disks.replace_whole(disk, path, f"{_WRITTEN[status]}\n".encode())


# What Kestrel calls Int.MaxValue and Long.MaxValue.
ITEMS_MAX: Final = 2**31 - 1
BYTES_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """One queue's configuration, with the values that Kestrel has built in."""

    max_items: int = ITEMS_MAX  # so many wait; more are refused
    max_size: int = BYTES_MAX  # so many bytes wait; more are refused
    max_item_size: int = BYTES_MAX  # a larger item is refused
    max_age_ms: int | None = None  # an item expires then at the latest
    default_journal_size: int = 16 * limits.MIB  # of an empty queue; then its journal is erased
    max_memory_size: int = 128 * limits.MIB  # of items in memory, and of a file; then read-behind
    max_journal_size: int = 1024 * limits.MIB  # of all files; then they are rewritten
    min_journal_compact_delay_ms: int = 60_000  # between two rewrites of a queue that is not empty
    discard_old_when_full: bool = False  # the oldest items give way instead of refusing new ones
    keep_journal: bool = True  # False: in memory alone
    sync_journal_ms: int | None = None  # 0: at every write; None: never; else as often as that
    expire_to_queue: str | None = None  # where expired items go
    max_expire_sweep: int = ITEMS_MAX  # so many items expire in one go
    fanout_only: bool = False  # it keeps nothing itself; its children do
    max_queue_age_ms: int | None = None  # an empty queue that nobody used for so long is deleted
    enable_trace: bool = False  # what clients do with it is logged
    disable_aggressive_rewrites: bool = False  # the delay is kept for empty queues, too
    open_transaction_timeout_ms: int | None = None  # then an open item goes back
    # Who may take and add, by ids that only thrift has; a server says that it does not look.
    white_list_client_id_for_dequeue: tuple[str, ...] | None = None
    white_list_client_id_for_enqueue: tuple[str, ...] | None = None
    dialect: Dialect = Dialect.V24  # which ops are written


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


def _number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= BYTES_MAX:
        raise UsageError(f"{name} is a number from 0 to {BYTES_MAX}, not {value!r}")
    return value


def _duration(name: str, value: object) -> int | None:
    return None if value is None else _number(name, value)


def _age(name: str, value: object) -> int | None:
    """Reads a time of 1.x, where 0 means that there is none."""
    return _number(name, value) or None


def _switch(name: str, value: object) -> bool:
    if value in ("on", "off"):
        return value == "on"
    if not isinstance(value, bool):
        raise UsageError(f"{name} is true or false, not {value!r}")
    return value


def _sync(name: str, value: object) -> int | None:
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


def _clients(name: str, value: object) -> tuple[str, ...] | None:
    return None if value is None else _words(name, value)


def _dialect(name: str, value: object) -> Dialect:
    try:
        return Dialect(str(value))
    except ValueError:
        raise UsageError(f"{name} is one of {', '.join(Dialect)}, not {value!r}") from None


def _mapping(name: str, value: object) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} has names and values, not {value!r}")
    return {str(key): one for key, one in value.items()}


_OVERFLOW: Final = "max_journal_overflow"

# By the name in a configuration: the field, and how its value is read.
_NAMES: Final[dict[str, tuple[str, Callable[[str, object], object]]]] = {
    "maxItems": ("max_items", _number),
    "maxSize": ("max_size", _number),
    "maxItemSize": ("max_item_size", _number),
    "maxAge": ("max_age_ms", _duration),
    "defaultJournalSize": ("default_journal_size", _number),
    "maxMemorySize": ("max_memory_size", _number),
    "maxJournalSize": ("max_journal_size", _number),
    "minJournalCompactDelay": ("min_journal_compact_delay_ms", _number),
    "discardOldWhenFull": ("discard_old_when_full", _switch),
    "keepJournal": ("keep_journal", _switch),
    "syncJournal": ("sync_journal_ms", _sync),
    "expireToQueue": ("expire_to_queue", _queue),
    "maxExpireSweep": ("max_expire_sweep", _number),
    "fanoutOnly": ("fanout_only", _switch),
    "maxQueueAge": ("max_queue_age_ms", _duration),
    "enableTrace": ("enable_trace", _switch),
    "disableAggressiveRewrites": ("disable_aggressive_rewrites", _switch),
    "openTransactionTimeout": ("open_transaction_timeout_ms", _duration),
    "whiteListClientIdForDequeue": ("white_list_client_id_for_dequeue", _clients),
    "whiteListClientIdForEnqueue": ("white_list_client_id_for_enqueue", _clients),
    "dialect": ("dialect", _dialect),
    # Those of 1.x.
    "max_items": ("max_items", _number),
    "max_size": ("max_size", _number),
    "max_item_size": ("max_item_size", _number),
    "max_age": ("max_age_ms", _age),
    "max_journal_size": ("default_journal_size", _number),
    "max_memory_size": ("max_memory_size", _number),
    "max_journal_size_absolute": ("max_journal_size", _number),
    _OVERFLOW: (_OVERFLOW, _number),
    "discard_old_when_full": ("discard_old_when_full", _switch),
    "journal": ("keep_journal", _switch),
    "sync_journal": ("sync_journal_ms", _sync),
    "move_expired_to": ("expire_to_queue", _queue),
}


# -- what a configuration says of the server, under the names that Kestrel has for it -------------
#
# Times are milliseconds.  None means that there is no bound.  What the command line says, or what
# Fjord does not have, may be there and is told of.


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
        for field, name in _WHITE_LISTS.items()
        if any(queues.given(field))
    ]
    return told


def _server_number(name: str, value: object, *, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _NUMBER_MAX:
        raise UsageError(f"{name} is a number from {low} to {_NUMBER_MAX}, not {value!r}")
    return value


def _number_or_none(name: str, value: object) -> int:
    return _server_number(name, value, low=0)


def _path(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or value.endswith("/"):
        raise UsageError(f"{name} is the whole path of a file, not {value!r}")
    return value


def _status(name: str, value: object) -> Status:
    found = status_named(value) if isinstance(value, str) else None
    if found is None:
        raise UsageError(f"{name} is one of {', '.join(Status)}, not {value!r}")
    return found


_WHITE_LISTS: Final = {
    "white_list_client_id_for_dequeue": "whiteListClientIdForDequeue",
    "white_list_client_id_for_enqueue": "whiteListClientIdForEnqueue",
}
# By the name in a configuration: the field, and how its value is read.
_SERVER_NAMES: Final[dict[str, tuple[str, Callable[[str, object], object]]]] = {
    "maxOpenTransactions": ("open_max", _server_number),
    "clientTimeout": ("idle_ms", _server_number),
    "expirationTimerFrequency": ("sweep_ms", _server_number),
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
