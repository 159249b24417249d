"""How far the store had come when this controller last looked: a store that has less was restored (C40).

Invariant: the file is replaced whole and durably, and never says less than it did about the same etcd.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from strandline.core.reigns.events import Head
from strandline.metadata.store import StoreFailed, StoreWentBack

FILE_NAME = "seen-position.json"


@dataclass(frozen=True, slots=True)
class Position:
    """What was seen."""

    directory_id: str = ""
    """Of the data directory, so that a controller knows an earlier process of its own."""
    cluster_id: str = ""
    """Of our cluster."""
    etcd_cluster_id: int = 0
    revision: int = 0
    reign_id: str = ""
    offset: int = 0


class SeenPosition:
    """The file of one controller, in its data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE_NAME
        # Noted from a thread while a reign lasts, and on the loop when it ends.
        self._lock = threading.Lock()
        self.position = self._read()
        if not self.position.directory_id:
            fresh = replace(self.position, directory_id=uuid.uuid4().hex)
            self._write(fresh)
            self.position = fresh

    def revision_of(self, etcd_cluster_id: int) -> int:
        """The highest revision seen of this etcd; 0 for another one, whose numbers are its own."""
        return self.position.revision if self.position.etcd_cluster_id == etcd_cluster_id else 0

    def check(self, cluster_id: str, etcd_cluster_id: int, revision: int, head: Head | None) -> None:
        """Compare what the store says now.

        Raises:
            StoreFailed: it is the store of another cluster.
            StoreWentBack: it has less than it had.
        """
        seen = self.position
        if seen.cluster_id and seen.cluster_id != cluster_id:
            raise StoreFailed(
                f"etcd_prefix is of cluster {cluster_id}, but this data directory is of {seen.cluster_id}; give the "
                f"prefix or the data_dir that belongs to it"
            )
        if revision < self.revision_of(etcd_cluster_id) or (head.offset if head is not None else 0) < seen.offset:
            raise StoreWentBack(
                f"etcd is at revision {revision} and {head}, and was at {seen.revision} and offset {seen.offset}: it "
                f"was restored from an older snapshot; run `strandline controller recover` with the nodes' directories"
            )
        self.position = replace(seen, cluster_id=cluster_id)

    def note(self, etcd_cluster_id: int, revision: int, head: Head | None) -> None:
        """Remember durably how far the store has come.

        Raises:
            StoreFailed: the file cannot be written.
        """
        with self._lock:
            self._note(etcd_cluster_id, revision, head)

    def _note(self, etcd_cluster_id: int, revision: int, head: Head | None) -> None:
        fresh = Position(
            directory_id=self.position.directory_id,
            cluster_id=self.position.cluster_id,
            etcd_cluster_id=etcd_cluster_id,
            revision=max(revision, self.revision_of(etcd_cluster_id)),
            reign_id=head.reign_id if head is not None else self.position.reign_id,
            offset=max(head.offset if head is not None else 0, self.position.offset),
        )
        if fresh != self.position:
            self._write(fresh)
            self.position = fresh

    def _read(self) -> Position:
        try:
            return Position(**json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return Position()
        except (ValueError, TypeError, OSError) as error:
            raise StoreFailed(f"{self._path} cannot be read: {error}; delete it if it is damaged") from error

    def _write(self, position: Position) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(json.dumps(asdict(position)) + "\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise StoreFailed(f"{self._path} cannot be written: {error.strerror}; look at the disk") from error
