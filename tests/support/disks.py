"""Small disks that tests fill: tmpfs in a mount namespace of the test process, gone with it. Needs root."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

_CLONE_NEWNS: Final = 0x20000
_PIECE: Final = bytes(65536)


@cache
def missing() -> str | None:
    """Why no disk can be mounted here; None: one can. After: this process, and what it starts, has mounts of its own."""
    if os.geteuid() != 0:
        return "only root can mount a small disk"
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        return f"this root may not have mounts of its own: {os.strerror(ctypes.get_errno())}"
    done = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, text=True, check=False)
    return f"this root may not mount: {done.stderr.strip()}" if done.returncode else None


class SmallDisk:
    """A disk of a few megabytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """After: `leave` bytes are free, about; with 0 not even one."""
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while (room := self.free_bytes - leave) > 0 or not leave:
                file.write(_PIECE[: room or 1] if leave else _PIECE)

    def make_room(self) -> None:
        self._filler.unlink(missing_ok=True)

    def make_read_only(self) -> None:
        _mount("-o", "remount,ro", str(self.folder))

    def make_writable(self) -> None:
        _mount("-o", "remount,rw", str(self.folder))

    @property
    def shelf(self) -> Path:
        """Where the disk is while it is away."""
        return self.folder.with_name(f"{self.folder.name}.shelf")

    def take_away(self) -> None:
        """After: the folder is what it was before the disk was mounted."""
        self.shelf.mkdir()
        _mount("--move", str(self.folder), str(self.shelf))

    def bring_back(self) -> None:
        _mount("--move", str(self.shelf), str(self.folder))
        self.shelf.rmdir()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount a disk at a folder, which is made if it is missing. Before: `missing()` is None."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={megabytes}m,mode={'755' if megabytes > 100 else '700'}"
    _mount("-t", "tmpfs", "-o", options, "tmpfs", str(folder))
    disk = SmallDisk(folder)
    try:
        yield disk
    finally:
        if disk.shelf.exists():
            disk.bring_back()
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)
