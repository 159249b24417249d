"""The names of a log's directories and files.

Invariant: a name that does not have the form defined here is never used as a log or a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from queue import Queue
from threading import Thread

from strandline.core.types import Offset
from strandline.storage.checkpoint_files import LogName
from strandline.storage.disk import StorageFailed, remove, rename_file, replace_file, sync_directory

SEGMENT_SUFFIXES = (".index", ".timeindex", ".log")
"""The files of one segment; the log is last, because the others are found by it."""
DELETED_SUFFIX = ".deleted"
MAX_NAME_BYTES = 255
"""The longest name in the usual file systems."""

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
    """A directory's name with a suffix; the name is shortened if it would be too long for the file system."""
    return name[: MAX_NAME_BYTES - len(suffix)] + suffix


def segment_path(directory: Path, base_offset: Offset) -> Path:
    """The segment file that begins at ``base_offset``."""
    return directory / f"{base_offset:0{_BASE_OFFSET_DIGITS}}.log"


def segment_base(path: Path) -> Offset:
    """The base offset in a segment's file name."""
    return Offset(int(path.stem))


def segment_paths(directory: Path) -> list[Path]:
    """The segment files of a log in order of base offset."""
    return sorted(path for path in directory.glob("*.log") if has_offset_name(path))


def has_offset_name(path: Path) -> bool:
    """Whether a file's name is an offset, as for segments and snapshots."""
    return len(path.stem) == _BASE_OFFSET_DIGITS and path.stem.isascii() and path.stem.isdigit()


def remove_segment_files(path: Path) -> None:
    """Remove a segment's log and indexes. Raises `StorageFailed`."""
    for suffix in SEGMENT_SUFFIXES:
        remove(path.with_suffix(suffix))


def make_directory(directory: Path, *, durable: bool = True) -> bool:
    """Create a log's directory unless it exists; return whether it was created. ``durable``: sync its entry.

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
    """Rename a log's directory, durably. Raises `StorageFailed`."""
    rename_file(directory, target)
    sync_directory(target.parent)


def retire_directories(directories: Sequence[Path]) -> list[Path]:
    """Rename logs so that they are no longer recognized as logs, durably and with one sync.

    The returned directories are for `remove_in_thread`. Raises `StorageFailed`.
    """
    retired: list[Path] = []
    for directory in directories:
        # Others are left by a crash, by an earlier log of this name, or by a long name that was shortened to the same.
        names = (name_with_suffix(directory.name, f".{number}{DELETED_SUFFIX}") for number in count())
        retired.append(next(path for name in names if not (path := directory.with_name(name)).exists()))
        # One step: files removed one by one would after a crash leave a part that looks like a whole log.
        rename_file(directory, retired[-1])
    # Before a file is removed: under its old name a half removed log would be opened after a power failure.
    for parent in {path.parent for path in retired}:
        sync_directory(parent)
    return retired


def remove_tree(directory: Path) -> None:
    """Remove a log's directory and its files (it has no folders). Raises `StorageFailed`."""
    try:
        for path in directory.iterdir():
            remove(path)
        directory.rmdir()
    except FileNotFoundError:
        # An operator who needs the space removes it at the same time.
        return
    except OSError as error:
        raise StorageFailed("rmdir", directory, error) from error


def remove_in_thread(path: Path) -> None:
    """Remove a segment or a log that has a name with `DELETED_SUFFIX` by now: to free its blocks takes 0.2 s per GiB.

    What a crash or an error leaves, the next start removes.
    """
    _removals().put(path)


@cache
def _removals() -> Queue[Path]:
    waiting: Queue[Path] = Queue()
    Thread(target=_remove_each, args=(waiting,), name="removals", daemon=True).start()
    return waiting


def _remove_each(waiting: Queue[Path]) -> None:
    while True:
        path = waiting.get()
        with suppress(OSError, StorageFailed):
            remove_tree(path) if path.is_dir() else remove(path)
        waiting.task_done()


# ---- incarnations
# The processes that have used a data directory, recorded so that an older copy of it is recognized (M67).
#
# Invariant: a process is recorded durably before the controller can learn of it. So the process in the controller's
# record is in this directory's list, unless the directory was restored to a time before that process.

NAME = "incarnations"
_HEAD = "version=1"
_MOST = 1_000
"""Most processes in the list; the oldest, which is the last confirmed one, always stays."""


def begin(directory: Path, incarnation_id: str) -> tuple[str, ...]:
    """Record a new process durably, and return all recorded processes including it.

    The result is empty if there was no such file: the directory is new, or of a release without the file. A damaged
    file counts as a list of no other processes, which makes the directory unclean when it registers.

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
    """Forget earlier processes, because the controller has registered this one. Raises `StorageFailed`."""
    _write(directory, [incarnation_id])


def _read(path: Path) -> list[str] | None:
    try:
        head, *lines = path.read_text(errors="replace").splitlines() or [""]
    except FileNotFoundError:
        return None
    # The count protects against a truncated file, whose shorter list must not pass as complete.
    if head != f"{_HEAD} count={len(lines)}":
        return []
    return lines


def _write(directory: Path, ids: list[str]) -> None:
    replace_file(directory / NAME, "\n".join([f"{_HEAD} count={len(ids)}", *ids, ""]).encode())
