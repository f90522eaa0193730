"""Importing, the pure part: loads in the order of the queue, dates, expiries, and numbers."""

from __future__ import annotations

import contextlib
import functools
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.commands import Append, Push
from fjord.disk import LocalDisk
from fjord.errors import UsageError
from fjord.jobs import Priority
from fjord.kestrel import codec, importer, inspect, reader
from fjord.kestrel.codec import Dialect, Item, Op
from fjord.kestrel.importer import Load, Tally
from fjord.kinds import Kind
from fjord.values import Type

NOW_MS = 1_700_000_000_000
NOW_US = NOW_MS * 1000


def item(data: bytes = b"x", *, add_ms: int = NOW_MS, expiry_ms: int = 0, xid: int = 0) -> Item:
    return Item(data, add_ms, expiry_ms, xid)


def loaded(items: Sequence[Item], skip: int = 0) -> list[Load]:
    return list(importer.loads(items, NOW_US, skip=skip))


def pushed(load: Load, now_us: int = NOW_US) -> Push:
    made = importer.command(load, load.live(now_us), "cars", Kind.JOBS, now_us)
    assert isinstance(made, Push)
    return made


# -- how far an import is -------------------------------------------------------------------------


def test_writer_is_that_of_the_directory_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queues").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "queues")
    name = importer.writer_of(str(tmp_path / "queues"), "cars", "cars", 7)
    assert name.startswith("kestrel:")
    assert len(name) <= limits.WRITER_BYTES_MAX
    assert importer.writer_of(str(tmp_path / "link"), "cars", "cars", 7) == name
    monkeypatch.chdir(tmp_path)
    assert importer.writer_of("link/../queues/", "cars", "cars", 7) == name


def test_writer_of_files_differs_with_all_that_it_is_of() -> None:
    name = importer.files_writer_of("cars", "vans", 7, crc=8, size=9)
    assert name.startswith("kestrel-files:")
    assert len(name) <= limits.WRITER_BYTES_MAX
    others = {
        importer.files_writer_of("bikes", "vans", 7, crc=8, size=9),
        importer.files_writer_of("cars", "bikes", 7, crc=8, size=9),
        importer.files_writer_of("cars", "vans", 1, crc=8, size=9),
        importer.files_writer_of("cars", "vans", 7, crc=1, size=9),
        importer.files_writer_of("cars", "vans", 7, crc=8, size=1),
    }
    assert len(others - {name}) == 5


def test_what_is_done_is_what_either_writer_says_of_these_files() -> None:
    at = importer.number_of(5, 3)
    assert importer.done_of(importer.UNKNOWN, importer.UNKNOWN, 5) == 0
    assert importer.done_of(at, importer.UNKNOWN, 5) == 3
    assert importer.done_of(importer.UNKNOWN, 4, 5) == 4
    assert importer.done_of(at, 4, 5) == 4
    assert importer.done_of(at, 2, 5) == 3
    assert importer.done_of(at, 4, 6) is None


def test_writer_differs_with_all_that_it_is_of(tmp_path: Path) -> None:
    here, there = str(tmp_path), str(tmp_path / "there")
    names = {
        importer.writer_of(here, "cars", "cars", 7),
        importer.writer_of(there, "cars", "cars", 7),
        importer.writer_of(here, "bikes", "cars", 7),
        importer.writer_of(here, "cars", "bikes", 7),
        importer.writer_of(here, "cars", "cars", 8),
        importer.writer_of(here, "cars", "cars", 7, 1),
    }
    assert len(names) == 6


@given(crc=st.integers(0, 2**32 - 1), done=st.integers(1, 2**32 - 2))
def test_numbers_have_the_crc_and_how_many_are_done(crc: int, done: int) -> None:
    number = importer.number_of(crc, done)
    assert 0 < number < 2**63 - 1
    assert importer.done_by(number) == done
    assert importer.is_same(number, crc)
    assert not importer.is_same(number, crc ^ 1)
    assert importer.number_of(crc, done + 1) == number + 1


# -- loads ----------------------------------------------------------------------------------------


def test_loads_have_so_many_items_or_so_many_bytes() -> None:
    many = loaded([item()] * (2 * importer.ITEMS_MAX + 1))
    assert [len(load.data) for load in many] == [importer.ITEMS_MAX, importer.ITEMS_MAX, 1]
    assert [load.end for load in many] == [1000, 2000, 2001]
    half = bytes(importer.BYTES_MAX // 2)
    assert [len(load.data) for load in loaded([item(half)] * 5)] == [2, 2, 1]
    assert loaded([]) == []


def test_item_of_the_most_bytes_goes_alone_and_a_larger_one_is_left_out() -> None:
    most = item(bytes(limits.VALUE_BYTES_MAX))
    larger = item(bytes(limits.VALUE_BYTES_MAX + 1))
    loads = loaded([item(), most, larger, item(b"y")])
    assert [load.end for load in loads] == [1, 2, 4]
    assert [load.too_large for load in loads] == [0, 0, 1]
    assert sum(load.done for load in loads) == 4


def test_load_of_nothing_but_too_large_items_is_bounded() -> None:
    larger = item(bytes(limits.VALUE_BYTES_MAX + 1))
    loads = loaded([larger] * (importer.ITEMS_MAX + 1))
    assert [(load.too_large, load.data) for load in loads] == [(1000, []), (1, [])]


@given(
    sizes=st.lists(st.integers(0, 3), max_size=30),
    skip=st.integers(0, 30),
)
def test_loads_are_the_rest_of_the_queue_wherever_it_was_cut(sizes: list[int], skip: int) -> None:
    items = [item(bytes(size), add_ms=NOW_MS - at) for at, size in enumerate(sizes)]
    skip = min(skip, len(items))
    rest = loaded(items, skip)
    assert [one for load in rest for one in load.data] == [one.data for one in items[skip:]]
    whole = [date for load in loaded(items) for date in load.dates_us]
    assert [date for load in rest for date in load.dates_us] == whole[skip:]
    assert [load.end for load in rest][-1:] == ([len(items)] if rest else [])


def test_dates_never_go_back_and_are_not_to_come() -> None:
    added_ms = (NOW_MS - 5, NOW_MS - 9, NOW_MS - 2, NOW_MS + 10**9, NOW_MS - 1)
    (load,) = loaded([item(add_ms=one) for one in added_ms])
    assert [date_us // 1000 - NOW_MS for date_us in load.dates_us] == [-5, -5, -2, 0, 0]
    (old,) = loaded([item(add_ms=-1), item(add_ms=5)])
    assert list(old.dates_us) == [limits.TIMESTAMP_US_MIN] * 2


# -- what is sent ---------------------------------------------------------------------------------


def test_jobs_have_no_key_and_are_due_since_they_were_added() -> None:
    (load,) = loaded([item(b"a", add_ms=NOW_MS - 3, xid=7), item(b"b", add_ms=NOW_MS - 2)])
    push = pushed(load)
    assert push.table == "cars"
    assert push.values.rows() == [b"a", b"b"]
    assert push.keys.rows() == push.domains.rows() == [b"", b""]
    assert push.types == bytes((Type.BUFFER,)) * 2
    assert push.priorities == bytes((Priority.DEFAULT,)) * 2
    assert list(push.timestamps_us) == [NOW_US - 3000, NOW_US - 2000]
    assert list(push.process_at_us) == list(push.timestamps_us)
    assert not push.relative


def test_expired_items_are_left_out_and_others_expire_as_they_did() -> None:
    (load,) = loaded(
        [
            item(b"expired", expiry_ms=NOW_MS),
            item(b"soon", expiry_ms=NOW_MS + 1),
            item(b"long ago", expiry_ms=-1),
            item(b"never"),
        ]
    )
    push = pushed(load)
    assert push.values.rows() == [b"soon", b"never"]
    assert list(push.expires_at_us) == [NOW_US + 1000, 0]
    assert list(load.live(NOW_US + 1000)) == [3]


@pytest.mark.parametrize("expiry_ms", [NOW_MS + 367 * 24 * 3600 * 1000, 2**63 - 1])
def test_expiry_later_than_a_job_can_have_is_none(expiry_ms: int) -> None:
    (load,) = loaded([item(expiry_ms=expiry_ms)])
    assert list(pushed(load).expires_at_us) == [0]


def test_messages_are_values_alone() -> None:
    (load,) = loaded([item(b"a"), item(b"b", expiry_ms=NOW_MS + 1), item(b"c", expiry_ms=1)])
    append = importer.command(load, load.live(NOW_US), "cars", Kind.STREAM, NOW_US)
    assert isinstance(append, Append)
    assert append.table == "cars"
    assert append.values.rows() == [b"a", b"b"]
    assert append.keys.rows() == [b"", b""]
    assert append.timestamps_us is None


def test_tally_counts_what_would_become_of_items() -> None:
    larger = item(bytes(limits.VALUE_BYTES_MAX + 1), expiry_ms=1)
    found = tallied([item(), item(expiry_ms=NOW_MS), larger])
    assert found == Tally(imported=1, expired=1, too_large=1)
    assert found.plus(found) == (2, 2, 2)


def test_a_queue_is_counted(tmp_path: Path) -> None:
    large = bytes(limits.VALUE_BYTES_MAX + 1)
    made = (
        codec.addx(b"one", add_ms=NOW_MS),
        codec.addx(b"over", add_ms=NOW_MS, expiry_ms=NOW_MS),
        codec.addx(b"lives", add_ms=NOW_MS, expiry_ms=NOW_MS + 1),
        codec.addx(large, add_ms=NOW_MS),
        codec.remove_tentative(1),
    )
    path = tmp_path / "cars"
    path.write_bytes(b"".join(codec.encode(op, Dialect.V24) for op in made))
    with contextlib.closing(contents(tmp_path)) as found:
        assert (found.count, found.open_count, found.bytes) == (4, 1, 12 + len(large))
        assert (found.crc(), found.size) == (zlib.crc32(path.read_bytes()), path.stat().st_size)
        assert tallied(found.items()) == Tally(2, 1, 1)


@pytest.mark.parametrize(
    "made",
    [
        (),
        (codec.addx(b"over", add_ms=1, expiry_ms=1),),
        (codec.addx(b"a", add_ms=1), codec.remove()),
    ],
)
def test_nothing_is_imported_of_a_queue_of_which_nothing_lives(
    tmp_path: Path, made: tuple[Op, ...]
) -> None:
    (tmp_path / "cars").write_bytes(b"".join(codec.encode(op, Dialect.V24) for op in made))
    with contextlib.closing(contents(tmp_path)) as found:
        assert tallied(found.items()).imported == 0


def tallied(items: Iterable[Item]) -> Tally:
    counts = [load.tally(len(load.live(NOW_US))) for load in importer.loads(items, NOW_US)]
    return functools.reduce(Tally.plus, counts, Tally())


def contents(directory: Path) -> inspect.Contents:
    return inspect.Contents(reader.survey(LocalDisk(), str(directory), "cars"))


def test_a_table_is_named_as_its_queue_or_as_is_said() -> None:
    tables_of = importer.tables_of
    assert tables_of(["cars", "trucks"], []) == {"cars": "cars", "trucks": "trucks"}
    assert tables_of(["cars+seo"], ["seo"]) == {"cars+seo": "seo"}
    named = ["cars+seo=seo", "a=b=c"]  # the queue a=b, since no table has such a name
    assert tables_of(["cars", "cars+seo", "a=b"], named) == {
        "cars": "cars",
        "cars+seo": "seo",
        "a=b": "c",
    }
    assert tables_of([], []) == {}


@pytest.mark.parametrize(
    ("queues", "named", "told"),
    [
        (["cars", "trucks"], ["t"], "the table of one queue, and these are 2"),
        ([], ["t"], "and these are 0"),
        (["cars"], ["trucks=t"], "no queue trucks is imported"),
        (["cars", "cars+seo"], [], "no table can be called cars+seo: a name is 1 to 128"),
        (["cars", "cars+seo"], [], "such as --table cars+seo=cars_seo"),
        (["cars"], ["no name"], "no table can be called no name"),
        (["-+-"], [], "--table -+-=_-"),
        (["é" * 200], [], "--table " + "é" * 200 + "=" + "_" * 128),
        (["cars", "vans"], ["vans=cars"], "cars would be the table of two queues"),
    ],
)
def test_names_that_no_table_can_have_are_refused(
    queues: list[str], named: list[str], told: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        importer.tables_of(queues, named)
