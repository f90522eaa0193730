"""Packing a directory whose node writes no blocks, for tests of this folder."""

from __future__ import annotations

from pathlib import Path

from fjord.engine import open_engine


def pack(path: Path) -> int:
    """Packs all that there is; returns the seq with which the journal begins then."""
    engine = open_engine(str(path))
    engine.begin_segment()
    before = engine.stats()["first_seq"]
    while engine.stats()["first_seq"] == before:
        assert engine._packer.step()
    engine.sync()
    first_seq = engine.stats()["first_seq"]
    engine.close()
    return first_seq
