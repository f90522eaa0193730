"""Reading items again from the files that they were written to."""

from __future__ import annotations

import pytest

from fjord.errors import CorruptionError
from fjord.kestrel import codec
from fjord.kestrel.codec import Op
from fjord.kestrel.journal import Behind, Journal
from fjord.testing import SimDisk
from tests.unit.kestrel.vectors import ADD_MS

FOLDER = "/kestrel"


def item(data: bytes) -> Op:
    return codec.addx(data, add_ms=ADD_MS)


@pytest.fixture
def journal() -> Journal:
    disk = SimDisk()
    disk.make_directory(FOLDER)
    made = Journal(disk, FOLDER, "q", now_ms=lambda: 904)
    assert list(made.replay(0)) == []
    made.begin()
    return made


def test_items_are_read_as_they_are_written_across_files(journal: Journal) -> None:
    journal.append(item(b"not read"))
    behind = Behind(journal.files, journal.current, journal.current.size, 0)
    for number in range(10):
        journal.append(item(b"%d" % number))
        journal.append(codec.remove())
        if number % 3 == 2:
            journal.rotate()
        read = behind.next()
        assert (read.data, read.add_ms) == (b"%d" % number, ADD_MS)
    assert behind.segment.era == 3
    behind.close()


def test_an_item_larger_than_what_is_read_at_a_time_is_read(journal: Journal) -> None:
    data = bytes(range(256)) * 4096
    behind = Behind(journal.files, journal.current, 0, 0)
    journal.append(item(data))
    journal.append(item(b"next"))
    assert behind.next().data == data
    assert behind.next().data == b"next"


def test_asking_for_more_than_there_is_tells_of_damage(journal: Journal) -> None:
    behind = Behind(journal.files, journal.current, 0, 0)
    journal.append(codec.remove())
    with pytest.raises(CorruptionError, match="an item is missing"):
        behind.next()
