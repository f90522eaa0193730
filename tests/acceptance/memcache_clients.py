"""Three clients of memcached as people use them, with one shape for tests."""

from __future__ import annotations

import abc
from typing import Any

import memcache
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError


class Adapter(abc.ABC):
    """One client and its connection.  Items are bytes, whatever a client makes of them.

    What stands here is the interface of the older clients; the others have their own.
    """

    errors: tuple[type[Exception], ...] = ()  # what it raises when it is refused
    _client: Any

    @abc.abstractmethod
    def __init__(self, port: int) -> None: ...

    @abc.abstractmethod
    def set_without_reply(self, queue: str, item: bytes) -> None: ...

    @abc.abstractmethod
    def delete_without_reply(self, queue: str) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...

    def set(self, queue: str, item: object, *, expire: int = 0) -> bool:
        return bool(self._client.set(queue, item, time=expire))

    def set_many(self, items: dict[str, bytes]) -> bool:
        return not self._client.set_multi(items)  # those that failed

    def get(self, key: str) -> bytes | None:
        return _bytes(self._client.get(key))

    def gets(self, key: str) -> bytes | None:
        item, _ = self._client.gets(key)
        return _bytes(item)

    def get_many(self, keys: list[str]) -> dict[str, bytes]:
        return dict(self._client.get_multi(keys))

    def add(self, queue: str, item: bytes) -> bool:
        return bool(self._client.add(queue, item))

    def delete(self, queue: str) -> bool:
        return bool(self._client.delete(queue))

    def delete_many(self, queues: list[str]) -> bool:
        return bool(self._client.delete_multi(queues))

    def flush_all(self) -> bool:
        return bool(self._client.flush_all())

    def stats(self) -> dict[str, str]:
        ((_, found),) = self._client.get_stats()
        return {_text(name): _text(value) for name, value in found.items()}


class Pymemcache(Adapter):
    errors = (MemcacheError,)

    def __init__(self, port: int) -> None:
        self._client = Client(("127.0.0.1", port), timeout=60, default_noreply=False)

    def set(self, queue: str, item: object, *, expire: int = 0) -> bool:
        return bool(self._client.set(queue, item, expire))

    def set_without_reply(self, queue: str, item: bytes) -> None:
        self._client.set(queue, item, noreply=True)

    def set_many(self, items: dict[str, bytes]) -> bool:
        return not self._client.set_many(items)  # those that failed

    def get_many(self, keys: list[str]) -> dict[str, bytes]:
        return dict(self._client.get_many(keys))

    def delete_without_reply(self, queue: str) -> None:
        self._client.delete(queue, noreply=True)

    def delete_many(self, queues: list[str]) -> bool:
        return bool(self._client.delete_many(queues))

    def stats(self) -> dict[str, str]:
        found = {**self._client.stats(), b"version": self._client.version()}
        return {_text(name): _text(value) for name, value in found.items()}

    def close(self) -> None:
        self._client.close()


class PythonMemcached(Adapter):
    """It raises nothing: what fails is None or False."""

    def __init__(self, port: int) -> None:
        # It refuses items of more than 1 MiB by itself unless it is told otherwise.
        self._client = memcache.Client(
            [f"127.0.0.1:{port}"], socket_timeout=60, server_max_value_length=2**26
        )

    def set_without_reply(self, queue: str, item: bytes) -> None:
        self._client.set(queue, item, noreply=True)

    def gets(self, key: str) -> bytes | None:
        return _bytes(self._client.gets(key))

    def delete_without_reply(self, queue: str) -> None:
        self._client.delete(queue, noreply=True)

    def flush_all(self) -> bool:
        self._client.flush_all()  # which returns nothing, and has no connection if it failed
        return bool(self._client.servers[0].socket)

    def close(self) -> None:
        self._client.disconnect_all()


class Pylibmc(Adapter):
    """Of libmemcached, which is in C."""

    def __init__(self, port: int) -> None:
        import pylibmc

        address = [f"127.0.0.1:{port}"]
        self.errors = (pylibmc.Error,)
        self._client = pylibmc.Client(address)
        # Both are told when a client is made, and hold for all that it does.
        self._quiet = pylibmc.Client(address, behaviors={"_noreply": True})
        self._cas = pylibmc.Client(address, behaviors={"cas": True})

    def set_without_reply(self, queue: str, item: bytes) -> None:
        self._quiet.set(queue, item)
        self._quiet.get(f"{queue}/peek")  # what comes behind it is answered

    def gets(self, key: str) -> bytes | None:
        item, _ = self._cas.gets(key)
        return _bytes(item)

    def delete_without_reply(self, queue: str) -> None:
        self._quiet.delete(queue)
        self._quiet.get(f"{queue}/peek")

    def close(self) -> None:
        for client in (self._client, self._quiet, self._cas):
            client.disconnect_all()


def _bytes(value: Any) -> bytes | None:
    assert value is None or isinstance(value, bytes)
    return value


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
