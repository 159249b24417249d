"""Writes the journal's content to the checkpoint files, in a thread, one file after the other.

Invariant: everything written was already durable in the journal, and a file of a log that is deleted or set aside
meanwhile is not written. The loop thread waits here at most for a rename, never for a sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock, Thread

from strandline.core.types import EpochEntry, Offset
from strandline.storage.checkpoint_files import (
    EPOCHS_NAME,
    METADATA_NAME,
    LogName,
    epochs_content,
    topic_id_content,
    write_offsets,
)
from strandline.storage.disk import StorageFailed, rename_file, replace_file, sync_directory, write_file

SNAPSHOT_NAME = "metadata.snapshot"
_TEMPORARY_SUFFIX = ".completing.tmp"


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files to write next to one log; None: leave the file as it is."""

    topic_id: str | None = None
    epochs: tuple[EpochEntry, ...] | None = None


@dataclass(slots=True)
class Completion:
    """One round: everything that changed up to the frame ``sequence`` of the journal."""

    directory: Path
    sequence: int
    offsets: Mapping[Path, Mapping[LogName, Offset]]
    """The new content of the files of offsets."""
    metadata: bytes | None
    logs: Mapping[LogName, LogFiles]
    error: BaseException | None = None
    is_complete: bool = False
    _gone: set[LogName] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)
    _stopped: bool = False
    _thread: Thread | None = None

    def start(self) -> None:
        """Begin, in a separate thread."""
        # A daemon: whatever it has not written when the process ends is still in the journal.
        self._thread = Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended, for whatever reason."""
        return self._thread is not None and not self._thread.is_alive()

    def leave_out(self, name: LogName) -> None:
        """Write nothing more to the folder of this log, because it is about to be renamed."""
        with self._lock:
            self._gone.add(name)

    def wrote_all_of(self, name: LogName) -> bool:
        """Whether nothing of this log must be written again: all is written, or the log is gone."""
        with self._lock:
            return self.is_complete or name in self._gone

    def stop(self) -> None:
        """End after the file that is being written."""
        self._stopped = True
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.write(durable=True)
        except BaseException as error:  # noqa: BLE001  # the loop thread raises it
            self.error = error

    def write(self, *, durable: bool) -> None:
        """Write all files. ``durable`` False leaves the syncs out: the journal still holds everything.

        Raises:
            StorageFailed: the disk failed.
        """
        for write in self._writes(durable=durable):
            if self._stopped:
                return
            write()
        # Files without a sync hold nothing for good, so the journal must keep its frames.
        self.is_complete = durable

    def _writes(self, *, durable: bool) -> Iterator[Callable[[], None]]:
        for path, offsets in self.offsets.items():
            yield partial(write_offsets, path, offsets, durable=durable)
        if self.metadata is not None:
            yield partial(replace_file, self.directory / SNAPSHOT_NAME, self.metadata, durable=durable)
        for name, files in self.logs.items():
            yield partial(self._write_log, name, files, durable=durable)

    def _write_log(self, name: LogName, files: LogFiles, *, durable: bool) -> None:
        folder = self.directory / f"{name[0]}-{name[1]}"
        if files.topic_id is not None:
            self._place(name, folder / METADATA_NAME, topic_id_content(files.topic_id), durable=durable)
        if files.epochs is not None:
            self._place(name, folder / EPOCHS_NAME, epochs_content(files.epochs), durable=durable)
        if durable and not self._is_gone(name, folder):
            try:
                sync_directory(folder)
            except StorageFailed:
                # If the log was renamed or removed meanwhile, the disk has not failed.
                if not self._is_gone(name, folder):
                    raise

    def _place(self, name: LogName, path: Path, content: bytes, *, durable: bool) -> None:
        """Replace a file of a log, unless the log is gone."""
        # A different name from the loop thread's, which may create a new log in this place meanwhile.
        temporary = path.with_name(path.name + _TEMPORARY_SUFFIX)
        if self._is_gone(name, path.parent):
            return
        try:
            write_file(temporary, content, durable=durable)
        except StorageFailed:
            if not self._is_gone(name, path.parent):
                raise
            return
        with self._lock:
            # Asked again: during the write the log may have gone, and its folder be another log's by now.
            if name not in self._gone and path.parent.is_dir():
                rename_file(temporary, path)

    def _is_gone(self, name: LogName, folder: Path) -> bool:
        with self._lock:
            return name in self._gone or not folder.is_dir()
