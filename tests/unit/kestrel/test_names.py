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
        (names.current(queue), Role.CURRENT, names.CURRENT),
        (names.rotated(queue, number), Role.ROTATED, number),
        (names.pack(queue, number), Role.PACK, number),
        (names.temporary(queue, number), Role.TEMPORARY, names.CURRENT),
        (names.sums(queue), Role.SUMS, names.CURRENT),
        (names.sums_made(queue), Role.TEMPORARY, names.CURRENT),
    ):
        assert names.parse(name) == FileName(name=name, queue=queue, role=role, number=found)


@pytest.mark.req("KJ-14")
def test_names_are_those_of_kestrel() -> None:
    assert names.current("cars") == "cars"
    assert names.rotated("cars", 904) == "cars.904"
    assert names.pack("cars", 950) == "cars.950.pack"
    assert names.temporary("cars", 961) == "cars~~961"


def test_kestrel_takes_sums_for_something_temporary() -> None:
    assert names.sums("cars").startswith("cars~~")
    assert names.sums_made("cars").startswith("cars~~")
    listed = ["cars", "cars~~sums", "cars~~sums.new", "vans~~sums", "cars.904~~sums"]
    found = names.files_of("cars", listed)
    assert found.live == ["cars"]
    assert (found.dead, found.temporary) == ([], ["cars.904~~sums", "cars~~sums.new"])
    assert names.queues_of(listed) == ["cars"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        ".904",
        "~~",
        "~~904",
        "cars~",
        "ca~rs.904",
        "cars.",
        "cars.new",
        "cars.904.",
        "cars.904.corrupt",
        "cars.904.pack.pack",
        "cars.pack",
        "cars.-904",
        "cars.0904",
        "cars.00",
        "cars.904\n",
        "cars.٣",
        "cars.12345678901234567890",
        "cars.904.905",
    ],
)
def test_other_files_are_none_of_a_queue(name: str) -> None:
    assert names.parse(name) is None
    assert names.queues_of([name]) == []


@given(st.text(max_size=30))
def test_no_name_is_two_files(name: str) -> None:
    found = names.parse(name)
    assert found is None or found.name == name
    if found and found.role is not Role.TEMPORARY:
        assert name.startswith(found.queue)
        assert "." not in found.queue


# -- which files are read, and in which order -----------------------------------------------------


@pytest.mark.req("KJ-14")
def test_files_are_read_by_number_and_the_one_without_comes_last() -> None:
    found = names.files_of("cars", ["cars", "cars.1000", "cars.904", "cars.99", "carsten.5"])
    assert found.live == ["cars.99", "cars.904", "cars.1000", "cars"]
    assert (found.dead, found.temporary) == ([], [])


@given(st.sets(numbers, max_size=8), st.randoms(use_true_random=False))
def test_the_order_is_that_of_the_numbers(chosen: set[int], random: object) -> None:
    listed = [names.rotated("q", number) for number in chosen]
    random.shuffle(listed)  # type: ignore[attr-defined]
    assert names.files_of("q", listed).live == [names.rotated("q", one) for one in sorted(chosen)]


def test_temporary_files_count_for_nothing() -> None:
    listed = ["cars", "cars~~961", "cars.904~~1", "vans~~5"]
    found = names.files_of("cars", listed)
    assert found.live == ["cars"]
    assert found.temporary == ["cars.904~~1", "cars~~961"]
    assert names.queues_of(listed) == ["cars"]


def test_a_pack_takes_the_place_of_all_files_up_to_its_number() -> None:
    found = names.files_of("cars", ["cars", "cars.904", "cars.950", "cars.950.pack", "cars.951"])
    assert found.live == ["cars.950.pack", "cars.951", "cars"]
    assert found.dead == ["cars.904", "cars.950"]


def test_a_pack_takes_the_place_of_older_packs_too() -> None:
    listed = ["q.5.pack", "q.10.pack", "q.7", "q.10", "q.11", "q.9.pack"]
    found = names.files_of("q", listed)
    assert found.live == ["q.10.pack", "q.11"]
    assert found.dead == ["q.10", "q.5.pack", "q.7", "q.9.pack"]


def test_a_pack_with_the_number_0_is_a_pack() -> None:
    assert names.files_of("q", ["q.0", "q.0.pack", "q.1"]).live == ["q.0.pack", "q.1"]


def test_a_pack_is_of_one_queue_alone() -> None:
    found = names.files_of("cars", ["cars.1", "cars+seo.9.pack", "vans.9.pack"])
    assert (found.live, found.dead) == (["cars.1"], [])


# -- queues ---------------------------------------------------------------------------------------


def test_queues_are_found_by_their_files() -> None:
    listed = ["b.7", "a", "a.5", "c.5.pack", "d~~1", ".x", "e.txt", "a+child"]
    assert names.queues_of(listed) == ["a", "a+child", "b", "c"]


def test_sums_of_a_queue_without_files_are_left() -> None:
    listed = ["a", "a~~sums", "b~~sums", "c.5", "c~~sums", "d~~5"]
    assert names.left_sums(listed) == ["b~~sums"]


def test_a_fanout_queue_knows_whose_items_it_gets() -> None:
    assert names.parent_of("cars+seo") == "cars"
    assert names.parent_of("cars+seo+x") == "cars"
    assert names.parent_of("cars") is None


@pytest.mark.parametrize("queue", ["cars", "cars+seo", "Cars_2-x", "автомобили", "a b", "q" * 230])
def test_these_can_be_names_of_queues(queue: str) -> None:
    assert names.queue_problem(queue) is None


@pytest.mark.parametrize(
    "queue",
    ["", "a.b", "a/b", "a~b", "+a", "a+", "+", "a\nb", "a\0", "a\x7f", "q" * 231, "ж" * 116],
)
def test_these_cannot(queue: str) -> None:
    assert names.queue_problem(queue)


def test_the_longest_name_leaves_room_for_every_ending() -> None:
    queue = "q" * names.QUEUE_BYTES_MAX
    assert len(names.sums_made(queue)) <= 255
    assert len(names.pack(queue, 10**19 - 1)) <= 255


@given(st.text(max_size=30))
def test_a_name_begins_with_its_queue(name: str) -> None:
    found = names.parse(name)
    assert found is None or name.startswith(found.queue)
