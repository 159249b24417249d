"""The file in which a controller keeps how far its store had come (C40)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from strandline.controller.store_health import FILE_NAME, SeenPosition
from strandline.core.reigns.events import Head
from strandline.metadata.store import StoreFailed, StoreWentBack

HEAD = Head("reign", 7, "digest", 9)


def test_what_was_noted_is_known_to_the_next_process(tmp_path: Path) -> None:
    """An etcd that has less than what was noted is one that was restored."""
    SeenPosition(tmp_path).note(5, 9, HEAD)
    later = SeenPosition(tmp_path)

    assert later.revision_of(5) == 9
    later.check("c", 5, 9, HEAD)
    with pytest.raises(StoreWentBack, match="etcd is at revision 8"):
        later.check("c", 5, 8, HEAD)


def test_what_was_noted_is_never_taken_back(tmp_path: Path) -> None:
    """A reading that lagged, of a member that was behind, lowers neither the revision nor the offset; of another etcd
    only the offset is compared, for its revisions are its own."""
    seen = SeenPosition(tmp_path)
    seen.note(5, 9, HEAD)
    seen.note(5, 8, Head("reign", 6, "digest", 8))
    lagged = (seen.revision_of(5), SeenPosition(tmp_path).position.offset)
    seen.note(6, 2, Head("reign", 6, "digest", 2))

    assert lagged == (9, 7)
    assert (SeenPosition(tmp_path).revision_of(6), SeenPosition(tmp_path).position.offset) == (2, 7)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is a failed store, which ends the controller with exit code 10, and not an unknown error."""
    seen = SeenPosition(tmp_path)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFailed, match=f"{FILE_NAME} cannot be written: No space left on device; look at the disk"):
        seen.note(5, 9, HEAD)
    monkeypatch.undo()

    assert SeenPosition(tmp_path).revision_of(5) == 0


def test_the_replaced_file_is_in_its_directory_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is durable like the content: the directory is synced after the file took its place."""
    done: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(fd: int) -> None:
        done.append("directory" if os.path.isdir(f"/proc/self/fd/{fd}") else "file")
        real_fsync(fd)

    def replace(self: Path, target: Path) -> Path:
        done.append("rename")
        return real_replace(self, target)

    seen = SeenPosition(tmp_path)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    seen.note(5, 9, HEAD)

    assert done == ["file", "rename", "directory"]
