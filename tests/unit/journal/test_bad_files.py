"""Files that are no segments: each is refused with its path and the place, and never served."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from tests.unit.journal.writing import (
    append,
    header,
    open_journal,
    open_writer,
    read_all,
    rotate,
    segment_file,
    values_of,
)

NOBODY = 65534


@pytest.fixture
def directory() -> Iterator[Path]:
    """Two segments of one frame each, where a user without rights may look too."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    writer = open_writer(path)
    append(writer, b"one")
    rotate(writer, urgent=True)
    append(writer, b"two")
    writer.close()
    yield path
    shutil.rmtree(path)


def replaced(path: Path, offset: int, data: bytes) -> None:
    old = path.read_bytes()
    path.write_bytes(old[:offset] + data + old[offset + len(data) :])


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def as_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def newer(path: Path) -> None:
    """A whole header, checksum and all, of the next version."""
    data = bytearray(path.read_bytes())
    data[8:16] = (frames.VERSION + 1).to_bytes(4, "little") + bytes(4)
    data[12:16] = frames.checksum(bytes(data[:64])).to_bytes(4, "little")
    path.write_bytes(bytes(data))


BAD: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "other magic": (lambda path: replaced(path, 0, b"KESTREL!"), 0, "does not begin with FJORDSEG"),
    "a text file": (lambda path: path.write_bytes(b"hello\n" * 20), 0, "does not begin with"),
    "a newer version": (newer, 8, "version 2, not 1"),
    "an old version": (lambda path: replaced(path, 8, bytes(4)), 8, "version 0, not 1"),
    "an empty file": (lambda path: path.write_bytes(b""), 0, "shorter than a segment header"),
    "half a header": (lambda path: os.truncate(path, 40), 0, "shorter than a segment header"),
    "zeros": (lambda path: path.write_bytes(bytes(4096)), 0, "does not begin with FJORDSEG"),
    "a directory": (as_directory, 0, "cannot be read"),
    "a symbolic link": (as_link, 0, "cannot be read"),
    "a dangling link": (as_dangling_link, 0, "cannot be read"),
    "a named pipe": (as_fifo, 0, "cannot be read"),
}


@pytest.mark.parametrize("segment", [1, 2])
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_segment_is_refused_with_its_path_and_the_place(
    directory: Path, name: str, segment: int
) -> None:
    action, offset, reason = BAD[name]
    path = segment_file(directory, segment)
    action(path)
    with pytest.raises(CorruptionError, match=reason) as caught:
        open_journal(directory)
    assert (caught.value.path, caught.value.offset) == (str(path), offset)


@pytest.mark.root
def test_a_file_without_rights_is_refused(directory: Path) -> None:
    path = segment_file(directory, 1)
    path.chmod(0)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(CorruptionError, match="Permission denied") as caught:
            open_journal(directory)
    finally:
        os.seteuid(0)
    assert caught.value.path == str(path)


@pytest.mark.parametrize("length", [0, 1, 7, 63, 64, 65, 0x7FFFFFF8, 0x80000000, 0xFFFFFFFF])
def test_a_frame_with_an_impossible_length_is_damage(directory: Path, length: int) -> None:
    path = segment_file(directory, 1)
    replaced(path, 64, length.to_bytes(4, "little"))
    with pytest.raises(CorruptionError, match="frame of seq 1 is not readable") as caught:
        read_all(directory, durable_seq=2)
    assert (caught.value.path, caught.value.offset) == (str(path), 64)


@pytest.mark.parametrize("length", [1 << 20, 32 << 20])
def test_a_frame_that_goes_past_the_end_of_its_file_is_damage(directory: Path, length: int) -> None:
    """The header is right in every way, but the body is not there."""
    frame = frames.Frame(1, 1, 1, 0, 0, 0, length, 0).encode(header().salt)
    path = segment_file(directory, 1)
    replaced(path, 64, frame)
    with pytest.raises(CorruptionError, match="frame of seq 1 is not readable") as caught:
        read_all(directory, durable_seq=2)
    assert caught.value.offset == 64
    replaced(
        segment_file(directory, 2),
        64,
        frames.Frame(2, 1, 1, 0, 0, 0, length, 0).encode(header(2).salt),
    )
    assert values_of(read_all(directory, 2, durable_seq=1)) == [], "a torn tail"
