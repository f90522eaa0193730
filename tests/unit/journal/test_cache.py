"""The value cache: what is read again stays, within a bound, and nothing else does."""

from __future__ import annotations

import threading

import pytest

from fjord.journal.reader import ENTRY_BYTES, Key, ValueCache

SIZE_MAX = 100_000
VALUE = b"v" * (1000 - ENTRY_BYTES)  # counts 1000


def key(number: int, segment: int = 1) -> Key:
    return segment, number * 8, len(VALUE), number * 0x01010101


def read_twice(cache: ValueCache, one: Key, value: bytes = VALUE) -> None:
    for _ in range(2):
        cache.offer(one, value)


def test_a_value_that_is_read_once_is_not_kept() -> None:
    cache = ValueCache(SIZE_MAX)
    for number in range(1, 1000):
        cache.offer(key(number), VALUE)
    assert len(cache) == cache.size == 0


@pytest.mark.req("FJ-29")
def test_a_value_that_is_read_again_is_kept() -> None:
    cache = ValueCache(SIZE_MAX)
    read_twice(cache, key(1))
    assert cache.get(key(1)) == VALUE
    assert cache.get(key(2)) is None
    assert (len(cache), cache.size) == (1, 1000)


@pytest.mark.req("FJ-29")
def test_the_cache_never_grows_beyond_its_bound_and_drops_what_was_used_longest_ago() -> None:
    cache = ValueCache(SIZE_MAX)
    for number in range(1, 201):
        read_twice(cache, key(number))
        assert cache.get(key(1)) == VALUE, "it is used all the time"
        assert cache.size <= SIZE_MAX
    assert len(cache) == 100
    assert [number for number in range(1, 201) if cache.get(key(number))] == [1, *range(102, 201)]


def test_a_value_that_would_take_too_large_a_share_is_not_kept() -> None:
    cache = ValueCache(SIZE_MAX)
    largest = b"v" * (SIZE_MAX // 16 - ENTRY_BYTES)
    read_twice(cache, key(1), largest)
    read_twice(cache, key(2), largest + b"v")
    assert cache.get(key(1)) == largest
    assert cache.get(key(2)) is None


def test_the_values_of_one_segment_are_forgotten() -> None:
    cache = ValueCache(SIZE_MAX)
    for number in range(1, 11):
        read_twice(cache, key(number, segment=number % 2))
    cache.forget(1)
    assert (len(cache), cache.size) == (5, 5000)
    assert all(cache.get(key(number, 0)) for number in range(2, 11, 2))
    cache.forget(7)
    assert len(cache) == 5


def test_threads_that_read_and_forget_leave_the_count_right() -> None:
    cache = ValueCache(20 * 1000)
    wrong = []

    def work(seed: int) -> None:
        for number in range(2000):
            one = key((number * seed) % 50, segment=number % 3)
            found = cache.get(one)
            if found not in (None, VALUE):
                wrong.append(one)
            read_twice(cache, one)
            if number % 97 == 0:
                cache.forget(number % 3)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert cache.size == 1000 * len(cache) <= 20 * 1000
