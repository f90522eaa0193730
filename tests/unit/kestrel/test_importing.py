"""Importing, the pure part: loads in the order of the queue, dates, expiries, and numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.commands import Push
from fjord.errors import UsageError
from fjord.jobs import Priority
from fjord.kestrel import importer
from fjord.kestrel.codec import Item
from fjord.kestrel.importer import Load
from fjord.kinds import Kind
from fjord.values import Type

NOW_MS = 1_700_000_000_000
NOW_US = NOW_MS * 1000
TOO_LARGE = bytes(limits.VALUE_BYTES_MAX + 1)


def item(data: bytes = b"x", *, add_ms: int = NOW_MS, expiry_ms: int = 0, xid: int = 0) -> Item:
    return Item(data, add_ms, expiry_ms, xid)


def loaded(*items: Item, skip: int = 0) -> list[Load]:
    return list(importer.loads(items, NOW_US, skip=skip))


def pushed(load: Load) -> Push:
    made = importer.command(load, load.live(NOW_US), "cars", Kind.JOBS, NOW_US)
    assert isinstance(made, Push)
    return made


# -- how far an import is -------------------------------------------------------------------------


def test_a_directory_has_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queues").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "queues")
    monkeypatch.chdir(tmp_path)
    paths = (str(tmp_path / "queues"), str(tmp_path / "link"), "link/../queues/")
    (name,) = {importer.writer_of(path, "cars", "cars", 7) for path in paths}
    assert name.startswith("kestrel:")
    assert len(name) <= limits.WRITER_BYTES_MAX


def test_writers_differ_with_all_that_they_are_of(tmp_path: Path) -> None:
    here, files_of = str(tmp_path), importer.files_writer_of
    name = files_of("cars", "vans", 7, crc=8, size=9)
    assert name.startswith("kestrel-files:")
    assert len(name) <= limits.WRITER_BYTES_MAX
    names = {
        name,
        files_of("bikes", "vans", 7, crc=8, size=9),
        files_of("cars", "bikes", 7, crc=8, size=9),
        files_of("cars", "vans", 1, crc=8, size=9),
        files_of("cars", "vans", 7, crc=1, size=9),
        files_of("cars", "vans", 7, crc=8, size=1),
        *(importer.writer_of(one, "cars", "cars", 7) for one in (here, here + "/there")),
        *(importer.writer_of(here, *one, 7) for one in (("bikes", "cars"), ("cars", "bikes"))),
        *(importer.writer_of(here, "cars", "cars", *one) for one in ((8,), (7, 1))),
    }
    assert len(names) == 12


def test_what_is_done_is_what_either_writer_says_of_these_files() -> None:
    at, unknown = importer.number_of(5, 3), importer.UNKNOWN
    outcome = importer.ImportOutcome(
        queue="cars",
        table="cars",
        kind=Kind.JOBS,
        items=9,
        bytes=9,
        damaged=[],
        damaged_bytes=0,
        imported_before=0,
        tally=importer.Tally(),
    )
    plan = importer.ImportPlan(outcome=outcome, crc=5, size=9, writer="here", files_writer="files")
    asked = [(unknown, unknown), (at, unknown), (unknown, 4), (at, 4), (at, 2)]
    done = [plan.done({"here": one, "files": files}) for one, files in asked]
    assert done == [0, 3, 4, 4, 3]
    assert plan.done({"here": importer.number_of(6, 3), "files": 4}) is None


@given(crc=st.integers(0, 2**32 - 1), done=st.integers(1, 2**32 - 2))
def test_numbers_have_the_crc_and_how_many_are_done(crc: int, done: int) -> None:
    number = importer.number_of(crc, done)
    assert 0 < number < 2**63 - 1
    assert importer.done_by(number) == done
    assert (importer.is_same(number, crc), importer.is_same(number, crc ^ 1)) == (True, False)
    assert importer.number_of(crc, done + 1) == number + 1


# -- loads ----------------------------------------------------------------------------------------


def test_loads_have_so_many_items_or_so_many_bytes() -> None:
    many = loaded(*[item()] * (2 * importer.ITEMS_MAX + 1))
    assert [(len(load.data), load.end) for load in many] == [(1000, 1000), (1000, 2000), (1, 2001)]
    half = item(bytes(importer.BYTES_MAX // 2))
    assert [len(load.data) for load in loaded(*[half] * 5)] == [2, 2, 1]
    assert loaded() == []


def test_item_of_the_most_bytes_goes_alone_and_a_larger_one_is_left_out() -> None:
    loads = loaded(item(), item(TOO_LARGE[1:]), item(TOO_LARGE), item(b"y"))
    assert [(load.end, load.too_large) for load in loads] == [(1, 0), (2, 0), (4, 1)]
    assert sum(load.done for load in loads) == 4
    loads = loaded(*[item(TOO_LARGE)] * (importer.ITEMS_MAX + 1))
    assert [(load.too_large, load.data) for load in loads] == [(1000, []), (1, [])]


@given(sizes=st.lists(st.integers(0, 3), max_size=30), skip=st.integers(0, 30))
def test_loads_are_the_rest_of_the_queue_wherever_it_was_cut(sizes: list[int], skip: int) -> None:
    items = [item(bytes(size), add_ms=NOW_MS - at) for at, size in enumerate(sizes)]
    skip = min(skip, len(items))
    rest = loaded(*items, skip=skip)
    assert [one for load in rest for one in load.data] == [one.data for one in items[skip:]]
    whole = [date for load in loaded(*items) for date in load.dates_us]
    assert [date for load in rest for date in load.dates_us] == whole[skip:]
    assert [load.end for load in rest][-1:] == ([len(items)] if rest else [])


def test_dates_never_go_back_and_are_not_to_come() -> None:
    added_ms = (NOW_MS - 5, NOW_MS - 9, NOW_MS - 2, NOW_MS + 10**9, NOW_MS - 1)
    items = [item(add_ms=one) for one in added_ms]
    (load,) = loaded(*items)
    assert [date_us // 1000 - NOW_MS for date_us in load.dates_us] == [-5, -5, -2, 0, 0]
    (old,) = loaded(item(add_ms=-1), item(add_ms=5))
    assert list(old.dates_us) == [limits.TIMESTAMP_US_MIN] * 2


# -- what is sent ---------------------------------------------------------------------------------


def test_jobs_have_no_key_and_are_due_since_they_were_added() -> None:
    (load,) = loaded(item(b"a", add_ms=NOW_MS - 3, xid=7), item(b"b", add_ms=NOW_MS - 2))
    push = pushed(load)
    assert (push.table, push.relative, push.values.rows()) == ("cars", False, [b"a", b"b"])
    assert push.keys.rows() == push.domains.rows() == [b"", b""]
    assert push.types == bytes((Type.BUFFER,)) * 2
    assert push.priorities == bytes((Priority.DEFAULT,)) * 2
    dates = [NOW_US - 3000, NOW_US - 2000]
    assert (list(push.timestamps_us), list(push.process_at_us)) == (dates, dates)


def test_expired_items_are_left_out_and_others_expire_as_they_did() -> None:
    later_ms = (NOW_MS + 367 * 24 * 3600 * 1000, 2**63 - 1)  # than a job can expire
    expiries_ms = (NOW_MS, NOW_MS + 1, -1, 0, *later_ms)
    (load,) = loaded(*(item(b"%d" % ms, expiry_ms=ms) for ms in expiries_ms))
    push = pushed(load)
    assert push.values.rows() == [b"%d" % ms for ms in (NOW_MS + 1, 0, *later_ms)]
    assert list(push.expires_at_us) == [NOW_US + 1000, 0, 0, 0]
    assert list(load.live(NOW_US + 1000)) == [3, 4, 5]


def test_a_table_is_named_as_its_queue_or_as_is_said() -> None:
    tables_of = importer.tables_of
    assert tables_of(["cars", "trucks"], []) == {"cars": "cars", "trucks": "trucks"}
    assert tables_of(["cars+seo"], ["seo"]) == {"cars+seo": "seo"}
    # No table is named a=b, so that is a queue.
    found = tables_of(["cars", "cars+seo", "a=b"], ["cars+seo=seo", "a=b=c"])
    assert found == {"cars": "cars", "cars+seo": "seo", "a=b": "c"}
    assert tables_of([], []) == {}


@pytest.mark.parametrize(
    ("queues", "named", "told"),
    [
        (["cars", "trucks"], ["t"], "the table of one queue, and these are 2"),
        ([], ["t"], "and these are 0"),
        (["cars"], ["trucks=t"], "no queue trucks is imported"),
        (["cars", "cars+seo"], [], "no table can be called cars+seo: a name is 1 to 128"),
        (["cars", "cars+seo"], [], "as in --table cars+seo=TABLE"),
        (["cars"], ["no name"], "no table can be called no name"),
        (["cars", "vans"], ["vans=cars"], "cars would be the table of two queues"),
    ],
)
def test_bad_names_of_tables_are_refused(queues: list[str], named: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        importer.tables_of(queues, named)
