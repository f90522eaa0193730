"""Which range of the journal a frame of the whole history asks for, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fjord
from fjord.spark.source import history
from tests.unit.spark.packing import pack


class Asked:
    """A session, and its reader, that take note of options and read nothing."""

    def __init__(self) -> None:
        self.read = self
        self.given: dict[str, str] = {}

    def format(self, name: str) -> Asked:
        assert name == "fjord"
        return self

    def options(self, **given: str) -> Asked:
        self.given = given
        return self

    def load(self) -> Asked:
        return self


def asked(path: Path, **more: Any) -> tuple[int, int]:
    """Returns the first seq that is asked for, and the one behind the last."""
    spark: Any = Asked()
    history(spark, path, "settings", **more)
    return int(spark.given["startingSeq"]), int(spark.given["endingSeq"])


def test_the_beginning_is_fixed_when_the_frame_is_made(tmp_path: Path) -> None:
    """Seq 1 would be the beginning of what is left when it is read, and that may be less."""
    with fjord.open(tmp_path) as db:
        for number in range(20):
            db.kv("settings").set(f"k{number % 3}", b"x")
        durable_seq = db.span("settings").durable_seq
    assert asked(tmp_path) == (2, durable_seq + 1)  # seq 1 is no row
    assert asked(tmp_path, start=7, end=9) == (7, 9)
    first_seq = pack(tmp_path)
    assert asked(tmp_path)[0] == asked(tmp_path, start=1)[0] == first_seq > 7
    assert asked(tmp_path, start=7)[0] == 7  # who reads it is told that it is gone
