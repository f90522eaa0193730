"""Small file systems that a test may fill up or cut the power of.  They need root.

An `Ext4` lives in a file behind a loop device.  `cut_power` is EXT4_IOC_SHUTDOWN: from that moment
on nothing reaches the device, and what was only in the page cache is lost with the unmounting.
Mounted again, the file system is what a disk would hold after a power cut.
"""

from __future__ import annotations

import enum
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from fjord import limits

_EXT4_IOC_SHUTDOWN: Final = 0x8004587D


class Cut(enum.IntEnum):
    """What happens to the journal of the file system when the power goes."""

    LOG_FLUSHED = 1  # it is written: what happened to names and sizes may be ahead of the data
    LOG_LOST = 2  # it is lost with everything else


class Ext4:
    """An ext4 file system of its own, at `path`; mounted, cut and mounted again."""

    def __init__(self, folder: Path, *, mib: int) -> None:
        self.path = folder / "ext4"
        self.path.mkdir()
        self._image = folder / "ext4.image"
        with self._image.open("wb") as image:
            image.truncate(mib * limits.MIB)
        self._device = ""
        self._is_mounted = False

    def __enter__(self) -> Self:
        try:
            _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
            self._device = _run("losetup", "--find", "--show", str(self._image)).strip()
            self.mount()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def mount(self) -> None:
        _run("mount", "-t", "ext4", self._device, str(self.path))
        self._is_mounted = True

    def unmount(self) -> None:
        _run("umount", str(self.path))
        self._is_mounted = False

    def cut_power(self, cut: Cut) -> None:
        """Nothing is written from now on; `unmount` and `mount` are the next start."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, struct.pack("I", cut))
        finally:
            os.close(descriptor)

    def _close(self) -> None:
        """Leaves nothing behind, not even where somebody still uses it."""
        if self._is_mounted:
            _unmount_for_good(self.path)
        if self._device:
            _run("losetup", "--detach", self._device)
        self._image.unlink()


@contextmanager
def tmpfs(folder: Path, *, kib: int) -> Iterator[Path]:
    """A file system in memory with that much space."""
    path = folder / "tmpfs"
    path.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=700", "fjord-test", str(path))
    try:
        yield path
    finally:
        _unmount_for_good(path)


@contextmanager
def small_disk(kind: str, folder: Path, *, kib: int) -> Iterator[Path]:
    """A disk with that much space: `tmpfs`, or `ext4` with what that needs for itself."""
    if kind == "tmpfs":
        with tmpfs(folder, kib=kib) as path:
            yield path
    else:
        with Ext4(folder, mib=max(2, 2 * kib // limits.KIB)) as disk:
            yield disk.path


def _unmount_for_good(path: Path) -> None:
    if subprocess.run(["umount", str(path)], check=False, capture_output=True).returncode:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
