"""What only the LMDB index promises: isolation, space ahead, and a clear word on bad files."""

from __future__ import annotations

import errno
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fjord import limits
from fjord.errors import DirectoryInUseError
from fjord.index import IndexDamagedError
from fjord.index.lmdb import LmdbIndexes

STEP_BYTES = limits.MIB
READER = """
import sys
sys.path[:0] = sys.argv[2:]
from fjord import limits
from fjord.index.lmdb import LmdbIndexes
index = LmdbIndexes(sys.argv[1], 2, step_bytes=limits.MIB).open(read_only=True)
for _ in sys.stdin:
    view = index.view()
    print(len(view.scan(0, b"", None, 1_000_000)), flush=True)
    view.abort()
"""


@pytest.fixture
def indexes(tmp_path: Path) -> LmdbIndexes:
    made = LmdbIndexes(str(tmp_path), 2, step_bytes=STEP_BYTES)
    made.create()
    return made


def test_a_view_keeps_what_it_saw(indexes: LmdbIndexes) -> None:
    with closing(indexes.open()) as index:
        before = index.view()
        writer = index.begin()
        writer.put_many(0, [(b"a", b"1")])
        during = index.view()
        writer.commit()
        after = index.view()
        assert [view.get(0, b"a") for view in (before, during, after)] == [None, None, b"1"]
        for view in (before, during, after):
            view.abort()


def test_the_file_is_allocated_before_it_is_used(indexes: LmdbIndexes, tmp_path: Path) -> None:
    file = tmp_path / "data.mdb"
    with closing(indexes.open()) as index:
        assert file.stat().st_size == STEP_BYTES
        assert file.stat().st_blocks * 512 >= STEP_BYTES
        index.grow()
        assert file.stat().st_size == 2 * STEP_BYTES
        assert file.stat().st_blocks * 512 >= 2 * STEP_BYTES
        index.grow()  # by twice as much each time
        assert file.stat().st_size == 4 * STEP_BYTES


def test_the_largest_size_is_a_full_disk(
    indexes: LmdbIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INDEX_BYTES_MAX", 2 * STEP_BYTES)
    with closing(indexes.open()) as index:
        index.grow()
        with pytest.raises(OSError, match="maximum size") as caught:
            index.grow()
        assert caught.value.errno == errno.ENOSPC


def test_a_second_opening_in_one_process_is_refused(indexes: LmdbIndexes) -> None:
    with closing(indexes.open()), pytest.raises(DirectoryInUseError, match="already opened"):
        indexes.open(read_only=True)


@pytest.mark.parametrize("data", [b"", b"no index" * 2000, bytes(16384)], ids=["empty", "x", "0"])
def test_a_file_that_is_no_index_is_named_damaged(
    *, indexes: LmdbIndexes, tmp_path: Path, data: bytes
) -> None:
    for read_only in (False, True):
        (tmp_path / "data.mdb").write_bytes(data)
        with pytest.raises(IndexDamagedError, match="rebuild it from the journal"):
            indexes.open(read_only=read_only)
    indexes.drop()
    indexes.create()
    indexes.open().close()


def test_an_index_whose_trees_are_not_made_yet_is_named_damaged_to_readers(
    indexes: LmdbIndexes,
) -> None:
    """A reader that comes while the writer makes a new index takes another way."""
    with pytest.raises(IndexDamagedError):
        indexes.open(read_only=True)


def test_drop_leaves_nothing_behind(indexes: LmdbIndexes, tmp_path: Path) -> None:
    indexes.open().close()
    indexes.drop()
    assert list(tmp_path.iterdir()) == []


def test_a_reader_in_another_process_follows_a_growing_index(
    indexes: LmdbIndexes, tmp_path: Path
) -> None:
    with closing(indexes.open()) as index:
        with subprocess.Popen(
            [sys.executable, "-c", READER, str(tmp_path), *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            for count in range(1, 4):
                index.grow()
                transaction = index.begin()
                items = [(b"%d-%d" % (count, row), bytes(900)) for row in range(1000)]
                transaction.put_many(0, items)
                transaction.commit()
                reader.stdin.write("\n")
                reader.stdin.flush()
                assert reader.stdout.readline() == f"{count * 1000}\n"
            reader.stdin.close()
        assert reader.returncode == 0
