"""The names of a log's directories and files.

Invariant: a name that is not of the form given here is never taken for a log or a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strandline.core.types import Offset
from strandline.storage.checkpoint_files import LogName
from strandline.storage.disk import StorageFailed, remove, replace_file, sync_directory

SEGMENT_SUFFIXES = (".index", ".timeindex", ".log")
"""The files of one segment, the log last: it is what makes the others be found."""
DELETED_SUFFIX = ".deleted"
MAX_NAME_BYTES = 255
"""Of one name in the file systems that matter."""

_BASE_OFFSET_DIGITS = 20


def log_name(directory: Path) -> LogName:
    """Topic and partition of a log directory's name.

    Raises:
        ValueError: the name is not ``<topic>-<partition>``.
    """
    topic, dash, partition = directory.name.rpartition("-")
    if not (topic and dash and partition.isascii() and partition.isdigit()):
        raise ValueError(f"{directory.name!r} is not of the form <topic>-<partition>")
    return topic, int(partition)


def name_with_suffix(name: str, suffix: str) -> str:
    """A directory's name with a suffix, shortened in front of it where the file system demands it."""
    return name[: MAX_NAME_BYTES - len(suffix)] + suffix


def segment_path(directory: Path, base_offset: Offset) -> Path:
    """The segment file that begins at ``base_offset``."""
    return directory / f"{base_offset:0{_BASE_OFFSET_DIGITS}}.log"


def segment_base(path: Path) -> Offset:
    """The base offset that a segment's file name gives."""
    return Offset(int(path.stem))


def segment_paths(directory: Path) -> list[Path]:
    """The segment files of a log in order of base offset."""
    return sorted(path for path in directory.glob("*.log") if has_offset_name(path))


def has_offset_name(path: Path) -> bool:
    """Whether a file is named by an offset, as segments and snapshots are."""
    return len(path.stem) == _BASE_OFFSET_DIGITS and path.stem.isascii() and path.stem.isdigit()


def remove_segment_files(path: Path) -> None:
    """Remove a segment's log and indexes.

    Raises:
        StorageFailed: the disk failed.
    """
    for suffix in SEGMENT_SUFFIXES:
        remove(path.with_suffix(suffix))


def make_directory(directory: Path, *, durable: bool = True) -> bool:
    """Make a log's directory unless it is there; returns whether it was made. ``durable``: with its entry.

    Raises:
        StorageFailed: the disk failed.
    """
    try:
        directory.mkdir(parents=True, exist_ok=False)
    except FileExistsError:
        return False
    except OSError as error:
        raise StorageFailed("mkdir", directory, error) from error
    if durable:
        sync_directory(directory.parent)
    return True


def rename_directory(directory: Path, target: Path) -> None:
    """Rename a log's directory, durably.

    Raises:
        StorageFailed: the disk failed.
    """
    _rename(directory, target)
    sync_directory(target.parent)


def retire_directories(directories: Sequence[Path]) -> list[Path]:
    """Rename logs of one data directory to what is never taken for a log, durably and with one sync.

    The directories given back are for `remove_tree`, which a worker thread may call: it takes 0.2 s per GiB. After a
    crash the next start removes them.

    Raises:
        StorageFailed: the disk failed.
    """
    retired = [path.with_name(name_with_suffix(path.name, DELETED_SUFFIX)) for path in directories]
    for directory, target in zip(directories, retired, strict=True):
        if target.exists():
            remove_tree(target)
        _rename(directory, target)
    for parent in {path.parent for path in retired}:
        sync_directory(parent)
    # Two long names may have been shortened to one.
    return list(dict.fromkeys(retired))


def _rename(directory: Path, target: Path) -> None:
    try:
        directory.rename(target)
    except OSError as error:
        raise StorageFailed("rename", directory, error) from error


def remove_tree(directory: Path) -> None:
    """Remove a log's directory and its files (it has no folders).

    Raises:
        StorageFailed: the disk failed.
    """
    for path in directory.iterdir():
        remove(path)
    try:
        directory.rmdir()
    except OSError as error:
        raise StorageFailed("rmdir", directory, error) from error


# ---- incarnations
# The processes that ran from a data directory, kept so that an older copy of it is recognized (M67).
#
# Invariant: a process is written down durably before the controller can learn of it. The controller's record therefore
# names a process that this directory remembers, unless the directory went back to a time before that process.

NAME = "incarnations"
_HEAD = "version=1"
_MOST = 1_000
"""Starts that are remembered since the last confirmed one; the oldest, which is the confirmed one, always stays."""


def begin(directory: Path, incarnation_id: str) -> tuple[str, ...]:
    """Write a new process down, durably, and return all that are remembered, it included.

    An empty tuple if there was no such file: the directory is new, or of a release that kept none. A damaged file
    remembers no other process, which makes the directory unclean when it registers.

    Raises:
        StorageFailed: the disk failed.
    """
    known = _read(directory / NAME)
    remembered = [*(known or ()), incarnation_id]
    if len(remembered) > _MOST:
        remembered = [remembered[0], *remembered[1 - _MOST :]]
    _write(directory, remembered)
    return () if known is None else tuple(remembered)


def confirm(directory: Path, incarnation_id: str) -> None:
    """The controller registered this process: no earlier process needs to be remembered.

    Raises:
        StorageFailed: the disk failed.
    """
    _write(directory, [incarnation_id])


def _read(path: Path) -> list[str] | None:
    try:
        head, *lines = path.read_text(errors="replace").splitlines() or [""]
    except FileNotFoundError:
        return None
    # The count guards against a file that was cut: a shorter list must not pass for the whole one.
    if head != f"{_HEAD} count={len(lines)}":
        return []
    return lines


def _write(directory: Path, ids: list[str]) -> None:
    replace_file(directory / NAME, "\n".join([f"{_HEAD} count={len(ids)}", *ids, ""]).encode())
