"""What is said of a spool where that cannot be reached through the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fjord.cli import spool_reports as reports
from fjord.client.spool.files import Header, encode_header
from fjord.client.spool.lines import line_of
from fjord.client.spool.record import HEAD, Kind
from fjord.errors import DirectoryError

NOW_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


def ignore(done: int, total: int | None) -> None:
    """Nobody looks."""


def put(directory: Path, name: str, *records: bytes) -> None:
    header = encode_header(Header(os.urandom(16), NOW_US, bytes(8)))
    (directory / name).write_bytes(header + b"".join(map(line_of, records)))


def record(stamp_us: int, *, kind: int = Kind.APPEND, type_: int = 1, value: bytes = b"") -> bytes:
    return HEAD.pack(kind, type_, 0, 1, 1, 0, stamp_us, 0, 0) + b"tk" + value


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "0 s"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_ages_are_told_in_units_that_people_read(tmp_path: Path, seconds: int, said: str) -> None:
    put(tmp_path, "07.spool", record(NOW_US - seconds * SECOND_US))
    found = reports.status(str(tmp_path), NOW_US, ignore)
    ((_, _, _, age, _),) = reports.status_rows(found)
    assert age == said


def test_a_file_that_cannot_be_read_is_told_of_and_the_others_are_read(tmp_path: Path) -> None:
    put(tmp_path, "07.spool", record(NOW_US))
    (tmp_path / "08.spool").mkdir()
    (tmp_path / "08.spool").chmod(0o777)
    found = reports.status(str(tmp_path), NOW_US, ignore)
    assert (found.waiting, [*found.unreadable]) == (1, ["08.spool"])
    assert [(alert.rule, alert.name) for alert in found.alerts] == [("writable", "08.spool")]
    assert any(line.startswith("08.spool cannot be read: ") for line in reports.status_lines(found))
    with pytest.raises(DirectoryError, match=r"08\.spool cannot be read"):
        list(reports.verify(str(tmp_path), ignore))


def test_records_that_this_program_does_not_know_are_shown_as_bytes(tmp_path: Path) -> None:
    put(tmp_path, "07.spool", b"\x09 of the future", record(NOW_US, type_=99, value=b"odd"))
    unknown, odd = reports.dump(str(tmp_path), is_aside=False)
    assert unknown.problem.startswith("unknown: ")
    assert reports.shown_json(unknown)["data"] == b"\x09 of the future"
    assert reports.shown_cells(unknown)[:2] == ["07.spool", "96"]
    assert (reports.shown_json(odd)["type"], reports.shown_json(odd)["value"]) == (
        "type 99",
        b"odd",
    )
    (checked,) = reports.verify(str(tmp_path), ignore)
    assert (checked.waiting, checked.unknown, checked.is_damaged) == (1, 1, True)
    assert reports.checked_line(checked).endswith("1 waiting, 0 set aside, 1 unknown")


def test_a_date_that_is_none_is_shown_as_its_number(tmp_path: Path) -> None:
    put(tmp_path, "07.spool", record(2**64 - 1))
    (shown,) = reports.dump(str(tmp_path), is_aside=False)
    assert reports.shown_json(shown)["at"] == str(2**64 - 1)


def test_progress_goes_over_all_files(tmp_path: Path) -> None:
    for name in ("07.spool", "08.spool"):
        put(tmp_path, name, record(NOW_US))
    seen: list[int] = []
    assert len(list(reports.verify(str(tmp_path), lambda done, total: seen.append(done)))) == 2
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert seen == [total // 2, total]
