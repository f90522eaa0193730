"""Wake-ups: a UDP datagram that says that there may be work; see docs/protocol.md.

A wake-up carries no data, and nothing depends on it: a receiver asks the server, and also polls
without one.  So a lost wake-up costs time, and a forged one costs a poll.
"""

from __future__ import annotations

import enum
import ipaddress
import struct
from dataclasses import dataclass
from typing import Final

from fjord import limits
from fjord.commands import name_problem

MAGIC: Final = b"FW"
VERSION: Final = 1
# magic, version, what, sender, number, size of the table's name
HEADER: Final = struct.Struct(">2sBBQQB")
WAKEUP_BYTES_MAX: Final = HEADER.size + limits.NAME_BYTES_MAX

# The address for a port alone: every listener on this machine.
EVERYBODY: Final = "127.255.255.255"
# How many are remembered to detect copies: some seconds of many tables.
_HEARD_MAX: Final = 1024

# Where a wake-up has the name of a table, if it is of a spool.
SPOOL: Final = ""

Address = tuple[str, int]  # host and port


class What(enum.IntEnum):
    """The kind of event."""

    ARRIVED = 1  # a table has waiting jobs that are due
    DUE = 2  # a process date of a jobs table was reached
    CHANGED = 3  # a stream has new messages, or a value of a key/value table changed
    WRITTEN = 4  # a record was written to a spool; of no table


@dataclass(frozen=True, slots=True)
class Wakeup:
    """The contents of one datagram."""

    what: What
    table: str  # or SPOOL
    sender: int  # a number that each start of a process draws
    number: int  # of the sender's wake-ups, from 1 on


def encode(wakeup: Wakeup) -> bytes:
    name = wakeup.table.encode()
    header = HEADER.pack(MAGIC, VERSION, wakeup.what, wakeup.sender, wakeup.number, len(name))
    return header + name


def decode(datagram: bytes) -> Wakeup | None:
    """Decodes a datagram; None if it is not exactly one wake-up."""
    if not HEADER.size <= len(datagram) <= WAKEUP_BYTES_MAX:
        return None
    magic, version, what, sender, number, size = HEADER.unpack_from(datagram)
    name = datagram[HEADER.size :]
    if (magic, version) != (MAGIC, VERSION) or what not in _KNOWN or size != len(name):
        return None
    table = name.decode("ascii", "replace")
    is_named = table == SPOOL if what == What.WRITTEN else name_problem(table) is None
    return Wakeup(What(what), table, sender, number) if is_named and number else None


_KNOWN: Final = frozenset(What)


class Heard:
    """The latest wake-ups, to detect copies.

    They are remembered one by one, not by the highest number: a wake-up that overtakes others must
    not make them look old, and neither must a forged number.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], None] = {}

    def is_new(self, wakeup: Wakeup) -> bool:
        """Notes a wake-up; returns whether it is new."""
        key = (wakeup.sender, wakeup.number)
        if key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > _HEARD_MAX:
            del self._known[next(iter(self._known))]
        return True


def parse_address(given: str | int) -> Address:
    """Parses an address of wake-ups: `HOST:PORT`, or a port alone.

    Raises:
        ValueError: if it is not a loopback address.
    """
    text = str(given)
    host, _, port = (f"{EVERYBODY}:{text}" if text.isdecimal() else text).rpartition(":")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise ValueError(
            f"{text} is not an address for wake-ups; expected one like 127.0.0.1:17997"
        )
    host = "127.0.0.1" if host == "localhost" else host
    try:
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
            is_loopback = ipaddress.IPv6Address(host).is_loopback
        else:
            is_loopback = ipaddress.IPv4Address(host).is_loopback
    except ValueError as error:
        raise ValueError(f"{text} is not an address for wake-ups: {error}") from error
    if not is_loopback:
        raise ValueError(
            f"{host} cannot be used for wake-ups: daemons use loopback addresses only, so there is "
            f"nobody to wake elsewhere; {EVERYBODY} reaches every listener on this machine"
        )
    return host, int(port)


def is_shared(address: Address) -> bool:
    """Returns whether any number of processes can listen at an address."""
    return address[0] == EVERYBODY
