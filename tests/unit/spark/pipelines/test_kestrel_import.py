"""What an import of queues decides before it writes; without Spark and without a daemon."""

from __future__ import annotations

import pytest

import fjord
from fjord import jobs, limits, streams
from fjord.errors import FjordError
from fjord.spark.kestrel.tasks import Counted
from fjord.spark.pipelines import kestrel_import


def counted(queue: str, *, too_large: int = 0, largest_bytes: int = 1) -> Counted:
    return Counted(
        queue=queue,
        items=10,
        bytes=10,
        open=0,
        expired=0,
        too_large=too_large,
        largest_bytes=largest_bytes,
        skipped_bytes=0,
        crc=1,
        size=1,
    )


def info(kind: str, settings: bytes = b"") -> fjord.TableInfo:
    return fjord.TableInfo(name="cars", kind=kind, id=1, settings=settings)


def test_items_that_are_too_large_are_told_all_at_once() -> None:
    kestrel_import.check_sizes([counted("cars", largest_bytes=limits.VALUE_BYTES_MAX)])
    large = [counted("cars", too_large=2, largest_bytes=8), counted("b", too_large=1)]
    with pytest.raises(FjordError, match="have more: 2 of cars, 1 of b; the largest has 8"):
        kestrel_import.check_sizes([*large, counted("small")])


def test_a_batch_is_known_by_the_checksum_of_the_files() -> None:
    crc, other = 0xFFFF_FFFF, 5
    first, was_there = kestrel_import.batch_of(None, crc)
    assert not was_there
    assert kestrel_import.batch_of(first, crc) == (first, True)
    second, was_there = kestrel_import.batch_of(first, other)
    assert not was_there
    assert second > first  # else the daemon would take it for one that it has
    assert kestrel_import.batch_of(second, other) == (second, True)
    third, was_there = kestrel_import.batch_of(second, crc)
    assert (third > second, was_there) == (True, False)
    assert kestrel_import.batch_of(None, 0) == (0, False)


def test_files_that_were_imported_otherwise_are_passed_over_if_all_of_them_were() -> None:
    kestrel_import.check_elsewhere(counted("cars"), "cars", 10, is_moved=True)
    for done, is_moved, told in (
        (10, False, "files of cars were imported into vans before.*--moved"),
        (9, False, "9 of the 10 items of cars were imported into vans by fjord kestrel import"),
        (9, True, "go on with that, or --anew"),
    ):
        with pytest.raises(FjordError, match=told):
            kestrel_import.check_elsewhere(counted("cars"), "vans", done, is_moved=is_moved)


def test_a_table_that_is_there_has_to_take_items() -> None:
    queue = jobs.Settings(merge=False).encode()
    kestrel_import.check_table(info("jobs", queue), "jobs")
    kestrel_import.check_table(info("stream"), "stream")
    latest = streams.Settings(mode=streams.Mode.LATEST).encode()
    for found, kind, told in (
        (info("kv"), "jobs", "cars is kv, not jobs"),
        (info("jobs", queue), "stream", "cars is jobs, not stream"),
        (info("jobs"), "jobs", "cars merges jobs by their keys"),
        (info("stream", latest), "stream", "cars keeps the latest"),
    ):
        with pytest.raises(FjordError, match=told):
            kestrel_import.check_table(found, kind)
