"""The open segment files: those used last, so that the number of descriptors depends on use, not on what is stored.

Invariants: a descriptor is closed only when nothing reads through it any more, and a file with unsynced bytes is synced
before it is closed, because the kernel reports a write-back error only to descriptors that are open then.
"""

from __future__ import annotations

import os
import resource
import weakref
from collections import OrderedDict
from pathlib import Path

from strandline.storage.disk import NO_DESCRIPTOR, StorageFailed, sync_data

_MOST = 10_000
_FLAGS = os.O_RDWR | os.O_CLOEXEC


class OpenFile:
    """One descriptor; it is closed when the last reference to this object is gone."""

    __slots__ = ("__weakref__", "fd", "has_unsynced", "path")

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path
        self.has_unsynced = False
        """Whether bytes were written that no finished sync covers; used only if durability depends on syncs."""
        # Not `__del__`: while that runs, weak references still give other threads the object, with a descriptor that is
        # already closed, or belongs to another file.
        weakref.finalize(self, os.close, fd).atexit = False

    def read(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file. Raises `StorageFailed`."""
        try:
            return os.pread(self.fd, size, position)
        except OSError as error:
            raise StorageFailed("read", self.path, error) from error


class OpenFiles:
    """The open segment files of one data directory: at most half the process's limit, because the other half is for
    connections and the small files."""

    def __init__(self, at_most: int | None = None, *, syncs: bool = True) -> None:
        """``syncs``: whether durability depends on syncs (``durability=fsync``)."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._at_most = at_most or max(1, min(_MOST, soft // 2 if soft > 0 else _MOST))
        self.syncs = syncs
        self._used: OrderedDict[OpenFile, None] = OrderedDict()

    def open(self, path: Path, flags: int = 0) -> OpenFile:
        """Open a file, and close the least recently used one if there are too many.

        Raises:
            StorageFailed: the file cannot be opened, or the one to be closed cannot be synced.
        """
        while True:
            try:
                file = OpenFile(os.open(path, _FLAGS | flags, 0o644), path)
            except OSError as error:
                # Connections may have used up the other half of the limit; then one of our files makes room.
                if error.errno not in NO_DESCRIPTOR or not self._close_oldest():
                    raise StorageFailed("open", path, error) from error
            else:
                self.use(file)
                return file

    def use(self, file: OpenFile) -> None:
        """Mark a file as the most recently used one.

        Raises:
            StorageFailed: another one had to be synced, and that failed.
        """
        # Threads that open logs at the start run this concurrently; each of these steps is atomic.
        self._used.pop(file, None)
        self._used[file] = None
        while len(self._used) > self._at_most and self._close_oldest():
            pass

    def forget(self, file: OpenFile) -> None:
        """Close a file as soon as its last reader is done."""
        self._used.pop(file, None)

    def _close_oldest(self) -> bool:
        try:
            oldest, _ = self._used.popitem(last=False)
        except KeyError:
            return False
        if oldest.has_unsynced:
            sync_data(oldest.fd, oldest.path)
            oldest.has_unsynced = False
        return True


class FileOf:
    """The file of one segment, opened when used; it may be closed in between."""

    __slots__ = ("_files", "_now", "path")

    def __init__(self, files: OpenFiles, path: Path, flags: int = 0) -> None:
        """Open the file.

        Raises:
            StorageFailed: it cannot be opened.
        """
        self.path = path
        self._files = files
        self._now: weakref.ref[OpenFile] = weakref.ref(files.open(path, flags))

    def __call__(self) -> OpenFile:
        """The open file, which stays open for as long as the caller holds it.

        Raises:
            StorageFailed: it cannot be opened again.
        """
        file = self._now()
        if file is None:
            file = self._files.open(self.path)
            self._now = weakref.ref(file)
        else:
            self._files.use(file)
        return file

    def written(self, file: OpenFile) -> None:
        """Note that bytes were written, which the next sync must cover."""
        file.has_unsynced = self._files.syncs

    def synced(self) -> None:
        """Note that a finished sync covers everything written."""
        if (file := self._now()) is not None:
            file.has_unsynced = False

    def sync_now(self) -> None:
        """Make everything written so far durable. Any thread may call this, even if the file is gone.

        A file that was closed meanwhile was synced then, but it is opened and synced here too: it may be new and empty.

        Raises:
            StorageFailed: the disk failed.
        """
        file = self._now()
        if file is not None:
            sync_data(file.fd, self.path)
            return
        try:
            fd = os.open(self.path, _FLAGS)
        except FileNotFoundError:
            # A removed segment has nothing to sync; its removal is covered by the sync of the directory.
            return
        except OSError as error:
            raise StorageFailed("open", self.path, error) from error
        file = OpenFile(fd, self.path)
        sync_data(file.fd, self.path)

    def close(self) -> None:
        """Give the file up; it is closed when its last user drops it."""
        if (file := self._now()) is not None:
            self._files.forget(file)
