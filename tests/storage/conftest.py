"""Builders for logs: a batch, a log in a fresh data directory, and appends to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import log_builder
import pytest
from log_builder import Builder

from strandline.core.types import Offset
from strandline.storage.log import Log

# ---- power_cut
# What survives a loss of power: what each file held, and each directory listed, at its last sync.


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


@pytest.fixture
def power(monkeypatch) -> Iterator[PowerCut]:
    """Redirects every sync of the process to the model instead of the disk."""
    cut = PowerCut()
    monkeypatch.setattr(os, "fdatasync", cut.sync)
    monkeypatch.setattr(os, "fsync", cut.sync)
    monkeypatch.setattr(os, "open", cut.open)
    # The power fails before the thread comes to what was removed.
    for user in ("layout", "segment"):
        monkeypatch.setattr(f"strandline.storage.{user}.remove_in_thread", lambda path: None)
    yield cut
    cut.forget()


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Builder]:
    """A builder whose logs are closed at the end."""
    builder = Builder(tmp_path)
    yield builder
    builder.close()


@pytest.fixture
def log(build: Builder) -> Log:
    """A log without records."""
    return build.log()


@pytest.fixture
def fill() -> Callable[..., Offset]:
    """Appends like a leader; record values differ by offset, timestamps grow with it."""
    return log_builder.fill


@pytest.fixture
def content() -> Callable[[Log], list[bytes]]:
    """Reads a whole log, as a list of batches."""
    return log_builder.read_all
