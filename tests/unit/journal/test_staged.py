"""Messages that were staged are found where a STREAM_COMMIT says, or where their stage is."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import fjord
from fjord import ops
from fjord.columns import Strings
from fjord.disk import LocalDisk
from fjord.errors import CorruptionError
from fjord.journal import reader
from fjord.journal.reader import Journal
from fjord.ops import Op, Opcode


def commit_of(directory: Path) -> Op:
    """Writes a batch, and returns the op that gave it seqs."""
    with fjord.open(directory) as db:
        keys = Strings.of([b"k", b"l"])
        staging = db.staging("events")
        staging.commit("w", 0, [staging.append(b"\1\1", keys, Strings.of([b"a", b"b"]))])
    with closing(Journal(LocalDisk(), str(directory / "journal"))) as journal:
        found = [op for one in journal.frames(1, durable_seq=0) for op, _ in one.ops()]
    (commit,) = [op for op in found if op.opcode is Opcode.STREAM_COMMIT]
    return commit


def messages(directory: Path, commit: Op) -> list[bytes]:
    with closing(Journal(LocalDisk(), str(directory / "journal"))) as journal:
        data = reader.messages_of(journal, ops.encode(commit)[0])
    op, _, _ = ops.decode(memoryview(data), 0)
    assert op.opcode is Opcode.STREAM_APPEND
    values = op.column("value")
    assert isinstance(values, Strings)
    return values.rows()


def changed(commit: Op, **columns: int) -> Op:
    names = [name for name, _ in Opcode.STREAM_COMMIT.columns]
    found = zip(names, commit.columns, strict=True)
    return commit._replace(
        columns=tuple((columns[name],) if name in columns else column for name, column in found)
    )


def test_a_commit_leads_to_its_messages(tmp_path: Path) -> None:
    assert messages(tmp_path, commit_of(tmp_path)) == [b"a", b"b"]


def test_messages_that_stand_elsewhere_are_found_by_their_stage(tmp_path: Path) -> None:
    commit = commit_of(tmp_path)
    for wrong in ({"offset": 64}, {"segment": 9}):
        assert messages(tmp_path, changed(commit, **wrong)) == [b"a", b"b"]


def test_messages_that_are_nowhere_are_damage(tmp_path: Path) -> None:
    commit = commit_of(tmp_path)
    with pytest.raises(CorruptionError):
        messages(tmp_path, changed(commit, offset=64, stage=1))
    with pytest.raises(CorruptionError, match="does not contain the 3 messages"):
        messages(tmp_path, commit._replace(rows=3))
    with pytest.raises(CorruptionError, match="does not contain"):
        messages(tmp_path, commit._replace(table=9))
