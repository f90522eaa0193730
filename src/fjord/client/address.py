"""Addresses of daemons: `fjord://host:port`."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fjord.errors import FjordError

# The two bytes 'FJ' as a number.
DEFAULT_PORT: Final = 17994


def parse_url(url: str) -> tuple[str, int]:
    """Returns host and port of a daemon's address; without a port, it is the usual one.

    Raises:
        FjordError: if it is not one.
    """
    host, port = split_url(url)
    return host, DEFAULT_PORT if port is None else port


def split_url(url: str) -> tuple[str, int | None]:
    """Returns the same, None where no port is named; raises the same."""
    try:
        parts = urlsplit(url if "://" in url else f"fjord://{url}")
        port = parts.port
    except ValueError as error:
        raise FjordError(
            f"{url} is no address of a daemon ({error}); it looks like fjord://host:port"
        ) from error
    extra = parts.path.rstrip("/") or parts.query or parts.fragment or parts.username
    if parts.scheme != "fjord" or not parts.hostname or extra:
        raise FjordError(f"{url} is no address of a daemon; it looks like fjord://host:port")
    return parts.hostname, port


def shown_at(name: str) -> str:
    """Returns where something is, as part of its repr; nothing where that is not known."""
    return f" at {name}" if name else ""
