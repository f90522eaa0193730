"""Spool files that end anywhere, and writers that die in the middle of a write.

Whole records arrive, what is torn does not, and neither is in the way of what is written after it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Final

import pytest

import fjord
from fjord.client.spool import files
from fjord.client.spool.files import Fate
from fjord.client.spool.writer import Spool
from fjord.clock import SystemClock
from tests.crash import spool_world
from tests.crash.spool_processes import TracedWriter, Writing, folder_of, is_killed

RECORDS: Final = 2
LARGE: Final = bytes(500_000)


class Whole:
    """What is in a file of a few records, and where each of them ends."""

    def __init__(self, tables: spool_world.Tables, first: int) -> None:
        self.numbers = range(first, first + RECORDS)
        self.later = first + RECORDS  # the record that comes after the tear
        spool = spool_world.SpoolInMemory()
        spool_world.write_all(spool, tables, [*self.numbers, self.later])
        *lines, self.later_line = spool.lines
        header = files.encode_header(files.new_header(SystemClock().wall_us()))
        self.data = b"".join([header, *lines])
        self.ends = list(accumulate(map(len, lines), initial=files.HEADER_BYTES))

    def whole_before(self, size: int) -> list[int]:
        """Returns the records that are whole in so many bytes."""
        return [
            number for number, end in zip(self.numbers, self.ends[1:], strict=True) if end <= size
        ]

    def is_torn_at(self, size: int) -> bool:
        return size not in self.ends


class Cut:
    """A file that ends somewhere, and that a writer still has open."""

    def __init__(self, path: Path, whole: Whole, size: int) -> None:
        self.whole = whole
        self.size = size
        self.told = whole.whole_before(size)
        self.is_torn = whole.is_torn_at(size)
        self.file = spool_world.HeldFile(path, whole.data[:size])
        self.is_closed = False

    def end(self) -> None:
        """A record follows; or the writer is gone, and nothing does."""
        if self.size % 4:
            self.file.write(self.whole.later_line)
            self.told.append(self.whole.later)
        else:
            self.close()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.file.close()


def cut_files(directory: Path, tables: spool_world.Tables, sizes: Iterable[int]) -> list[Cut]:
    """Makes a file for each size; none is that of this period, which would not be removed."""
    names = [files.name_of(current_slot() + number) for number in range(2, files.SLOTS)]
    return [
        Cut(directory / name, Whole(tables, 8 * size), size)
        for name, size in zip(names, sizes, strict=False)
    ]


@pytest.mark.req("FJ-21", "FJ-24")
def test_a_file_that_ends_at_any_byte(daemon: str, tmp_path: Path) -> None:
    tables = spool_world.Tables("cut")
    sizes = list(range(files.HEADER_BYTES, Whole(tables, 8_000).ends[-1] + 1))
    cuts: list[Cut] = []
    while len(cuts) < len(sizes):
        directory = folder_of(tmp_path, str(len(cuts)))
        made = cut_files(directory, tables, sizes[len(cuts) :])
        progress = spool_world.forward(directory, daemon)
        assert progress.records == sum(len(cut.told) for cut in made)
        assert not progress.set_aside  # it may still become whole
        for cut in made:
            cut.end()
        assert spool_world.forward(directory, daemon).set_aside.total() == sum(
            cut.is_torn for cut in made
        )
        for cut in made:
            cut.close()
        cuts += made
    assert len(cuts) > 150
    with fjord.connect(daemon) as db:
        spool_world.check(db, tables, [number for cut in cuts for number in cut.told])


def test_what_is_torn_is_told_apart_from_what_is_damaged(daemon: str, tmp_path: Path) -> None:
    directory, tables = folder_of(tmp_path, "spool"), spool_world.Tables("apart")
    (cut,) = cut_files(directory, tables, [250])
    cut.file.write(b"@nothing that a writer writes\n" + cut.whole.later_line)
    cut.close()
    progress = spool_world.forward(directory, daemon)
    assert progress.set_aside == {Fate.TORN: 1, Fate.DAMAGED: 5}
    assert not spool_world.spool_files(directory)
    (aside,) = files.aside_names(str(directory))
    left = (directory / aside).read_bytes()[files.HEADER_BYTES :]
    words = left.translate(None, b"\0 \n").split(b"!")
    assert words[2:] == [b"nothing", b"hat", b"", b"riter", b"rites"]
    with fjord.connect(daemon) as db:
        spool_world.check(db, tables, [*cut.told, cut.whole.later])


def test_what_grows_byte_by_byte_arrives_when_it_is_whole(daemon: str, tmp_path: Path) -> None:
    tables = spool_world.Tables("growing")
    whole = Whole(tables, 0)
    directory = folder_of(tmp_path, "spool")
    arrived = 0
    with (directory / files.name_of(current_slot())).open("wb", buffering=0) as file:
        file.write(whole.data[: files.HEADER_BYTES])
        for at in range(files.HEADER_BYTES, whole.ends[1]):
            file.write(whole.data[at : at + 1])
            progress = spool_world.forward(directory, daemon)
            assert not progress.set_aside
            assert progress.records == (at + 1 in whole.ends)
            arrived += progress.records
    assert arrived == 1
    with fjord.connect(daemon) as db:
        spool_world.check(db, tables, [0])


@pytest.mark.parametrize("size", [0, 1, 50, 95])
def test_a_first_line_that_is_cut_is_replaced(size: int, daemon: str, tmp_path: Path) -> None:
    tables = spool_world.Tables(f"first-{size}")
    whole = Whole(tables, 0)
    directory = folder_of(tmp_path, "spool")
    path = directory / files.name_of(current_slot())
    path.write_bytes(whole.data[:size])
    spool_world.forward(directory, daemon)
    with path.open("ab") as file:
        file.write(whole.later_line)
    spool_world.forward(directory, daemon)
    with fjord.connect(daemon) as db:
        spool_world.check(db, tables, [whole.later])


def current_slot() -> int:
    return files.slot_of(SystemClock().wall_us(), spool_world.PERIOD_US)


# -- writers that die -----------------------------------------------------------------------------


def test_a_writer_that_dies_in_a_large_write_tears_nothing_but_that(
    daemon: str, tmp_path: Path
) -> None:
    dice = random.Random(1)
    directory, tables = tmp_path / "spool", spool_world.Tables("large")
    told = 0
    for number in range(12):
        life = Writing(
            data=directory, log=tmp_path / f"{number}.log", tables=tables, count=1000, value=LARGE
        )
        with TracedWriter(life) as traced:
            for _ in range(dice.randrange(1, 4)):
                traced.next_told()
                told += 1
            # It dies anywhere in the next ones; there is nothing to wait for inside a write.
            deque(range(dice.randrange(200_000)), maxlen=0)
            traced.send_kill()
            told += len(traced.told())
            assert is_killed(traced.wait())
        with spool_world.opened(directory) as spool:
            spool_world.write(spool, tables, 4 * number)
    spool_world.forward(directory, daemon)
    with fjord.connect(daemon) as db:
        found = [message.value for message in read_all(db, tables.stream)]
    small = [value for value in found if isinstance(value, str)]
    assert small == [str(4 * number) for number in range(12)]
    large = [value for value in found if value == LARGE]
    assert len(small) + len(large) == len(found)
    assert told <= len(large) <= told + 12


def read_all(db: fjord.Database, table: str) -> Iterator[fjord.Message]:
    batch = db.stream(table).read()
    while len(batch):
        yield from batch
        batch = db.stream(table).read(after=batch)


def test_writers_that_die_and_others_that_write_on(daemon: str, tmp_path: Path) -> None:
    directory, tables = tmp_path / "spool", spool_world.Tables("torn")
    with spool_world.opened(directory) as spool:
        spool_world.write_all(spool, tables, range(4))
        tear(spool, directory)
        spool_world.write_all(spool, tables, range(4, 8))
        tear(spool, directory)
        tear(spool, directory)
        spool_world.write_all(spool, tables, range(8, 12))
        assert spool_world.forward(directory, daemon).set_aside == {Fate.TORN: 3}
        spool_world.write_all(spool, tables, range(12, 16))
        assert not spool_world.forward(directory, daemon).set_aside  # told of once
    with fjord.connect(daemon) as db:
        spool_world.check(db, tables, range(16))


def tear(spool: Spool, directory: Path) -> None:
    """Leaves half of the last line once more at the end of the file."""
    (path,) = spool_world.spool_files(directory)
    lines = path.read_bytes()[files.HEADER_BYTES :].split(b"@")
    with path.open("ab") as file:
        file.write(b"@" + lines[-1][: len(lines[-1]) // 2])
