"""Who is told of which changes.

A listening has the identifier of the request that began it, and keys; it ends with UNLISTEN or
with its connection.  The engine is asked to watch a key while at least one listening has it.

A jobs table is listened to as a whole, as if it were one key that no value can have; the engine
tells of jobs without being asked to.

What a group of commands changed is matched with the listenings as they were when the group ran,
and told when it is durable, unless the listening has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from fjord import limits, wire
from fjord.commands import Changed, Listen, Refusal, name_problem
from fjord.engine.waits import JOBS_KEY
from fjord.errors import Code

Key = tuple[str, bytes]  # table and key


class Watcher(Protocol):
    """Whoever knows of changes: the engine."""

    def watch(self, table: str, key: bytes) -> None: ...

    def unwatch(self, table: str, key: bytes) -> None: ...


class Listener(Protocol):
    """Whoever is told: a session."""

    @property
    def is_open(self) -> bool: ...

    def push(self, messages: Sequence[bytes]) -> None: ...


class Listening:
    """The keys that one request asked to be told of."""

    __slots__ = ("identifier", "is_over", "keys", "listener")

    def __init__(self, listener: Listener, identifier: int) -> None:
        self.listener = listener
        self.identifier = identifier
        self.keys: set[Key] = set()
        self.is_over = False


Told = tuple[Listening, Changed]


class Listeners:
    """All listenings of all sessions; false while there is none."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._by_key: dict[Key, dict[Listening, None]] = {}
        self._by_listener: dict[Listener, dict[int, Listening]] = {}
        self.keys = 0  # over all listenings

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def has_jobs(self, table: str) -> bool:
        """Says whether anybody listens to a jobs table."""
        return (table, JOBS_KEY) in self._by_key

    def is_listening(self, listener: Listener) -> bool:
        return listener in self._by_listener

    def add(self, listener: Listener, identifier: int, table: str, keys: Iterable[bytes]) -> int:
        """Begins to tell of these keys; returns how many of them the listening had not yet."""
        mine = self._by_listener.setdefault(listener, {})
        listening = mine.setdefault(identifier, Listening(listener, identifier))
        before = len(listening.keys)
        for key in keys:
            place = (table, key)
            listening.keys.add(place)
            others = self._by_key.setdefault(place, {})
            if not others and key != JOBS_KEY:
                self._watcher.watch(table, key)
            others[listening] = None
        added = len(listening.keys) - before
        self.keys += added
        return added

    def end(self, listener: Listener, identifier: int) -> int | None:
        """Ends a listening; returns how many keys it had, None if there is no such one."""
        mine = self._by_listener.get(listener, {})
        listening = mine.pop(identifier, None)
        if listening is None:
            return None
        if not mine:
            del self._by_listener[listener]
        listening.is_over = True
        for place in listening.keys:
            self._forget(place, listening)
        self.keys -= len(listening.keys)
        return len(listening.keys)

    def drop(self, listener: Listener) -> None:
        """Ends all that a listener had."""
        for identifier in list(self._by_listener.get(listener, {})):
            self.end(listener, identifier)

    def match(self, changes: Iterable[Changed]) -> list[Told]:
        """Returns whom to tell of changes."""
        return [
            (listening, change)
            for change in changes
            for listening in self._by_key.get((change.table, change.key), ())
        ]

    def tell(self, told: Iterable[Told]) -> int:
        """Tells of changes that are durable; returns of how many."""
        messages: dict[Listener, list[bytes]] = {}
        for listening, change in told:
            if not listening.is_over:
                message = wire.encode_change(listening.identifier, change)
                messages.setdefault(listening.listener, []).append(message)
        for listener, some in messages.items():
            listener.push(some)
        return sum(map(len, messages.values()))

    def _forget(self, place: Key, listening: Listening) -> None:
        others = self._by_key[place]
        del others[listening]
        if not others:
            del self._by_key[place]
            if place[1] != JOBS_KEY:
                self._watcher.unwatch(*place)


def listen_problem(command: Listen) -> Refusal | None:
    """Says what is wrong with a LISTEN, or None."""
    sizes = [len(key) for key in command.keys.rows()]
    if not sizes:
        return Refusal(code=Code.BAD_BATCH, text="there is no key to listen to")
    if min(sizes) == 0:
        return Refusal(code=Code.EMPTY_KEY, text="a key has at least one byte")
    if max(sizes) > limits.KV_KEY_BYTES_MAX:
        return Refusal(
            code=Code.KEY_TOO_LONG, text=f"a key has at most {limits.KV_KEY_BYTES_MAX} bytes"
        )
    return name_problem(command.table)
