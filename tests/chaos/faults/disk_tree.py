"""What a loss of power leaves of a file system's names: entries whose folder was synced since they changed.

Invariant: a name is durable only by a sync of its folder, the strictest reading of POSIX; a file's bytes and its name
are separate (`disk_layers` has the bytes).
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path, PurePosixPath

from faults.disk_layers import StoredFile

Entries = dict[str, "StoredFile | Folder"]
_numbers = count(1 << 40)


@dataclass(slots=True, eq=False)
class Folder:
    """One folder: its names now, its names on the disk, and the states between them, oldest first."""

    entries: Entries = field(default_factory=dict)
    durable: Entries = field(default_factory=dict)
    between: list[Entries] = field(default_factory=list)
    mode: int = 0o755
    changed_ns: int = field(default_factory=time.time_ns)
    number: int = field(default_factory=lambda: next(_numbers))

    def change(self, changed: Mapping[str, StoredFile | Folder | None]) -> None:
        """Adds names and removes names (None), as one step that happens whole or not at all."""
        self.between.append(dict(self.entries))
        self.entries = {name: node for name, node in {**self.entries, **changed}.items() if node is not None}
        self.changed_ns = time.time_ns()

    def issue_sync(self) -> tuple[Entries, int]:
        """The state that a sync which begins now will cover."""
        return dict(self.entries), len(self.between)

    def finish_sync(self, issued: tuple[Entries, int]) -> None:
        """Marks the names as of the issue durable."""
        self.durable, steps = issued
        del self.between[:steps]

    def undo(self, draw: random.Random | None = None) -> int:
        """Drops steps that no sync covered; with ``draw`` the first few may survive. Returns steps dropped."""
        steps = len(self.between)
        kept = draw.randint(0, steps) if draw and steps else 0
        if kept < steps:
            self.entries = self.between[kept]
        self.durable, self.between = dict(self.entries), []
        return steps - kept


@dataclass(slots=True)
class PowerCut:
    """What one loss of power removed from one disk: bytes per file, and changes of names."""

    bytes_by_path: dict[str, int]
    names: int = 0

    @property
    def record_bytes(self) -> int:
        """Bytes of segments alone."""
        return sum(lost for path, lost in self.bytes_by_path.items() if path.endswith(".log"))

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes_by_path.values())


class Tree:
    """All names of one file system; paths are absolute within it."""

    def __init__(self, backing: Path) -> None:
        self.backing = backing
        self.root = Folder()

    def find(self, path: str) -> StoredFile | Folder:
        """The entry at a path.

        Raises:
            OSError: ENOENT or ENOTDIR.
        """
        node: StoredFile | Folder = self.root
        for part in PurePosixPath(path).parts[1:]:
            if not isinstance(node, Folder):
                raise failure(errno.ENOTDIR, path)
            found = node.entries.get(part)
            if found is None:
                raise failure(errno.ENOENT, path)
            node = found
        return node

    def folder(self, path: str) -> Folder:
        """The folder at a path.

        Raises:
            OSError: ENOENT or ENOTDIR.
        """
        node = self.find(path)
        if not isinstance(node, Folder):
            raise failure(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[Folder, str]:
        """The folder that holds a path's last name, and that name."""
        pure = PurePosixPath(path)
        return self.folder(str(pure.parent)), pure.name

    def create(self, path: str, mode: int) -> StoredFile:
        folder, name = self.parent(path)
        made = StoredFile(self.backing, mode & 0o7777)
        folder.change({name: made})
        return made

    def make_folder(self, path: str, mode: int) -> None:
        folder, name = self.parent(path)
        if name in folder.entries:
            raise failure(errno.EEXIST, path)
        folder.change({name: Folder(mode=mode & 0o7777)})

    def remove(self, path: str) -> None:
        """Removes a name; an open file stays readable.

        Raises:
            OSError: ENOENT, or ENOTEMPTY for a folder that holds something.
        """
        node = self.find(path)
        if isinstance(node, Folder) and node.entries:
            raise failure(errno.ENOTEMPTY, path)
        folder, name = self.parent(path)
        folder.change({name: None})

    def rename(self, old: str, new: str) -> None:
        """Renames within one folder, in one step.

        Raises:
            OSError: ENOENT; EXDEV for another folder, of which two independent syncs could make half durable.
        """
        node = self.find(old)
        folder, name = self.parent(old)
        other, new_name = self.parent(new)
        if other is not folder:
            raise failure(errno.EXDEV, old)
        if name != new_name:
            folder.change({name: None, new_name: node})

    def files(self) -> Iterator[tuple[str, StoredFile]]:
        waiting: list[tuple[str, Folder]] = [("", self.root)]
        while waiting:
            path, folder = waiting.pop()
            for name, node in folder.entries.items():
                if isinstance(node, Folder):
                    waiting.append((f"{path}/{name}", node))
                else:
                    yield f"{path}/{name}", node

    def used_bytes(self) -> int:
        return sum(file.size for _, file in self.files())

    def lose_power(self, draw: random.Random | None = None) -> PowerCut:
        """Drops all bytes and names that no sync covered (with ``draw``: a drawn part of them)."""
        dropped = PowerCut({path: lost for path, file in self.files() if (lost := file.undo(draw))})
        waiting = [self.root]
        while waiting:
            folder = waiting.pop()
            dropped.names += folder.undo(draw)
            for node in folder.entries.values():
                if isinstance(node, Folder):
                    waiting.append(node)
                else:
                    # A name that was restored: its bytes lose their unsynced part too.
                    node.undo(draw)
        return dropped


def failure(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)
