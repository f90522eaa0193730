"""The real disk: files at offsets, whole replacement, locks that a second writer meets."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import disk as disks
from fjord.disk import LocalDisk, LocalFile
from fjord.errors import DirectoryInUseError


@pytest.fixture
def disk() -> LocalDisk:
    return LocalDisk()


@pytest.fixture
def file(disk: LocalDisk, tmp_path: Path) -> Iterator[LocalFile]:
    with closing(disk.open(str(tmp_path / "file"), writable=True, create=True)) as opened:
        yield opened


# -- files ----------------------------------------------------------------------------------------


def test_a_read_is_short_only_at_the_end_of_the_file(file: LocalFile) -> None:
    file.write(0, b"abc")
    assert file.read(0, 100) == b"abc"
    assert file.read(2, 5) == b"c"
    assert file.read(3, 5) == b""
    assert file.read(100, 5) == b""
    assert file.read(0, 0) == b""


def test_a_short_write_is_finished_or_fails_as_a_full_disk(tmp_path: Path) -> None:
    script = (
        "import resource, sys; from fjord import disk; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
        "file = disk.LocalDisk().open(sys.argv[1], writable=True, create=True)\n"
        "try: file.write(500, bytes(501))\n"
        "except OSError as error: print(disk.is_full(error), file.size())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "file")],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert done.stdout == b"True 1000\n"


def test_a_closed_file_is_of_no_use_and_may_be_closed_again(file: LocalFile) -> None:
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, 1)


def test_a_file_gives_its_descriptor_back_when_nobody_holds_it(
    disk: LocalDisk, tmp_path: Path
) -> None:
    path = str(tmp_path / "file")
    disk.open(path, writable=True, create=True).close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        disk.open(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_missing_file_is_created_only_on_demand(disk: LocalDisk, tmp_path: Path) -> None:
    for writable in (False, True):
        with pytest.raises(FileNotFoundError):
            disk.open(str(tmp_path / "none"), writable=writable)


def test_a_file_opened_for_reading_cannot_be_written(disk: LocalDisk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    with closing(disk.open(str(path))) as file, pytest.raises(OSError, match="Bad file"):
        file.write(0, b"x")
    assert path.read_bytes() == b"abc"


def test_a_symbolic_link_is_not_followed(disk: LocalDisk, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links") as caught:
        disk.open(str(tmp_path / "link"))
    assert caught.value.errno == errno.ELOOP


# -- names ----------------------------------------------------------------------------------------


def test_a_directory_is_made_with_its_parents_for_its_owner_only(
    disk: LocalDisk, tmp_path: Path
) -> None:
    path = tmp_path / "a" / "b"
    disk.make_directory(str(path))
    disk.make_directory(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_only_directories_are_synced_as_such(disk: LocalDisk, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        disk.sync_directory(str(tmp_path / "file"))


def test_the_identity_of_a_copy_is_another_one(disk: LocalDisk, tmp_path: Path) -> None:
    original, copy, moved = (str(tmp_path / name) for name in ("original", "copy", "moved"))
    Path(original).write_bytes(b"abc")
    identity = disk.identity(original)
    assert identity is not None
    shutil.copy2(original, copy)
    assert disk.identity(copy) not in (None, identity)
    disk.rename(original, moved)
    assert disk.identity(moved) == identity
    assert disk.identity(original) is None


def test_a_copy_may_keep_when_a_file_was_written_to(disk: LocalDisk, tmp_path: Path) -> None:
    original, copy = (str(tmp_path / name) for name in ("original", "copy"))
    assert disk.modified_s(original) == 0
    Path(original).write_bytes(b"abc")
    os.utime(original, (1, 1_000_000_000.9))
    shutil.copy2(original, copy)
    assert disk.modified_s(original) == disk.modified_s(copy) == 1_000_000_000
    os.utime(original, (1, -5))
    assert disk.modified_s(original) == 0


# -- whole files ----------------------------------------------------------------------------------


@pytest.mark.req("SJ-19")
@pytest.mark.parametrize("size", [0, 1, 4096, 3_000_001])
def test_overwriting_leaves_zeros_and_the_size(disk: LocalDisk, tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    disks.overwrite(disk, str(path))
    assert path.read_bytes() == bytes(size)


def test_replace_whole_writes_over_what_a_crash_has_left(disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    Path(path + ".new").write_bytes(b"half of something much longer")
    disks.replace_whole(disk, path, b"whole")
    assert disks.read_whole(disk, path) == b"whole"
    assert disk.names(str(tmp_path)) == ["file"]


def test_replace_whole_never_changes_the_old_file_in_place(disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    disks.replace_whole(disk, path, b"old")
    with closing(disk.open(path)) as reader:
        disks.replace_whole(disk, path, b"new")
        assert reader.read(0, 10) == b"old"


# -- pages that processes share -------------------------------------------------------------------


def test_a_page_for_reading_is_not_made_and_cannot_be_written(
    disk: LocalDisk, tmp_path: Path
) -> None:
    path = str(tmp_path / "page")
    with pytest.raises(FileNotFoundError):
        disk.open_page(path)
    disk.open_page(path, writable=True).close()
    with closing(disk.open_page(path)) as page, pytest.raises(TypeError):
        page.write(b"x")


@pytest.mark.parametrize("size", [0, 16])
def test_a_page_that_a_crash_left_short_reads_as_zeros(
    disk: LocalDisk, tmp_path: Path, size: int
) -> None:
    (tmp_path / "page").write_bytes(b"x" * size)
    with closing(disk.open_page(str(tmp_path / "page"))) as page:
        assert not page.read().strip(b"\0")


# -- locks ----------------------------------------------------------------------------------------


def test_a_second_lock_is_refused_and_names_the_holder(disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = disk.lock(path)
    with pytest.raises(DirectoryInUseError) as caught:
        LocalDisk().lock(path)
    assert f"process {os.getpid()} writes to {tmp_path}" in str(caught.value)
    assert "read_only=True" in str(caught.value)
    lock.release()


def test_a_lock_that_nobody_holds_is_taken_over(disk: LocalDisk, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("123456789 and what an older version wrote\n")
    lock = disk.lock(str(tmp_path / "lock"))
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_another_process_meets_the_lock_and_it_goes_with_its_process(
    disk: LocalDisk, tmp_path: Path
) -> None:
    path = str(tmp_path / "lock")
    script = (
        "import sys; from fjord.disk import LocalDisk; "
        "lock = LocalDisk().lock(sys.argv[1]); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert disk.is_locked(path)
        with pytest.raises(DirectoryInUseError, match=f"process {holder.pid} writes"):
            disk.lock(path)
        holder.kill()
        holder.wait()
    assert not disk.is_locked(path)
    disk.lock(path).release()


# -- the machine ----------------------------------------------------------------------------------


@given(st.sampled_from(sorted(errno.errorcode)))
def test_only_want_of_space_is_a_full_disk(number: int) -> None:
    expected = errno.errorcode[number] in {"ENOSPC", "EDQUOT", "EFBIG"}
    assert disks.is_full(OSError(number, "")) is expected
