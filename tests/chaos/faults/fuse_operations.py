"""The operations of a faulty disk: combines names, bytes, rules, the quota and the power switch.

Invariant: from the moment the power is cut no operation is answered until it returns, and those that waited are then
rejected with EIO: their process must be dead by then, so that none acts on an answer the disk never gave.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

from faults.disk_layers import PAGE_BYTES, StoredFile
from faults.disk_rules import Rule
from faults.disk_tree import Folder, PowerCut, Tree, failure as error

_BLOCKS = 1 << 24
CACHED_S = 0.3
"""How long the kernel may believe sizes and names: without that it asks for them at every single read."""


class FaultyDisk:
    """The operations of one mount; every public lower-case name that libfuse knows is called by it."""

    use_ns = True
    flag_nopath = True
    flag_nullpath_ok = True

    def __init__(self, backing: Path) -> None:
        self.tree = Tree(backing)
        self.rules: list[Rule] = []
        self.quota_bytes: int | None = None
        self.counts: Counter[str] = Counter()
        self._open: dict[int, tuple[StoredFile, str]] = {}
        self._open_folders: dict[int, tuple[Folder, str]] = {}
        self._handles = count(1)
        self._lock = threading.RLock()
        self._power = threading.Condition(self._lock)
        self._is_cut = False
        self._cuts = 0
        self._cut_s = 0.0

    def cut_power(self, seed: int | None = None) -> PowerCut:
        """Cuts the power: unsynced bytes and names are dropped at once (with a seed: a drawn part survives)."""
        with self._power:
            self._is_cut, self._cuts, self._cut_s = True, self._cuts + 1, time.monotonic()
            self._power.notify_all()
            return self.tree.lose_power(None if seed is None else random.Random(seed))

    def restore_power(self) -> None:
        """Restores the power, after the kernel has dropped its caches; operations that waited are rejected."""
        time.sleep(max(0.0, self._cut_s + 2 * CACHED_S - time.monotonic()))
        with self._power:
            self._is_cut = False
            self._power.notify_all()

    def _pass(self, operation: str, path: str) -> None:
        """Waits for power, then applies the rules; the lock is held on entry and on return."""
        cuts = self._cuts
        self._check_power(cuts)
        delay_s, failure = 0.0, None
        for rule in [rule for rule in self.rules if rule.takes(operation, path)]:
            delay_s += rule.delay_ms / 1000
            failure = failure or rule.failure(path)
        if delay_s:
            self._power.wait_for(lambda: self._cuts != cuts, timeout=delay_s)
            self._check_power(cuts)
        if failure is not None:
            self.counts[f"{operation} failed"] += 1
            raise failure

    def _check_power(self, cuts: int) -> None:
        self._power.wait_for(lambda: not self._is_cut)
        if self._cuts != cuts:
            raise error(errno.EIO)

    def open(self, path: str, flags: int) -> int:
        with self._lock:
            self._check_power(self._cuts)
            return self._opened(self._file(path), path)

    def create(self, path: str, mode: int) -> int:
        with self._lock:
            self._pass("create", path)
            if self.quota_bytes is not None and self.tree.used_bytes() >= self.quota_bytes:
                raise error(errno.ENOSPC)
            return self._opened(self.tree.create(path, mode), path)

    def read(self, path: str | None, size: int, offset: int, handle: int) -> bytes:
        with self._lock:
            file, name = self._open[handle]
            self._pass("read", name)
            return file.read(size, offset)

    def write(self, path: str | None, data: bytes, offset: int, handle: int) -> int:
        with self._lock:
            file, name = self._open[handle]
            self._pass("write", name)
            if file.failed_syncs:
                self.counts["writes after a failed fsync"] += 1
            self.counts["bytes written"] += len(data)
            return file.write(data[: self._room(file, offset, len(data))], offset)

    def truncate(self, path: str | None, length: int, handle: int | None = None) -> None:
        with self._lock:
            file, name = self._open[handle] if handle in self._open else (self._file(path or "/"), path or "/")
            self._pass("truncate", name)
            file.truncate(length)

    def flush(self, path: str | None, handle: int) -> None:
        """Closing does not sync."""

    def release(self, path: str | None, handle: int) -> None:
        with self._lock:
            self._open.pop(handle, None)

    def fsync(self, path: str | None, datasync: int, handle: int) -> None:
        with self._lock:
            file, name = self._open[handle]
            if file.failed_syncs:
                self.counts["fsyncs after a failed fsync"] += 1
            issued = file.issue_sync()
            try:
                self._pass("fsync", name)
            except OSError:
                file.fail_sync(issued)
                raise
            file.finish_sync(issued)
            self.counts["fsyncs"] += 1

    def _opened(self, file: StoredFile, path: str) -> int:
        handle = next(self._handles)
        self._open[handle] = (file, path)
        return handle

    def _file(self, path: str) -> StoredFile:
        node = self.tree.find(path)
        if isinstance(node, Folder):
            raise error(errno.EISDIR)
        return node

    def _room(self, file: StoredFile, offset: int, wanted: int) -> int:
        """How many of ``wanted`` bytes fit; a full disk accepts a part first, like real ones."""
        if self.quota_bytes is None:
            return wanted
        growth = max(0, offset + wanted - file.size)
        short = max(0, self.tree.used_bytes() + growth - self.quota_bytes)
        if short >= wanted > 0:
            self.counts["write refused, disk full"] += 1
            raise error(errno.ENOSPC)
        return wanted - short

    def mkdir(self, path: str, mode: int) -> None:
        with self._lock:
            self._pass("create", path)
            self.tree.make_folder(path, mode)

    def rmdir(self, path: str) -> None:
        with self._lock:
            self._pass("remove", path)
            self.tree.remove(path)

    def unlink(self, path: str) -> None:
        with self._lock:
            self._pass("remove", path)
            self.tree.remove(path)

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        with self._lock:
            self._pass("rename", new)
            self.tree.rename(old, new)
            self._open = {handle: (file, _moved(name, old, new)) for handle, (file, name) in self._open.items()}

    def readdir(self, path: str | None, handle: int) -> list[str]:
        with self._lock:
            self._check_power(self._cuts)
            return [".", "..", *self._open_folders[handle][0].entries]

    def opendir(self, path: str) -> int:
        with self._lock:
            self._check_power(self._cuts)
            handle = next(self._handles)
            self._open_folders[handle] = (self.tree.folder(path), path.rstrip("/") + "/")
            return handle

    def releasedir(self, path: str | None, handle: int) -> None:
        with self._lock:
            self._open_folders.pop(handle, None)

    def fsyncdir(self, path: str | None, datasync: int, handle: int) -> None:
        with self._lock:
            folder, name = self._open_folders[handle]
            issued = folder.issue_sync()
            self._pass("fsync", name)
            folder.finish_sync(issued)
            self.counts["folder fsyncs"] += 1

    def getattr(self, path: str | None, handle: int | None = None) -> dict[str, Any]:
        with self._lock:
            self._check_power(self._cuts)
            node: StoredFile | Folder
            if handle in self._open_folders:
                node = self._open_folders[handle][0]
            else:
                node = self._open[handle][0] if handle in self._open else self.tree.find(path or "/")
            kind, size = (stat.S_IFDIR, 0) if isinstance(node, Folder) else (stat.S_IFREG, node.size)
            return {
                "st_mode": kind | node.mode,
                "st_ino": node.number,
                "st_size": size,
                "st_blocks": -(-size // 512),
                "st_nlink": 1,
                "st_uid": os.getuid(),
                "st_gid": os.getgid(),
                "st_mtime": node.changed_ns,
                "st_ctime": node.changed_ns,
                "st_atime": node.changed_ns,
            }

    def chmod(self, path: str, mode: int) -> None:
        with self._lock:
            self.tree.find(path).mode = mode & 0o7777

    def chown(self, path: str, uid: int, gid: int) -> None:
        """Everything belongs to the user who mounted it."""

    def utimens(self, path: str | None, times: tuple[int, int] | None = None) -> None:
        with self._lock:
            self.tree.find(path or "/").changed_ns = times[1] if times else time.time_ns()

    def statfs(self, path: str) -> dict[str, int]:
        with self._lock:
            self._check_power(self._cuts)
            used = -(-self.tree.used_bytes() // PAGE_BYTES)
            total = _BLOCKS if self.quota_bytes is None else self.quota_bytes // PAGE_BYTES
            free = max(0, total - used)
            return {
                "f_bsize": PAGE_BYTES,
                "f_frsize": PAGE_BYTES,
                "f_blocks": total,
                "f_bfree": free,
                "f_bavail": free,
                "f_files": 1 << 20,
                "f_ffree": 1 << 20,
                "f_namemax": 255,
            }


def _moved(name: str, old: str, new: str) -> str:
    if name == old:
        return new
    return new + name[len(old) :] if name.startswith(f"{old}/") else name
