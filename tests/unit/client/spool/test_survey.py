"""A look at a spool as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from fjord.client.spool import files, survey
from fjord.client.spool.files import ASIDE, HEADER_BYTES, Fate, SpoolFile, line_of
from tests.unit.client.spool import spool_samples as samples

RECORDS = [samples.appended(b"message %d" % n, stamp=samples.NOW + n) for n in (5, 3, 9)]
LINES = samples.lines_of(*RECORDS)
REFUSED = ASIDE + line_of(RECORDS[0])[1:]


def report(directory: Path, data: bytes, name: str = samples.NAME) -> survey.FileReport:
    samples.make_file(directory, data, name).close()
    return survey.report(str(directory), name)


def test_what_waits_is_counted_with_its_dates(tmp_path: Path) -> None:
    found = report(tmp_path, b" " * 500 + b"\n" + LINES + b"\0" * 40)
    assert (found.waiting, found.oldest_us, found.newest_us) == (
        3,
        samples.NOW + 3,
        samples.NOW + 9,
    )
    assert found.watched.waiting_bytes == len(LINES)
    assert found.watched.status.st_size == HEADER_BYTES + 500 + 1 + len(LINES) + 40
    assert found.created_us == samples.NOW
    assert (found.half, found.fates.total(), found.watched.set_aside) == (0, 0, 0)
    assert not found.is_damaged
    status = os.stat(tmp_path / samples.NAME)
    assert found.watched.name == samples.NAME
    assert found.watched.status == status


def test_what_is_never_sent_is_counted_by_why(tmp_path: Path) -> None:
    torn = line_of(RECORDS[0])[:30]
    found = report(tmp_path, torn + LINES + b"#garbage" + LINES + REFUSED + LINES)
    assert found.waiting == 9
    assert found.fates == {Fate.TORN: 1, Fate.DAMAGED: 1, Fate.ASIDE: 1}
    assert found.watched.set_aside == 3
    assert found.watched.waiting_bytes == 3 * len(LINES)
    assert found.is_damaged
    # Nothing was changed by the look.
    assert samples.rest_of(SpoolFile(str(tmp_path), samples.NAME)).startswith(torn)


def test_something_can_be_said_without_a_look_inside(tmp_path: Path) -> None:
    name = files.named("aside", samples.IDENTITY)
    samples.make_file(tmp_path, LINES).close()
    samples.make_file(tmp_path, REFUSED, name).close()
    found = survey.outside(str(tmp_path), samples.NAME)
    assert found is not None
    assert (found.waiting_bytes, found.set_aside) == (len(LINES), 0)
    found = survey.outside(str(tmp_path), name)
    assert found is not None
    assert (found.waiting_bytes, found.set_aside) == (0, 1)  # at least one
    assert survey.outside(str(tmp_path), "08.spool") is None


def test_the_record_of_a_line_set_aside_can_be_shown(tmp_path: Path) -> None:
    torn, damaged = line_of(RECORDS[0])[:30], b"#garbage#"
    data = REFUSED + ASIDE + torn[1:] + LINES + ASIDE + damaged + b"\n" + REFUSED + torn
    file = samples.make_file(tmp_path, data, files.named("aside", samples.IDENTITY))
    pieces = [piece for found in survey.walk(file) for piece in found.pieces]
    shown = [survey.record_of(file, piece) for piece in pieces]
    assert shown == [RECORDS[0], Fate.TORN, Fate.DAMAGED, RECORDS[0], Fate.TORN]
    file.close()


def test_a_directory_that_everybody_can_write_to_is_an_alert(tmp_path: Path) -> None:
    tmp_path.chmod(0o702)
    (alert,) = survey.status(str(tmp_path), samples.NOW, lambda done, total: None).alerts
    assert alert.rule == "writable"
