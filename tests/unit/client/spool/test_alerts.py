"""The watch rules of a spool."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fjord.client.spool import survey
from fjord.client.spool.survey import Alert, WatchedFile

NOW = 1_700_000_000_000_000
OWNER = 1000
HOURS_24 = 24 * 3600 * 1_000_000


def status(*, owner: int = OWNER, mode: int = 0o100600, modified_us: int = NOW) -> os.stat_result:
    fields = (mode, 0, 0, 1, owner, OWNER, 0, 0, 0, 0)
    return os.stat_result(fields, {"st_mtime_ns": modified_us * 1000})


FINE = WatchedFile("07.spool", status(), 500)


def find(files: Sequence[WatchedFile], *, mode: int = 0o40700) -> list[Alert]:
    return survey.find(files, "/var/spool/my fjord", status(mode=mode), NOW)


def rules(*files: WatchedFile) -> list[tuple[int, str, str]]:
    found = find(files)
    return [(alert.severity, alert.rule, alert.name) for alert in found]


@pytest.mark.req("FJ-26")
def test_more_than_two_files_that_wait_are_too_many() -> None:
    files = [replace(FINE, name=f"0{n}.spool") for n in (9, 7, 8)]
    assert rules(*files) == [(90, "files", "")]
    (alert,) = find(files)
    assert "3 files wait (07.spool, 08.spool, 09.spool):" in alert.text
    assert "fjord forward" not in alert.text  # it is in the log of that, too


@pytest.mark.req("FJ-26")
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (replace(FINE, set_aside=1), (80, "aside")),
        (replace(FINE, status=status(modified_us=NOW - HOURS_24 - 1)), (76, "unchanged")),
        (replace(FINE, status=status(modified_us=NOW - HOURS_24)), None),
        (replace(FINE, status=status(modified_us=NOW - 2 * HOURS_24), waiting_bytes=0), None),
        (replace(FINE, status=status(owner=0)), (73, "owner")),
        (replace(FINE, status=status(mode=0o100602)), (60, "writable")),
        (replace(FINE, status=status(mode=0o100660)), None),
        (replace(FINE, status=status(mode=0o120777)), None),  # a link: all of them are so
        (replace(FINE, waiting_bytes=12_000_001), (60, "size")),
        (replace(FINE, waiting_bytes=12_000_000), None),
    ],
)
def test_each_rule_tells_of_its_file(file: WatchedFile, expected: tuple[int, str] | None) -> None:
    assert rules(file) == ([(*expected, "07.spool")] if expected else [])
    for alert in find([file]):
        assert alert.text.startswith("07.spool: ")


def test_the_most_severe_come_first() -> None:
    bad = replace(
        FINE, set_aside=3, status=status(modified_us=0, owner=0, mode=0o100666), waiting_bytes=10**9
    )
    found = rules(*(replace(bad, name=f"0{n}.spool") for n in range(3)))
    assert found[0] == (90, "files", "")
    severities = [severity for severity, _, _ in found]
    assert severities == sorted(severities, reverse=True)
    assert len(found) == 1 + 3 * 5
    assert {rule for _, rule, _ in found} == set(survey.RULES)
