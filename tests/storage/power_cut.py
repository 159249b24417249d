"""What survives a loss of power: what each file held, and each directory listed, at its last sync."""

from __future__ import annotations

import os
from pathlib import Path


class PowerCut:
    """Records what each file held and each directory listed at its last sync: what survives a power loss."""

    def __init__(self) -> None:
        self.files: dict[int, bytes] = {}
        self.folders: dict[int, dict[str, int]] = {}
        self._real_open = os.open
        self._kept: list[int] = []

    def sync(self, fd: int) -> None:
        """Replaces fsync and fdatasync."""
        status = os.fstat(fd)
        if status.st_ino not in self.folders and status.st_ino not in self.files:
            # What has survived is known by its inode, so none may get it after this one: also not what a start on the
            # survivors synced and the test removed.
            self._kept.append(os.dup(fd))
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            self.folders[status.st_ino] = {entry.name: entry.inode() for entry in os.scandir(f"/proc/self/fd/{fd}")}
        else:
            self.files[status.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def open(self, path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Replaces open: keeps new files open, so that none gets the inode of a removed one."""
        fd = self._real_open(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT:
            self._kept.append(os.dup(fd))
        return fd

    def forget(self) -> None:
        """Release the files of one example."""
        for fd in self._kept:
            os.close(fd)
        self._kept.clear()
        self.files.clear()
        self.folders.clear()

    def restore(self, folder: Path, into: Path) -> None:
        """Write what survived of ``folder`` and its sub-folders to ``into``."""
        into.mkdir(parents=True)
        for name, inode in self.folders.get(folder.stat().st_ino, {}).items():
            if (folder / name).is_dir():
                self.restore(folder / name, into / name)
            else:
                (into / name).write_bytes(self.files.get(inode, b""))
