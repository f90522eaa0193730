"""What is said of a spool where that cannot be reached through the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fjord.cli import spool
from fjord.client.spool import survey
from fjord.client.spool.files import Header, encode_header, line_of
from fjord.client.spool.records import HEAD, RecordKind

NOW_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


def ignore(done: int, total: int | None) -> None:
    """Nobody looks."""


def put(directory: Path, name: str, *records: bytes) -> None:
    header = encode_header(Header(os.urandom(16), NOW_US, bytes(8)))
    (directory / name).write_bytes(header + b"".join(map(line_of, records)))


def record(
    stamp_us: int, *, kind: int = RecordKind.APPEND, type_: int = 1, value: bytes = b""
) -> bytes:
    return HEAD.pack(kind, type_, 0, 1, 1, 0, stamp_us, 0, 0) + b"tk" + value


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "0 s"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_ages_are_told_in_units_that_people_read(tmp_path: Path, seconds: int, said: str) -> None:
    put(tmp_path, "07.spool", record(NOW_US - seconds * SECOND_US))
    found = survey.status(str(tmp_path), NOW_US, ignore)
    ((_, _, _, age, _),) = spool.status_rows(found)
    assert age == said


def test_a_file_that_cannot_be_read_is_told_of_and_the_others_are_read(tmp_path: Path) -> None:
    put(tmp_path, "07.spool", record(NOW_US))
    (tmp_path / "06.spool").mkdir()
    found = survey.status(str(tmp_path), NOW_US, ignore)
    assert (found.waiting, [*found.unreadable], found.is_well) == (1, ["06.spool"], False)
    said = "06.spool cannot be read: not a regular file"
    assert said in spool.status_lines(found)
    whole, none = survey.verify(str(tmp_path), ignore)
    assert (whole.file, whole.waiting, whole.problem) == ("07.spool", 1, "")
    assert (spool.checked_line(none), none.is_damaged) == (said, False)
    failed: list[str] = []
    (row,) = survey.dump(str(tmp_path), is_aside=False, failed=lambda name, _: failed.append(name))
    assert (row.file, failed) == ("07.spool", ["06.spool"])
    (kept,) = survey.still_open(str(tmp_path))
    assert (kept.name, kept.is_readable) == ("06.spool", False)


def test_a_damaged_first_line_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "07.spool").write_bytes(b"x" * 96 + line_of(record(NOW_US)))
    found = survey.status(str(tmp_path), NOW_US, ignore)
    assert (found.waiting, found.is_well) == (1, False)
    assert [line for line in spool.status_lines(found) if "07.spool" in line] == [
        "07.spool: the first line is damaged; a forwarder replaces it and sends the rest"
    ]
    (checked,) = survey.verify(str(tmp_path), ignore)
    assert type(checked.damaged) is int
    assert spool.checked_line(checked).endswith("1 waiting, 0 set aside, 1 damaged")


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((1, 0, 0), "whole: 1 file"),
        ((2, 1, 0), "damaged: 1 of 2 files"),
        ((0, 0, 1), "whole: 0 files; 1 file cannot be read"),
        ((1, 1, 2), "damaged: 1 of 1 file; 2 files cannot be read"),
    ],
)
def test_the_verdict_is_in_good_english(counts: tuple[int, int, int], said: str) -> None:
    total, damaged, unreadable = counts
    assert spool.verdict(total=total, damaged=damaged, unreadable=unreadable) == said
