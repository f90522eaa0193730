"""Addresses of daemons: `fjord://host:port`."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fjord.errors import FjordError

# The two bytes 'FJ' as a number.
DEFAULT_PORT: Final = 17994


def parse_url(url: str) -> tuple[str, int]:
    """Returns host and port of a daemon's address, by default port 17994.

    Raises:
        FjordError: if the address is not valid.
    """
    host, port = split_url(url)
    return host, DEFAULT_PORT if port is None else port


def split_url(url: str) -> tuple[str, int | None]:
    """Like `parse_url`, but None if there is no port."""
    try:
        parts = urlsplit(url if "://" in url else f"fjord://{url}")
        port = parts.port
    except ValueError as error:
        raise FjordError(
            f"{url} is not a valid address ({error}); expected fjord://host:port"
        ) from error
    extra = parts.path.rstrip("/") or parts.query or parts.fragment or parts.username
    if parts.scheme != "fjord" or not parts.hostname or extra:
        raise FjordError(f"{url} is not a valid address; expected fjord://host:port")
    return parts.hostname, port


def shown_at(name: str) -> str:
    """Returns the part of a repr that says where something is, if known."""
    return f" at {name}" if name else ""
