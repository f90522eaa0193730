"""The files of a queue: how they are written, replaced and repaired."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import chain

import pytest

from fjord.errors import DurabilityError
from fjord.kestrel import codec, reader
from fjord.kestrel.codec import Dialect, Op, Opcode
from fjord.kestrel.journal import Journal
from fjord.kestrel.reader import CURRENT, Sum
from fjord.testing import SimDisk
from tests.unit.kestrel.vectors import ADD_MS

FOLDER = "/kestrel"


def put(disk: SimDisk, name: str, data: bytes) -> None:
    with contextlib.closing(disk.open(f"{FOLDER}/{name}", create=True)) as file:
        file.write(0, data)


def read(disk: SimDisk, name: str) -> bytes:
    with contextlib.closing(disk.open(f"{FOLDER}/{name}")) as file:
        return file.read(0, file.size())


def item(data: bytes) -> Op:
    return codec.addx(data, add_ms=ADD_MS)


def encoded(*made: Op) -> bytes:
    return b"".join(codec.encode(op, Dialect.V24) for op in made)


def contents(disk: SimDisk) -> dict[str, bytes]:
    """Returns the bytes of all files but the sums."""
    names = [name for name in disk.names(FOLDER) if name not in ("cars~~sums", "~~corrupt")]
    names += [f"~~corrupt/{name}" for name in disk.names(f"{FOLDER}/~~corrupt")]
    return {name: read(disk, name) for name in names}


def begun(disk: SimDisk, now_ms: int = 904) -> Journal:
    journal = Journal(disk, FOLDER, "cars", now_ms=lambda: now_ms)
    data(journal)
    journal.begin()
    return journal


def data(journal: Journal) -> list[bytes]:
    """Returns the items in all ops of a journal that was not begun yet."""
    batches = (batch.ops() for _, batch in journal.replay(ADD_MS))
    placed: Iterable[Op] = (op for op, _, _ in chain.from_iterable(batches))
    return [bytes(op.item.data) for op in placed if op.item is not None]


@pytest.fixture
def disk() -> SimDisk:
    made = SimDisk()
    made.make_directory(FOLDER)
    return made


@pytest.mark.req("KJ-05")
def test_sizes_are_those_of_kestrel(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"hello kitty"))
    assert journal.size == 32
    journal.append(codec.remove())
    assert journal.size == 33
    assert contents(disk) == {"cars": encoded(item(b"hello kitty"), codec.remove())}


@pytest.mark.req("KJ-14")
def test_a_rotated_file_gets_the_time_and_a_larger_number_than_all_before(disk: SimDisk) -> None:
    journal = begun(disk)
    for name in (b"a", b"b", b"c"):
        journal.append(item(name))
        journal.rotate()
    assert journal.rotations == 3
    assert {name: len(one) for name, one in contents(disk).items()} == {
        "cars": 0,
        "cars.904": 22,
        "cars.905": 22,
        "cars.906": 22,
    }
    assert data(Journal(disk, FOLDER, "cars", now_ms=lambda: 1)) == [b"a", b"b", b"c"]


@pytest.mark.req("KJ-16")
def test_a_pack_takes_the_place_of_older_files_alone(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.rotate()
    journal.append(item(b"b"))
    last = journal.rotate()
    journal.append(item(b"c"))
    journal.rotate()
    journal.pack(last, [item(b"ab")])
    assert list(contents(disk)) == ["cars", "cars.905", "cars.906"]
    assert journal.size == sum(map(len, contents(disk).values()))
    assert data(Journal(disk, FOLDER, "cars", now_ms=lambda: 1)) == [b"ab", b"c"]


def test_a_rewrite_leaves_one_file_which_is_written_to(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.rotate()
    journal.append(item(b"b"))
    journal.rewrite([item(b"ab")])
    assert journal.rewrites == 1
    journal.append(item(b"c"))
    journal.sync()
    assert contents(disk) == {"cars": encoded(item(b"ab"), item(b"c"))}
    assert journal.size == 45


@pytest.mark.req("KJ-16")
def test_what_a_pack_makes_dead_is_removed_at_the_next_start(disk: SimDisk) -> None:
    for name in ("cars.904", "cars.950", "cars.951", "cars"):
        put(disk, name, encoded(item(name.encode())))
    put(disk, "cars.950.pack", encoded(item(b"pack")))
    put(disk, "cars~~960", b"whatever")
    journal = Journal(disk, FOLDER, "cars", now_ms=lambda: 1)
    assert data(journal) == [b"pack", b"cars.951", b"cars"]
    assert list(contents(disk)) == ["cars", "cars.950", "cars.951"]


def test_a_torn_tail_is_cut_off(disk: SimDisk) -> None:
    whole = encoded(item(b"a"))
    put(disk, "cars", whole + encoded(item(b"b"))[:-1])
    journal = begun(disk)
    assert contents(disk) == {"cars": whole}
    assert journal.alerts == []
    assert journal.size == len(whole)


def test_damage_is_kept_in_a_file_of_its_own_and_told(disk: SimDisk) -> None:
    whole = encoded(item(b"a"))
    put(disk, "cars.904", whole + b"\x63damaged")
    disk.make_directory(f"{FOLDER}/~~corrupt")
    put(disk, "~~corrupt/cars.904", b"of another time")
    put(disk, "~~corrupt/cars.904~new", b"of a copy that was cut short")
    put(disk, "cars", encoded(item(b"b")))
    journal = Journal(disk, FOLDER, "cars", now_ms=lambda: 1)
    assert data(journal) == [b"a", b"b"]
    (alert,) = journal.alerts
    assert "cars.904" in alert
    assert "8 bytes are kept in ~~corrupt/cars.904~1" in alert
    assert contents(disk) == {
        "cars": encoded(item(b"b")),
        "cars.904": whole,
        "~~corrupt/cars.904": b"of another time",
        "~~corrupt/cars.904~1": b"\x63damaged",
    }
    assert data(Journal(disk, FOLDER, "cars", now_ms=lambda: 1)) == [b"a", b"b"]


def test_a_deleted_journal_takes_nothing(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.rotate()
    journal.delete()
    assert contents(disk) == {}
    with pytest.raises(DurabilityError, match="deleted"):
        journal.append(item(b"b"))


def test_a_broken_disk_ends_writing(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    disk.errors = {len(disk.calls) + 1: 5}
    with pytest.raises(OSError, match="Input/output"):
        journal.append(item(b"b"))
    with pytest.raises(DurabilityError):
        journal.append(item(b"c"))
    assert contents(disk) == {"cars": encoded(item(b"a"))}


def test_a_closed_journal_takes_nothing(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.close()
    with pytest.raises(DurabilityError, match="closed"):
        journal.append_bytes(bytes((Opcode.REMOVE,)))


# -- sums -----------------------------------------------------------------------------------------


def summed(disk: SimDisk, name: str) -> Sum:
    whole = read(disk, name)
    path = f"{FOLDER}/{name}"
    last = (disk.identity(path) or "", disk.modified_s(path)) if name == "cars" else ("", 0)
    return Sum(len(whole), reader.add_to_crc(0, whole), *last)


def known(disk: SimDisk) -> dict[int, Sum]:
    return reader.read_sums(disk, FOLDER, "cars")


def test_a_file_is_summed_when_nothing_more_is_written_to_it(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.append(codec.remove())
    journal.sync()
    assert known(disk) == {}
    last = journal.rotate()
    assert known(disk) == {904: summed(disk, "cars.904")}
    journal.append(item(b"b"))
    journal.rotate()
    journal.pack(last, [item(b"packed")])
    assert known(disk) == {904: summed(disk, "cars.904"), 905: summed(disk, "cars.905")}
    journal.append(item(b"c"))
    journal.sync()
    journal.close()
    assert known(disk) == {
        904: summed(disk, "cars.904"),
        905: summed(disk, "cars.905"),
        CURRENT: summed(disk, "cars"),
    }


def test_what_was_rewritten_is_summed_and_goes_on(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.rewrite([item(b"b")])
    front = summed(disk, "cars")
    assert known(disk) == {CURRENT: front}
    journal.append(item(b"c"))
    journal.sync()
    assert known(disk) == {CURRENT: front}
    journal.close()
    assert known(disk) == {CURRENT: summed(disk, "cars")}
    journal = begun(disk)
    journal.append(item(b"d"))
    journal.rotate()
    assert known(disk) == {904: summed(disk, "cars.904")}


def test_a_start_and_an_end_without_a_change_put_nothing_down(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.sync()
    journal.close()
    calls = len(disk.calls)
    journal = begun(disk)
    journal.sync()
    journal.close()
    assert "rename" not in disk.calls[calls:]
    assert known(disk) == {CURRENT: summed(disk, "cars")}


def test_what_may_not_be_durable_is_not_summed(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.close()
    assert known(disk) == {}


def test_a_file_whose_torn_tail_was_cut_off_is_summed(disk: SimDisk) -> None:
    put(disk, "cars", encoded(item(b"a")) + encoded(item(b"b"))[:-1])
    journal = begun(disk)
    journal.append(item(b"c"))
    journal.sync()
    journal.close()
    assert known(disk) == {CURRENT: summed(disk, "cars")}
    assert begun(disk).alerts == []


def test_files_of_kestrel_are_summed_once_they_were_read(disk: SimDisk) -> None:
    put(disk, "cars.904", encoded(item(b"a")))
    put(disk, "cars", encoded(item(b"b")))
    begun(disk, 1000).rotate()
    assert known(disk) == {904: summed(disk, "cars.904"), 1000: summed(disk, "cars.1000")}


def test_a_changed_file_is_told_and_left_as_it_is(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.rotate()
    before = known(disk)
    disk.flip_bit(f"{FOLDER}/cars.904", 21)
    again = Journal(disk, FOLDER, "cars", now_ms=lambda: 1)
    assert data(again) == [b"`"]
    (alert,) = again.alerts
    assert alert.startswith("/kestrel/cars.904 is changed: its first 22 bytes are not those that")
    assert alert.endswith("; it counts as it is")
    assert known(disk) == before


def test_a_size_that_has_changed_is_damage_and_no_torn_tail(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.append(item(b"b"))
    journal.sync()
    journal.close()
    disk.flip_bit(f"{FOLDER}/cars", 23, bit=5)
    (alert,) = begun(disk).alerts
    assert "22 bytes are kept in ~~corrupt/cars" in alert
    assert contents(disk)["cars"] == encoded(item(b"a"))


def test_a_deleted_journal_leaves_no_sums(disk: SimDisk) -> None:
    journal = begun(disk)
    journal.append(item(b"a"))
    journal.rotate()
    journal.delete()
    assert disk.names(FOLDER) == []
