"""File names of Kestrel's queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import names
from fjord.kestrel.names import FileName, Role

queue_names = st.text(min_size=1, max_size=20).filter(lambda one: not names.queue_problem(one))
numbers = st.integers(0, 10**19 - 1)


@given(queue_names, numbers)
def test_what_is_built_is_parsed(queue: str, number: int) -> None:
    for name, role, found in (
        (queue, Role.CURRENT, names.CURRENT),
        (names.rotated(queue, number), Role.ROTATED, number),
        (names.pack(queue, number), Role.PACK, number),
        (names.temporary(queue, number), Role.TEMPORARY, names.CURRENT),
        (names.sums(queue), Role.SUMS, names.CURRENT),
        (names.sums_made(queue), Role.TEMPORARY, names.CURRENT),
    ):
        assert names.parse(name) == FileName(name=name, queue=queue, role=role, number=found)


@pytest.mark.req("KJ-14")
def test_names_are_those_of_kestrel() -> None:
    made = (names.rotated("q", 9), names.pack("q", 9), names.temporary("q", 9))
    assert made == ("q.9", "q.9.pack", "q~~9")


NOT_OF_A_QUEUE = """
    . .. .hidden .904 ~~ ~~904 cars~ ca~rs.904 cars. cars.new cars.904. cars.904.corrupt
    cars.904.pack.pack cars.pack cars.-904 cars.0904 cars.00 cars.٣ cars.12345678901234567890
    cars.904.905
"""


@pytest.mark.parametrize("name", ["", "cars.904\n", *NOT_OF_A_QUEUE.split()])
def test_other_files_are_none_of_a_queue(name: str) -> None:
    assert names.parse(name) is None
    assert names.queues_of([name]) == []


@given(st.text(max_size=30))
def test_no_name_is_two_files(name: str) -> None:
    found = names.parse(name)
    assert found is None or (found.name == name and name.startswith(found.queue))
    assert found is None or found.role is Role.TEMPORARY or "." not in found.queue


# -- which files are read, and in which order -----------------------------------------------------


@pytest.mark.req("KJ-14", "KJ-15", "KJ-16")
@pytest.mark.parametrize(
    ("listed", "live", "dead", "temporary"),
    [
        ("q q.1000 q.904 q.99 qu.5", "q.99 q.904 q.1000 q", "", ""),  # the one without comes last
        ("q q~~961 q.904~~1 vans~~5", "q", "", "q.904~~1 q~~961"),
        ("q q~~sums q~~sums.new v~~sums q.9~~sums", "q", "", "q.9~~sums q~~sums.new"),
        ("q q.904 q.950 q.950.pack q.951", "q.950.pack q.951 q", "q.904 q.950", ""),
        ("q.5.pack q.10.pack q.7 q.11 q.9.pack", "q.10.pack q.11", "q.5.pack q.7 q.9.pack", ""),
        ("q.0 q.0.pack q.1", "q.0.pack q.1", "q.0", ""),
        ("q.1 q+seo.9.pack vans.9.pack", "q.1", "", ""),  # a pack is of one queue alone
    ],
)
def test_files_count_by_number_and_pack(listed: str, live: str, dead: str, temporary: str) -> None:
    found = names.files_of("q", listed.split())
    assert [found.live, found.dead, found.temporary] == [
        one.split() for one in (live, dead, temporary)
    ]


# -- queues ---------------------------------------------------------------------------------------


def test_queues_are_found_by_their_files() -> None:
    listed = ["b.7", "a", "a.5", "c.5.pack", "d~~1", ".x", "e.txt", "a+child", "f~~sums"]
    assert names.queues_of(listed) == ["a", "a+child", "b", "c"]


def test_a_fanout_queue_knows_whose_items_it_gets() -> None:
    parents = [names.parent_of(one) for one in ("cars+seo", "cars+seo+x", "cars")]
    assert parents == ["cars", "cars", None]


@pytest.mark.parametrize("queue", ["cars", "cars+seo", "Cars_2-x", "автомобили", "a b", "q" * 230])
def test_these_can_be_names_of_queues(queue: str) -> None:
    assert names.queue_problem(queue) is None


BAD = ["", "a.b", "a/b", "a~b", "+a", "a+", "+", "a\nb", "a\0", "a\x7f", "q" * 231, "ж" * 116]


@pytest.mark.parametrize("queue", BAD)
def test_these_cannot(queue: str) -> None:
    assert names.queue_problem(queue)


def test_the_longest_name_leaves_room_for_every_ending() -> None:
    queue = "q" * names.QUEUE_BYTES_MAX
    assert len(names.sums_made(queue)) <= 255
    assert len(names.pack(queue, 10**19 - 1)) <= 255
