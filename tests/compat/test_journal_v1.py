"""The frozen journal of version 1 is read for ever, and this version still writes it so."""

from __future__ import annotations

import json
from pathlib import Path

from fjord import limits
from fjord.disk import LocalDisk
from fjord.journal import frame as frames
from fjord.journal import inspect
from fjord.ops import Opcode
from tests.compat import make_samples
from tests.compat.make_samples import EXPECTED, SAMPLE

AGAIN = "make it once more only if the format was never released; see make_samples.py"


def test_the_sample_says_what_it_said_when_it_was_frozen() -> None:
    assert make_samples.said(SAMPLE) == json.loads(EXPECTED.read_text()), AGAIN


def test_every_opcode_is_in_the_sample_with_the_columns_that_it_has_now() -> None:
    expected = json.loads(EXPECTED.read_text())
    found = {op["opcode"]: list(op["columns"]) for one in expected["frames"] for op in one["ops"]}
    known = {int(opcode): [name for name, _ in opcode.columns] for opcode in Opcode}
    assert found == known, AGAIN


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    make_samples.write(tmp_path / "journal")
    written = {path.name: path.read_bytes() for path in (tmp_path / "journal").iterdir()}
    frozen = {path.name: path.read_bytes() for path in SAMPLE.iterdir()}
    assert written == frozen, AGAIN


def test_the_sample_is_whole_and_of_version_1() -> None:
    report = inspect.verify(LocalDisk(), str(SAMPLE))
    assert report.damages == []
    for segment in report.segments:
        data = Path(segment.path).read_bytes()
        assert data[8:12] == frames.VERSION.to_bytes(4, "little") == b"\1\0\0\0"


def test_the_samples_are_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) < 32 * limits.KIB
