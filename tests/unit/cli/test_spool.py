"""What is said of a spool where that cannot be reached through the command line."""

from __future__ import annotations

import fcntl
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


def refuse(name: str, error: OSError) -> None:
    raise AssertionError(f"{name}: {error}")


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


def test_a_file_with_what_was_set_aside_stays_while_it_is_open(tmp_path: Path) -> None:
    put(tmp_path, "07.spool", record(NOW_US))
    with (tmp_path / "07.spool").open("r+b") as file:
        file.seek(96)
        file.write(b"!")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_SH)  # as a writer does
        (kept,) = survey.still_open(str(tmp_path))
        assert spool.retried_line(kept) == "07.spool stays: a writer has it open"
    (kept,) = survey.still_open(str(tmp_path))
    assert spool.retried_line(kept).startswith("07.spool stays: it is not fully sent, or ")


def test_records_that_this_program_does_not_know_are_shown_as_bytes(tmp_path: Path) -> None:
    put(tmp_path, "07.spool", b"\x09 of the future", record(NOW_US, type_=99, value=b"odd"))
    unknown, odd = survey.dump(str(tmp_path), is_aside=False, failed=refuse)
    assert unknown.problem.startswith("unknown: ")
    assert spool.shown_json(unknown)["data"] == b"\x09 of the future"
    assert spool.shown_cells(unknown)[:2] == ["07.spool", "96"]
    assert (spool.shown_json(odd)["type"], spool.shown_json(odd)["value"]) == (
        "type 99",
        b"odd",
    )
    (checked,) = survey.verify(str(tmp_path), ignore)
    assert (checked.waiting, checked.unknown, checked.is_damaged) == (1, 1, True)
    assert spool.checked_line(checked).endswith("1 waiting, 0 set aside, 1 unknown")


def test_a_date_that_is_none_is_shown_as_its_number(tmp_path: Path) -> None:
    put(tmp_path, "07.spool", record(2**64 - 1))
    (shown,) = survey.dump(str(tmp_path), is_aside=False, failed=refuse)
    assert spool.shown_json(shown)["at"] == str(2**64 - 1)


def test_progress_goes_over_all_files(tmp_path: Path) -> None:
    for name in ("07.spool", "08.spool"):
        put(tmp_path, name, record(NOW_US))
    seen: list[int] = []
    assert len(list(survey.verify(str(tmp_path), lambda done, total: seen.append(done)))) == 2
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert seen == [total // 2, total]
