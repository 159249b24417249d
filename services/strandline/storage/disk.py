"""The system calls that write and sync: all of this package's go through here.

Invariant: a failed write or sync raises `StorageFailed` and is never retried; after a failed fsync the kernel may have
dropped the dirty pages, so a second one that succeeds proves nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

Buffer = bytes | bytearray | memoryview
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
"""Errors of a system call when this process, or the machine, has no descriptor left."""
_IOV_MAX = 512
_CHUNK_BYTES = 1 << 20
_CACHE_MS = 1_000


class StorageFailed(Exception):
    """A read, write or sync failed. The process must end with its own exit code; nothing is retried."""

    def __init__(self, operation: str, path: Path, error: OSError) -> None:
        self.operation = operation
        self.path = path
        self.errno = error.errno
        remedy = "; raise its limit of open files (LimitNOFILE, ulimit -Hn)" if error.errno in NO_DESCRIPTOR else ""
        super().__init__(f"{operation} of {path} failed: {error.strerror or error}; the process stops{remedy}")


class StorageDamaged(Exception):
    """The bytes read are not the bytes that were written. The directory must be marked unclean (M58)."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        self.path = path
        self.position = position
        self.reason = reason
        super().__init__(f"{path} is damaged at byte {position}: {reason}; replicate it again from its peers")


def write_at(fd: int, path: Path, buffers: Sequence[Buffer], position: int) -> None:
    """Write all buffers one after the other at ``position``.

    Raises:
        StorageFailed: not everything could be written.
    """
    total = sum(map(len, buffers))
    try:
        if len(buffers) <= _IOV_MAX and os.pwritev(fd, buffers, position) == total:
            return
        # Rare: many batches at once, or a short write near a full disk.
        # After a short write all of it is written again: the bytes are equal, and the rest need not be found.
        rest = memoryview(b"".join(buffers))
        while rest:
            written = os.pwrite(fd, rest, position)
            rest, position = rest[written:], position + written
    except OSError as error:
        raise StorageFailed("write", path, error) from error


def write_again(fd: int, path: Path, position: int, end: int) -> None:
    """Read the bytes between two positions and write them again, so that the next sync really writes them.

    After a failed fsync the kernel marks pages as clean that never reached the disk; a later sync succeeds without
    writing them, and a power failure loses them (Rebello et al., ATC 2020). Raises `StorageFailed`.
    """
    while position < end:
        try:
            chunk = os.pread(fd, min(_CHUNK_BYTES, end - position), position)
        except OSError as error:
            raise StorageFailed("read", path, error) from error
        if not chunk:
            return
        write_at(fd, path, [chunk], position)
        position += len(chunk)


def truncate_file(fd: int, path: Path, size_bytes: int) -> None:
    """Cut a file. Raises `StorageFailed`."""
    try:
        os.ftruncate(fd, size_bytes)
    except OSError as error:
        raise StorageFailed("truncate", path, error) from error


def sync_data(fd: int, path: Path) -> None:
    """Make a file's bytes and size durable. Raises `StorageFailed`."""
    try:
        # It leaves out the times of the file, but not its size, without which recovery would not find the bytes.
        os.fdatasync(fd)
    except OSError as error:
        raise StorageFailed("fsync", path, error) from error


def sync_directory(path: Path) -> None:
    """Make created, renamed and removed entries of a directory durable. Raises `StorageFailed`."""
    try:
        # The sync of a file does not cover its name, so a power failure could undo a creation, rename or removal.
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise StorageFailed("fsync", path, error) from error


def remove(path: Path) -> None:
    """Unlink a file that may be gone already.

    Raises:
        StorageFailed: the directory cannot be written.
    """
    try:
        # A removal that a crash interrupted is repeated, so the file may be gone.
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageFailed("unlink", path, error) from error


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace a whole file so that readers, even after a crash, see the old content or the new, never a mix.

    Raises:
        StorageFailed: at any step; the old file is then still in place.
    """
    temporary = path.with_name(path.name + ".tmp")
    # The content before the name: otherwise a power failure could leave the name with an empty file.
    write_file(temporary, content, durable=durable)
    rename_file(temporary, path)
    if durable:
        sync_directory(path.parent)


def write_file(path: Path, content: bytes, *, durable: bool) -> None:
    """Write a file that is renamed before it is read. ``durable``: make its content durable, but not its name.

    Raises:
        StorageFailed: the disk failed.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageFailed("open", path, error) from error
    try:
        write_at(fd, path, [content], 0)
        if durable:
            sync_data(fd, path)
    finally:
        os.close(fd)


def rename_file(path: Path, target: Path) -> None:
    """Rename a file, and replace one that has the name already. Raises `StorageFailed`."""
    try:
        os.replace(path, target)
    except OSError as error:
        raise StorageFailed("rename", path, error) from error


def free_bytes(path: Path) -> int:
    """Bytes that an unprivileged writer may still use on the file system of ``path``."""
    status = os.statvfs(path)
    # Not f_bfree, which counts blocks that only root may use.
    return status.f_bavail * status.f_frsize


@dataclass(slots=True)
class LowSpaceMark:
    """Decides whether produce must be refused to avoid ENOSPC; statvfs is called at most once a second.

    After a refusal, an eighth more than the mark must be free before produce is accepted again: otherwise leaders would
    move at every deletion of a segment.
    """

    path: Path
    low_mark_bytes: int
    _asked_ms: int | None = field(default=None, init=False)
    _low: str | None = field(default=None, init=False)

    def low_space(self, now_ms: int) -> str | None:
        """A message about the free space if it is too little, else None; at most 1 s old at ``now_ms`` (monotonic)."""
        if self._asked_ms is None or now_ms - self._asked_ms >= _CACHE_MS:
            free, mark = free_bytes(self.path), self.low_mark_bytes
            needed = mark if self._low is None else mark + mark // 8
            said = f"{free:,} bytes are free, and {needed:,} are needed (low_space_bytes {mark:,})"
            self._low = said if free < needed else None
            self._asked_ms = now_ms
        return self._low
