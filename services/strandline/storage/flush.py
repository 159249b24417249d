"""Decides what one sync must cover: everything written, created and removed before it was issued (M55).

Invariant: a `FlushToken` holds its own descriptors, so truncation, roll and deletion on the loop thread
never close or swap a file under the worker that syncs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from strandline.core.types import Offset
from strandline.storage.disk import sync_data, sync_directory
from strandline.storage.segment import Segment

_MAX_REMOVED = 8


@dataclass(slots=True)
class FlushToken:
    """One issued commit. `sync` runs in a worker thread, once; everything else stays on the loop thread."""

    leo_at_issue: Offset
    """What the commit covers, unless the log is cut below it meanwhile; that is the core's to reckon (M55)."""
    _files: list[tuple[int, Path]]
    _directory: Path | None
    _covers: dict[Segment, int]
    _entries: int
    _removed_fds: list[int]
    """Of removed segments: closing them frees their blocks, which takes 0.2 s per GiB."""
    done: bool = field(default=False, init=False)

    @property
    def has_work(self) -> bool:
        """Whether anything needs a sync; if not, `sync` costs nothing and no thread is needed."""
        return bool(self._files or self._removed_fds) or self._directory is not None

    def sync(self) -> None:
        """Make everything durable that was written before the issue.

        Raises:
            StorageFailed: a sync failed; it must not be tried again.
        """
        try:
            for fd, path in self._files:
                sync_data(fd, path)
            if self._directory is not None:
                sync_directory(self._directory)
            self.done = True
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give the descriptors back without a sync."""
        files, self._files = self._files, []
        for fd, _ in files:
            os.close(fd)
        _close_all(self._removed_fds)


class UnsyncedFiles:
    """Which segments and directory entries of one log no finished sync covers."""

    __slots__ = ("_directory", "_entries", "_entries_synced", "_issued", "_removed_fds", "_segments")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segments: set[Segment] = set()
        # Counts created and removed entries; synced <= counted.
        self._entries = 0
        self._entries_synced = 0
        self._issued: list[FlushToken] = []
        # For the next token's worker to close; bounded, since under page-cache no token may come.
        self._removed_fds: list[int] = []

    def wrote(self, segment: Segment) -> None:
        """A segment has bytes that are not durable."""
        self._segments.add(segment)

    def removed(self, segment: Segment) -> None:
        """A segment is gone; its bytes need no sync, its missing entry does."""
        self._segments.discard(segment)
        self._entries += 1
        self._removed_fds.append(segment.detach())
        if len(self._removed_fds) > _MAX_REMOVED:
            os.close(self._removed_fds.pop(0))

    def created(self, segment: Segment) -> None:
        """A segment was made; its entry needs a sync."""
        self._segments.add(segment)
        self._entries += 1

    def issue(self, leo: Offset) -> FlushToken:
        """A token over everything that no finished one covers; one under way does not count as finished."""
        self._settle()
        files = [(os.dup(segment.fd), segment.path) for segment in self._segments]
        directory = self._directory if self._entries > self._entries_synced else None
        covers = {segment: segment.writes for segment in self._segments}
        removed_fds, self._removed_fds = self._removed_fds, []
        token = FlushToken(leo, files, directory, covers, self._entries, removed_fds)
        self._issued.append(token)
        return token

    def sync_now(self) -> None:
        """Make everything durable, on this thread.

        Raises:
            StorageFailed: the disk failed.
        """
        self.issue(Offset(0)).sync()
        self._settle()

    def close(self) -> None:
        """Give back the descriptors of removed segments."""
        _close_all(self._removed_fds)

    def _settle(self) -> None:
        for token in [token for token in self._issued if token.done]:
            self._issued.remove(token)
            self._entries_synced = max(self._entries_synced, token._entries)
            for segment, writes in token._covers.items():
                if segment.writes == writes:
                    self._segments.discard(segment)


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())
