"""Importing a queue: its items become batches for a jobs table or a stream, each once.  Pure.

    items of the queue  ->  loads, in order  ->  ADVANCE and PUSH or APPEND, in one commit

How far an import is, the daemon knows, and nobody else: each batch moves a writer of no table on to

    number = CRC of the files << 32 | how many items of the queue are done

So whoever was cut off asks where the writer is, and goes on behind it; and whoever finds another
CRC there knows that the files have changed since.  Items that are left out count as done, too.

That writer is known by the directory.  A second one is known by the bytes of the files, and goes
along with it: it tells whoever has the same files somewhere else.

An item was inserted when it was added to the queue, and is due since then.  Both dates never go
back from one item to the next, since the order of jobs is that of their dates.
"""

from __future__ import annotations

import enum
import hashlib
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from operator import add
from typing import Final, NamedTuple

from fjord import kinds, limits
from fjord.client.calls import Call, expect
from fjord.client.node_calls import table_call
from fjord.client.socket import Connection
from fjord.columns import Strings
from fjord.commands import Advance, Append, AskWriter, Committed, Push, Refusal, name_problem
from fjord.errors import Code, NotFoundError, UsageError
from fjord.jobs import Priority
from fjord.kestrel.codec import Item
from fjord.values import Type

# Of one batch; an item that is larger goes alone.
ITEMS_MAX: Final = 1000
BYTES_MAX: Final = 1 * limits.MIB

UNKNOWN: Final = -1  # where a writer is that is not known

DATE_MS_MIN: Final = limits.TIMESTAMP_US_MIN // 1000  # that a job can have

_DONE_BITS: Final = 32
# The sign is not used, so that a number has 63 bits.
_CRC_MASK: Final = 0x7FFF_FFFF
_DIGEST_BYTES: Final = 16
_SHOWN_MAX: Final = 5


class Kind(enum.StrEnum):
    """What items become."""

    JOBS = kinds.Kind.JOBS.value
    STREAM = kinds.Kind.STREAM.value


class Place(NamedTuple):
    """How far an import is."""

    crc: int
    done: int  # items of the queue


def writer_of(directory: str, queue: str, table: str, *numbers: int) -> str:
    """Returns the name under which the daemon knows how far an import is.

    Numbers make it that of one table, by its id, and of one state of the files, by their CRC.  A
    table that is dropped and made again has another id, and no import has begun there.
    """
    path = os.fsencode(os.path.realpath(directory))
    return f"kestrel:{_digest(path, os.fsencode(queue), table.encode(), *_texts(numbers))}"


def files_writer_of(queue: str, table: str, table_id: int, *, crc: int, size: int) -> str:
    """Returns the name under which the daemon knows how far these files are, wherever they are."""
    numbers = _texts((table_id, crc, size))
    return f"kestrel-files:{_digest(os.fsencode(queue), table.encode(), *numbers)}"


def _texts(numbers: Sequence[int]) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def _digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"\0".join(parts), digest_size=_DIGEST_BYTES).hexdigest()


def tables_of(queues: Sequence[str], named: Sequence[str]) -> dict[str, str]:
    """Returns the table of each queue, by the queue's name.

    Args:
        queues: those to import.
        named: tables that are not called as their queues: `QUEUE=TABLE` each, which no name of a
            table can be; or, of one queue alone, `TABLE`.

    Raises:
        UsageError: if a name is none that a table may have, or is given twice, or for no queue.
    """
    tables = dict(zip(queues, queues, strict=True))
    for text in named:
        queue, equals, table = text.rpartition("=")
        if not equals and len(queues) != 1:
            raise UsageError(
                f"--table {text} names the table of one queue, and these are {len(queues)}; say of "
                f"which, as in --table QUEUE={text}"
            )
        queue = queue if equals else queues[0]
        if queue not in tables:
            raise UsageError(f"--table {text}: no queue {queue} is imported")
        tables[queue] = table
    _check_tables(tables)
    return tables


def _check_tables(tables: dict[str, str]) -> None:
    bad = [(queue, problem) for queue in tables if (problem := name_problem(tables[queue]))]
    if bad:
        others = f", nor {len(bad) - 1} others" if len(bad) > 1 else ""
        ((queue, problem), *_) = bad
        words = " ".join(f"--table {one}={_table_for(one)}" for one, _ in bad[:_SHOWN_MAX])
        raise UsageError(
            f"no table can be called {tables[queue]}{others}: {problem.text}; give another name, "
            f"such as {words}"
        )
    if twice := [one for one, count in Counter(tables.values()).items() if count > 1]:
        raise UsageError(f"{twice[0]} would be the table of two queues; give one another name")


def _table_for(queue: str) -> str:
    """Returns a name that a table can have, and that is like that of a queue."""
    plain = (one if one.isascii() and (one.isalnum() or one in "_-") else "_" for one in queue)
    return "".join(plain).lstrip("-")[: limits.NAME_BYTES_MAX] or "queue"


def number_of(crc: int, done: int) -> int:
    """Returns the number of a writer that has done so many items, which are one at least."""
    assert 0 < done < 1 << _DONE_BITS
    return (crc & _CRC_MASK) << _DONE_BITS | done


def place_of(number: int) -> Place:
    return Place(number >> _DONE_BITS, number & (1 << _DONE_BITS) - 1)


def is_same(place: Place, crc: int) -> bool:
    """Says whether an import has begun with files of this CRC."""
    return place.crc == crc & _CRC_MASK


def done_of(at: int, files_at: int, crc: int) -> int | None:
    """Returns how many items are done, by where both writers are.

    None if the files are not those with which the import of this directory has begun.
    """
    done = max(files_at, 0)
    if at == UNKNOWN:
        return done
    place = place_of(at)
    return max(place.done, done) if is_same(place, crc) else None


class Tally(NamedTuple):
    """What becomes of items."""

    imported: int = 0
    expired: int = 0  # left out
    too_large: int = 0  # left out

    def plus(self, other: Tally) -> Tally:
        return Tally(*map(add, self, other))


@dataclass(slots=True, kw_only=True)
class Load:
    """Items that are sent together, as columns."""

    end: int  # so many items of the queue are done with it
    too_large: int = 0  # items that no value may hold; they are not in it
    data: list[bytes] = field(default_factory=list)
    dates_us: array[int] = field(default_factory=lambda: array("Q"))
    expiries_us: array[int] = field(default_factory=lambda: array("Q"))  # 0 = never

    @property
    def done(self) -> int:
        """How many items are done with it, left out or not."""
        return len(self.data) + self.too_large

    def live(self, now_us: int) -> Sequence[int]:
        """Returns which of its items have not expired."""
        expiries = self.expiries_us
        if not any(expiries):
            return range(len(expiries))
        return [at for at, expiry_us in enumerate(expiries) if not expiry_us or expiry_us > now_us]


def tally(items: Iterable[Item], now_us: int) -> Tally:
    """Counts what would become of items by now."""
    count = expired = too_large = 0
    for data, _, expiry_ms, _ in items:
        count += 1
        if len(data) > limits.VALUE_BYTES_MAX:
            too_large += 1
        elif expiry_ms and _expiry_us(expiry_ms) <= now_us:
            expired += 1
    return Tally(count - expired - too_large, expired, too_large)


def dates(items: Sequence[Item], first_ms: int, now_ms: int) -> list[int]:
    """Returns the dates of jobs that items become: none goes back, and none is to come.

    Args:
        items: some, in order; one that does not say when it was added was just now.
        first_ms: the date of the one before them, or DATE_MS_MIN.
        now_ms: no date is later.
    """
    added_ms = (min(item.add_ms or now_ms, now_ms) for item in items)
    return list(accumulate(added_ms, max, initial=first_ms))[1:]


def loads(items: Iterable[Item], now_us: int, *, skip: int = 0) -> Iterator[Load]:
    """Yields the items of a queue behind those that are done, a batch at a time.

    Args:
        items: all of the queue, in order.
        now_us: no date is later.
        skip: so many are done already.
    """
    date_us = limits.TIMESTAMP_US_MIN
    source = iter(items)
    for item in islice(source, skip):
        date_us = max(date_us, min(item.add_ms * 1000, now_us))
    load, size = Load(end=skip), 0
    for data, add_ms, expiry_ms, _ in source:
        if load.done >= ITEMS_MAX or (load.data and size + len(data) > BYTES_MAX):
            yield load
            load, size = Load(end=load.end), 0
        load.end += 1
        date_us = max(date_us, min(add_ms * 1000, now_us))
        if len(data) > limits.VALUE_BYTES_MAX:
            load.too_large += 1
            continue
        load.data.append(bytes(data))
        load.dates_us.append(date_us)
        load.expiries_us.append(_expiry_us(expiry_ms))
        size += len(data)
    if load.done:
        yield load


def command(load: Load, rows: Sequence[int], table: str, kind: Kind, now_us: int) -> Push | Append:
    """Returns what adds some items of a load to a table; there is one at least."""
    data, count = [load.data[row] for row in rows], len(rows)
    types, keys = bytes((Type.BUFFER,)) * count, Strings.of([b""] * count)
    if kind is Kind.STREAM:
        return Append(table=table, types=types, keys=keys, values=Strings.of(data))
    dates_us = array("Q", [load.dates_us[row] for row in rows])
    last_us = now_us + limits.PROCESS_AHEAD_US_MAX - limits.TIMESTAMP_AHEAD_US_MAX
    expiries_us = (load.expiries_us[row] for row in rows)
    return Push(
        table=table,
        keys=keys,
        domains=keys,
        types=types,
        values=Strings.of(data),
        priorities=bytes((Priority.DEFAULT,)) * count,
        process_at_us=dates_us,
        # Later than a job can expire: it does not, rather than too early.
        expires_at_us=array("Q", [one if one <= last_us else 0 for one in expiries_us]),
        timestamps_us=dates_us,
    )


def _expiry_us(expiry_ms: int) -> int:
    """Returns an expiry as jobs have it: 0 = never, and what was before 1970 is over."""
    if expiry_ms <= 0:
        return 1 if expiry_ms else 0
    return min(expiry_ms * 1000, _NEVER_US)


# More than any date has, and less than what a column holds.
_NEVER_US: Final = 2**62


# -------------------------------------------------------------------------------------------------
#
# What a daemon knows of imports: asked for, so that no command imports what another one has.
#
#     by directory  how far `fjord kestrel import` is with a queue of a directory, and a table
#     by files      the same, wherever these files are; `fjord pipeline kestrel-import` notes it
#     by batch      a writer of the table: what `fjord pipeline kestrel-import` has written to it
#
# `importing` has their names.


def table_id(daemon: Connection, table: str) -> int | None:
    """Returns the id of a table, None if it is not there."""
    call = table_call(table)
    try:
        return call.result(daemon.execute(call.command)).id
    except NotFoundError:
        return None


def ask(daemon: Connection, writer: str, table: str = "") -> int:
    """Returns where a writer is, of a table or of none; UNKNOWN if it is nowhere."""
    call = Call(AskWriter(table=table, writer=writer), lambda reply: expect(reply, Committed).batch)
    return call.result(daemon.execute(call.command))


def note(daemon: Connection, writer: str, done: int) -> None:
    """Ensures that there is a mark; one that is there stays as it is."""
    reply = daemon.execute(Advance(writer=writer, expected=UNKNOWN, batch=done))
    if isinstance(reply, Refusal) and reply.code is not Code.STALE_NUMBER:
        raise reply.error()
