"""The files of a queue: how they are written, replaced, repaired and read again."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from fjord.errors import DurabilityError
from fjord.kestrel import codec, reader
from fjord.kestrel.codec import Opcode
from fjord.kestrel.journal import Journal
from fjord.kestrel.reader import CURRENT, Sum
from fjord.testing import SimDisk
from tests.unit.kestrel.directory import (
    FOLDER,
    QUEUE,
    at_ms,
    files,
    journal_of,
    made_disk,
    put,
    read,
)
from tests.unit.kestrel.vectors import ADD_MS, encoded, item


def begun(disk: SimDisk, now_ms: int = 904) -> Journal:
    journal = journal_of(disk, at_ms(now_ms))
    data(journal)
    journal.begin()
    return journal


def data(journal: Journal) -> list[bytes]:
    """Returns the items in all ops of a journal that was not begun yet."""
    ops = chain.from_iterable(batch.ops() for _, batch in journal.replay(ADD_MS))
    return [bytes(op.item.data) for op, _, _ in ops if op.item is not None]


@pytest.fixture
def disk() -> SimDisk:
    return made_disk()


@pytest.mark.req("KJ-14", "KJ-16")
def test_a_pack_takes_the_place_of_older_files_alone(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.rotate()
    journal.append(item(b"b"))
    last = journal.rotate()
    journal.append(item(b"c"))
    journal.rotate()
    assert journal.rotations == 3
    # A file gets the time, and a larger number than all before.
    sizes = {name: len(one) for name, one in files(disk).items()}
    assert sizes == {QUEUE: 0, "cars.904": 22, "cars.905": 22, "cars.906": 22}
    journal.pack(last, [item(b"ab")])
    assert list(files(disk)) == ["cars", "cars.905", "cars.906"]
    assert journal.size == sum(map(len, files(disk).values()))
    assert data(journal_of(disk)) == [b"ab", b"c"]


@pytest.mark.req("KJ-05")
def test_a_rewrite_leaves_one_file_which_is_written_to(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"hello kitty"))
    assert journal.size == 32
    journal.append(codec.remove())
    assert journal.size == 33
    journal.rotate()
    journal.rewrite([item(b"ab")])
    journal.append(item(b"c"))
    journal.sync()
    assert files(disk) == {QUEUE: encoded(item(b"ab"), item(b"c"))}
    assert (journal.rewrites, journal.size) == (1, 45)


@pytest.mark.req("KJ-15", "KJ-16")
def test_what_a_pack_makes_dead_is_removed_at_the_next_start(disk: SimDisk) -> None:
    for name in ("cars.904", "cars.950", "cars.951", "cars"):
        put(disk, name, encoded(item(name.encode())))
    put(disk, "cars.950.pack", encoded(item(b"pack")))
    put(disk, "cars~~960", b"whatever")
    assert data(journal_of(disk)) == [b"pack", b"cars.951", b"cars"]
    assert list(files(disk)) == ["cars", "cars.950", "cars.951"]


def test_a_torn_tail_is_cut_off(disk: SimDisk) -> None:
    put(disk, QUEUE, encoded(item(b"a"), item(b"b"))[:-1])
    journal = begun(disk)
    assert (files(disk), journal.alerts, journal.size) == ({QUEUE: encoded(item(b"a"))}, [], 22)


def test_damage_is_kept_in_a_file_of_its_own_and_told(disk: SimDisk) -> None:
    whole = encoded(item(b"a"))
    disk.make_directory(f"{FOLDER}/~~corrupt")
    put(disk, "cars.904", whole + b"\x63damaged")
    put(disk, "~~corrupt/cars.904", b"of another time")
    put(disk, "~~corrupt/cars.904~new", b"of a copy that was cut short")
    put(disk, QUEUE, encoded(item(b"b")))
    journal = journal_of(disk)
    assert data(journal) == [b"a", b"b"]
    (alert,) = journal.alerts
    assert re.search(r"cars\.904 .* 8 bytes .* kept in ~~corrupt/cars\.904~1", alert)
    assert files(disk) == {
        "cars": encoded(item(b"b")),
        "cars.904": whole,
        "~~corrupt/cars.904": b"of another time",
        "~~corrupt/cars.904~1": b"\x63damaged",
    }
    assert data(journal_of(disk)) == [b"a", b"b"]


def test_a_journal_that_was_deleted_or_closed_or_has_failed_takes_nothing(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.rotate()
    journal.delete()
    assert disk.names(FOLDER) == []
    with pytest.raises(DurabilityError, match="deleted"):
        journal.append(item(b"b"))
    journal = begun(disk)
    journal.close()
    with pytest.raises(DurabilityError, match="closed"):
        journal.append_bytes(bytes((Opcode.REMOVE,)))
    journal = begun(disk)
    journal.append(item(b"a"))
    disk.errors = {len(disk.calls) + 1: 5}
    with pytest.raises(OSError, match="Input/output"):
        journal.append(item(b"b"))
    with pytest.raises(DurabilityError):
        journal.append(item(b"c"))
    assert files(disk) == {QUEUE: encoded(item(b"a"))}


# -- sums -----------------------------------------------------------------------------------------


def known(disk: SimDisk) -> dict[int, Sum]:
    return reader.read_sums(disk, FOLDER, QUEUE)


def summed(disk: SimDisk, *names: str) -> dict[int, Sum]:
    """Returns the sums that these files should have."""
    made = {}
    for name in names:
        whole, path = read(disk, name), f"{FOLDER}/{name}"
        last = (disk.identity(path) or "", disk.modified_s(path)) if name == QUEUE else ("", 0)
        number = CURRENT if name == QUEUE else int(name.partition(".")[2])
        made[number] = Sum(len(whole), reader.add_to_crc(0, whole), *last)
    return made


def test_a_file_is_summed_when_nothing_more_is_written_to_it(disk: SimDisk) -> None:
    put(disk, QUEUE, encoded(item(b"a"), item(b"torn"))[:-1])
    journal = begun(disk)
    journal.append(codec.remove())
    journal.sync()
    assert known(disk) == {}
    last = journal.rotate()
    assert known(disk) == summed(disk, "cars.904")
    journal.append(item(b"b"))
    journal.rotate()
    journal.pack(last, [item(b"packed")])
    assert known(disk) == summed(disk, "cars.904", "cars.905")
    journal.append(item(b"c"))
    journal.sync()
    journal.close()
    assert known(disk) == summed(disk, "cars.904", "cars.905", "cars")
    calls = len(disk.calls)
    journal = begun(disk)
    journal.sync()
    journal.close()
    assert "rename" not in disk.calls[calls:]  # as nothing has changed


# -- items that are read again from the files that they were written to ----------------------------
