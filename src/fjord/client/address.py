"""Addresses of daemons: `fjord://host:port`."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fjord.errors import FjordError

# The two bytes 'FJ' as a number.
DEFAULT_PORT: Final = 17994


def parse_url(url: str) -> tuple[str, int]:
    """Returns host and port of a daemon's address.

    Raises:
        FjordError: if it is not one.
    """
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
    return parts.hostname, DEFAULT_PORT if port is None else port


def shown_at(name: str) -> str:
    """Returns where something is, as part of its repr; nothing where that is not known."""
    return f" at {name}" if name else ""
