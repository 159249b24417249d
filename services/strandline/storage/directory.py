"""Decides which node a data directory belongs to, who may open it, and whether its last run lost durable records.

Invariant: one process at a time (lock), one node of one cluster for ever (``meta.properties``), and an unclean
directory stays marked until it was reported to the controller (M58).
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Durability, NodeId
from strandline.storage import layout, layout as storage_layout
from strandline.storage.checkpoint_files import (
    METADATA_NAME,
    MOVED,
    CheckpointDamaged,
    LogName,
    read_topic_id,
    write_topic_id,
)
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.disk import LowSpaceMark, StorageFailed, remove, replace_file, sync_directory
from strandline.storage.journal import JOURNAL_NAMES, LIMIT_BYTES
from strandline.storage.log import Log, LogSettings
from strandline.storage.open_files import OpenFiles
from strandline.storage.recovery import Recovery
from strandline.storage.strays import MOVED_SUFFIX, Strays

LOCK_NAME = ".lock"
META_NAME = "meta.properties"
CLEAN_NAME = "clean-shutdown"
UNCLEAN_NAME = "unclean"
RUN_NAME = "run.properties"
STRAY_SUFFIX = ".stray"
DEFAULT_LOW_SPACE_BYTES = 256 << 20
"""With less free space produce is refused; a few segments and checkpoints still fit."""

META_VERSION = "2"
"""A release without the journal refuses this version, because it would trust outdated checkpoint files."""
_WITHOUT_JOURNAL = "1"
_FRAME_FIELD = "journal.frame"
_MAX_DIGITS = 20
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class DirectoryRefused(Exception):
    """This process must not use this data directory; the message gives reason and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The content of ``meta.properties``."""

    node_id: NodeId
    directory_id: str
    """A UUID, generated once: another id means another (or wiped) disk."""
    cluster_id: str | None = None
    """None until the node has registered with its controller."""
    version: str = META_VERSION
    """The version of the directory's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLog:
    """A log, what was found when it was opened, and where a log of another topic id was moved to (M63)."""

    log: Log
    recovery: Recovery
    set_aside: Path | None = None


@dataclass(slots=True)
class DataDirectory:
    """A locked data directory: its identity, its marks, its checkpoints, and access to its logs."""

    path: Path
    identity: Identity
    checkpoints: Checkpoints
    stopped_cleanly: bool
    """Whether the last run ended with a clean stop, so that logs need no CRC check."""
    space: LowSpaceMark
    files: OpenFiles
    _lock_fd: int
    _opened: set[LogName] = field(default_factory=set)
    _repairs: Lock = field(default_factory=Lock)
    _has_new_entries: bool = False
    _doomed: list[Path] = field(default_factory=list)
    _moved: list[tuple[Path, str]] = field(default_factory=list)
    """Logs to be set aside, with their topic ids."""
    strays: Strays = field(init=False)

    def __post_init__(self) -> None:
        self.strays = Strays(self.path)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        node_id: NodeId,
        durability: Durability = Durability.FSYNC,
        cluster_id: str | None = None,
        low_space_bytes: int = DEFAULT_LOW_SPACE_BYTES,
        journal_bytes: int = LIMIT_BYTES,
    ) -> DataDirectory:
        """Lock the directory (created if missing), check its owner, and read its marks, checkpoints and journal.

        Raises:
            DirectoryRefused: another process holds it, or it belongs to another node.
            Refused: INCONSISTENT_CLUSTER_ID, it belongs to another cluster.
            StorageFailed: the disk failed.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailed("mkdir", path, error) from error
        lock_fd = _lock(path)
        try:
            identity = _identify(path, node_id, cluster_id)
            checkpoints = _open_checkpoints(path, identity, journal_bytes)
            if identity.version != META_VERSION:
                # Written after the journal, because a directory of this version without a journal has lost it.
                identity = replace(identity, version=META_VERSION)
                _write_identity(path, identity)
            stopped_cleanly = _begin_run(path, durability)
        except BaseException:
            os.close(lock_fd)
            raise
        # Their deletion was durable when they were renamed; only the files were left.
        for leftover in path.glob(f"*{storage_layout.DELETED_SUFFIX}"):
            storage_layout.remove_in_thread(leftover)
        _maybe_mark_lost_logs(path, checkpoints)
        # An election ranks forked logs by it, and would take another log for the more complete one (M65, M66).
        if checkpoints.reconciled_epochs.damaged:
            _mark_unclean(path, f"{checkpoints.reconciled_epochs.path.name} is damaged; it was durable")
        files = OpenFiles(syncs=durability is Durability.FSYNC)
        return cls(path, identity, checkpoints, stopped_cleanly, LowSpaceMark(path, low_space_bytes), files, lock_fd)

    def adopt_cluster(self, cluster_id: str) -> None:
        """Bind the directory to its node's cluster, permanently.

        Raises:
            Refused: INCONSISTENT_CLUSTER_ID, it is bound to another cluster.
            StorageFailed: the disk failed.
        """
        known = self.identity.cluster_id
        if known is not None:
            _check_cluster(self.path, known, cluster_id)
            return
        self.identity = replace(self.identity, cluster_id=cluster_id)
        _write_identity(self.path, self.identity)

    @property
    def is_unclean(self) -> bool:
        """Whether the node must register as unclean (M58); valid once all logs were opened."""
        return (self.path / UNCLEAN_NAME).exists()

    def mark_unclean(self, reason: str) -> None:
        """Set the unclean mark, durably: a CRC failure in service, or records lost that were durable.

        Raises:
            StorageFailed: the disk failed.
        """
        _mark_unclean(self.path, reason)

    def clear_unclean(self) -> None:
        """Remove the mark, once the controller has registered this node as unclean and removed it from every ISR.

        Raises:
            StorageFailed: the disk failed.
        """
        # Durably, or after a power failure the node would leave every ISR once more.
        remove(self.path / UNCLEAN_NAME)
        sync_directory(self.path)

    def begin_incarnation(self, incarnation_id: str) -> tuple[str, ...]:
        """Record this process before it registers; see `layout.begin`."""
        return layout.begin(self.path, incarnation_id)

    def confirm_incarnation(self, incarnation_id: str) -> None:
        """Note that the controller has registered this process; see `layout.confirm`."""
        layout.confirm(self.path, incarnation_id)

    def log_names(self) -> list[LogName]:
        """Topic and partition of every log in the directory."""
        return [storage_layout.log_name(path) for path in _log_paths(self.path)]

    def open_log(self, topic: str, partition: int, topic_id: str, settings: LogSettings | None = None) -> OpenedLog:
        """Open or create the log of a topic id; one of another id is renamed and never served (M63).

        The entry of a new log is durable when `settle` returns, before the first append.

        Raises:
            Refused: INVALID_TOPIC_EXCEPTION, the name could point outside the directory.
            StorageFailed: the disk failed.
        """
        path = self._log_path(topic, partition)
        name = (topic, partition)
        if self._doomed or self._moved:
            # A log of this name may be among them.
            self.settle()
        set_aside = self._maybe_set_aside(path, name, topic_id)
        # A log that this process opens for the second time was written to since the clean stop.
        clean = self.stopped_cleanly and name not in self._opened
        # Damage found in service lies below the recovery point, so logs of an unclean directory are checked completely.
        log, recovery = Log.open(
            path,
            settings=settings,
            checkpoints=self.checkpoints,
            clean=clean,
            check_all=self.is_unclean,
            syncs_entry=False,
            files=self.files,
        )
        self._opened.add(name)
        if recovery.lost_durable_records:
            # The mark comes first: once the checkpoints are lowered, nothing else shows the loss.
            with self._repairs:
                self.mark_unclean(f"{path.name} ends at {recovery.leo}, below what was durable or committed")
                self.checkpoints.lower(name, recovery.leo)
                self.checkpoints.settle()
        if _topic_id_or_none(path) == topic_id:
            self.checkpoints.belongs(name, topic_id)
        else:
            # The journal keeps it until the file is durable too.
            write_topic_id(path, topic_id, durable=False)
            self.checkpoints.made(name, topic_id)
            self._has_new_entries = True
        return OpenedLog(log=log, recovery=recovery, set_aside=set_aside)

    def _log_path(self, topic: str, partition: int) -> Path:
        if not _TOPIC.fullmatch(topic) or topic in (".", "..") or partition < 0:
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {topic[:80]!r} partition {partition}: use 1 to 249 of [a-zA-Z0-9._-] and partitions from 0",
            )
        return self.path / f"{topic}-{partition}"

    def _maybe_set_aside(self, path: Path, name: LogName, topic_id: str) -> Path | None:
        # A topic that was deleted and created again has the same name, but the old records are not its own (M63).
        found = _topic_id_or_none(path)
        if found == topic_id or (found is None and not any(file.stat().st_size for file in path.glob("*.log"))):
            # No id and no records: created by a process that crashed before it wrote the id.
            return None
        # Its offsets must not be used for the new log, so they are dropped first.
        self.checkpoints.forget(name)
        self.checkpoints.settle()
        target = _free_name(self.path, path.name, f".{found or 'unknown'}{STRAY_SUFFIX}")
        storage_layout.rename_directory(path, target)
        return target

    def delete_log(self, log: Log) -> None:
        """Delete a log permanently; its directory is removed when `settle` is called."""
        log.forget()
        self._opened.discard(log.name)
        self._doomed.append(log.directory)

    def set_log_aside(self, log: Log, topic_id: str) -> None:
        """Never open a log again; its directory is renamed when `settle` is called, and removed later (C78)."""
        log.forget(moved=True)
        self._opened.discard(log.name)
        self._moved.append((log.directory, topic_id))

    def settle(self) -> None:
        """Make all changes since the last call durable: with one sync of the journal, and one of this directory if logs
        were created or deleted. Raises `StorageFailed`.
        """
        # The journal first: a new log of the name must not inherit what was saved for the one that is gone.
        self.checkpoints.settle()
        if self._has_new_entries:
            self._has_new_entries = False
            sync_directory(self.path)
        if self._doomed:
            doomed, self._doomed = self._doomed, []
            for retired in storage_layout.retire_directories(doomed):
                storage_layout.remove_in_thread(retired)
        moved, self._moved = self._moved, []
        for log, topic_id in moved:
            self.strays.set_aside(log, _stray_name(log, topic_id))

    def save_checkpoints(self, *, durable: bool = True) -> None:
        """Save high watermarks and recovery points, together with all waiting changes (M36: every 5 s).

        Raises:
            StorageFailed: the disk failed.
        """
        checkpoints = self.checkpoints
        checkpoints.save(checkpoints.high_watermarks, checkpoints.recovery_points, durable=durable)
        self.settle()

    def close(self, *, clean: bool) -> None:
        """Close the directory. ``clean`` means that every log was closed cleanly; only then is the clean mark set.

        Raises:
            StorageFailed: the disk failed.
        """
        checkpoints = self.checkpoints
        if clean:
            self.save_checkpoints()
            checkpoints.write_files()
            # Last, because with this mark the next start checks no CRC. It names the last frame: a journal that ends
            # below that has lost something (M58).
            fields = (f"directory.id={self.identity.directory_id}", f"{_FRAME_FIELD}={checkpoints.journal.durable}", "")
            replace_file(self.path / CLEAN_NAME, "\n".join(fields).encode())
        checkpoints.close()
        # Last, because from here on another process may open the directory.
        os.close(self._lock_fd)


def _open_checkpoints(path: Path, identity: Identity, journal_bytes: int) -> Checkpoints:
    """Read the small files and the journal, finish what a crash interrupted, and open the journal for this run."""
    if identity.version == _WITHOUT_JOURNAL:
        for name in JOURNAL_NAMES:
            # Left by a start that ended before the version was written; nothing was saved in it.
            remove(path / name)
    frame = _read_properties(path / CLEAN_NAME).get(_FRAME_FIELD, "")
    at_least = int(frame) if frame.isascii() and frame.isdigit() and len(frame) < _MAX_DIGITS else 0
    checkpoints = Checkpoints.load(path, at_least=at_least, limit_bytes=journal_bytes)
    fault = checkpoints.fault or lost_journal(path, checkpoints)
    if fault is not None:
        _mark_unclean(path, fault)
    _finish(path, checkpoints)
    if checkpoints.begins_again and checkpoints.journal.found.exists:
        checkpoints.complete()
    checkpoints.open()
    return checkpoints


def lost_journal(path: Path, checkpoints: Checkpoints) -> str | None:
    """Why the absence of the journal is a loss; None if it exists or the directory is of an older release."""
    is_expected = _read_properties(path / META_NAME).get("version") == META_VERSION
    return "checkpoint.journal is missing" if is_expected and not checkpoints.journal.found.exists else None


def _finish(path: Path, checkpoints: Checkpoints) -> None:
    """Repeat the changes of logs' folders that are in the journal but were lost in a power failure."""
    for (topic, partition), forgotten in checkpoints.forgotten.items():
        log = path / f"{topic}-{partition}"
        topic_id = forgotten.removesuffix(MOVED)
        if not log.is_dir() or _topic_id_or_none(log) != topic_id:
            continue
        if forgotten != topic_id:
            Strays(path).set_aside(log, _stray_name(log, topic_id))
        else:
            for retired in storage_layout.retire_directories([log]):
                storage_layout.remove_tree(retired)
    for (topic, partition), topic_id in checkpoints.unfinished():
        log = path / f"{topic}-{partition}"
        file = log / METADATA_NAME
        # It was written without a sync, so a power failure may have left it empty.
        if log.is_dir() and (not file.exists() or not file.stat().st_size):
            write_topic_id(log, topic_id)


def _topic_id_or_none(log: Path) -> str | None:
    try:
        return read_topic_id(log)
    except CheckpointDamaged:
        return None


def _lock(path: Path) -> int:
    lock = path / LOCK_NAME
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageFailed("open", lock, error) from error
    try:
        # The kernel gives it up however the process ends; a file alone would have to be removed by hand after a crash.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise DirectoryRefused(
            f"data directory {path} is used by process {holder}; stop that one or choose another directory"
        ) from None
    # Only for the message to another process that finds the lock taken.
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _identify(path: Path, node_id: NodeId, cluster_id: str | None) -> Identity:
    identity = _read_identity(path)
    if identity is None:
        # Written to the disk once the journal exists.
        identity = Identity(node_id=node_id, directory_id=str(uuid.uuid4()), cluster_id=cluster_id, version="")
        # The node may have had another disk, whose records this one lacks (I15).
        _mark_unclean(path, "the directory is new")
        return identity
    if identity.node_id != node_id:
        raise DirectoryRefused(
            f"data directory {path} belongs to node {identity.node_id}, not {node_id}; "
            "start with its node id or another directory"
        )
    if cluster_id is not None and identity.cluster_id is not None:
        _check_cluster(path, identity.cluster_id, cluster_id)
    return identity


def _check_cluster(path: Path, known: str, cluster_id: str) -> None:
    if known != cluster_id:
        raise Refused(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"data directory {path} belongs to cluster {known}, not {cluster_id}; "
            "connect to its cluster or choose another directory",
        )


def _begin_run(path: Path, durability: Durability) -> bool:
    """Replace the last run's marks by this run's; return whether the last run stopped cleanly."""
    stopped_cleanly = (path / CLEAN_NAME).exists()
    last_durability = _read_properties(path / RUN_NAME).get("durability")
    if not stopped_cleanly and last_durability == Durability.PAGE_CACHE:
        # A power failure and the death of the process look alike. Marked before the file that shows it is replaced.
        _mark_unclean(path, "the last run acknowledged from the page cache and did not stop cleanly")
    replace_file(path / RUN_NAME, f"durability={durability}\n".encode())
    # Durably before the first append, or the mark would outlive a crash of this run and spare its logs their check.
    remove(path / CLEAN_NAME)
    sync_directory(path)
    return stopped_cleanly


def _maybe_mark_lost_logs(path: Path, checkpoints: Checkpoints) -> None:
    """Mark the directory unclean if a log that held records is missing, or has no topic id (M58).

    Such a log starts empty, so this node must be in no ISR, and this must be known before it registers.
    """
    rows = (checkpoints.high_watermarks.offsets, checkpoints.recovery_points.offsets)
    # A log without records has nothing to lose.
    held = {f"{topic}-{partition}" for row in rows for (topic, partition), offset in row.items() if offset > 0}
    for log in sorted({*(path / name for name in held), *_log_paths(path)}):
        reason = _lost_reason(log, was_held=log.name in held)
        if reason is not None and not (path / UNCLEAN_NAME).exists():
            _mark_unclean(path, reason)


def _lost_reason(log: Path, *, was_held: bool) -> str | None:
    if was_held and not log.is_dir():
        return f"{log.name} is missing, and it held records"
    try:
        topic_id = read_topic_id(log)
    except CheckpointDamaged as damage:
        return str(damage)
    if topic_id is None and any(file.stat().st_size for file in log.glob("*.log")):
        return f"{log.name} does not say which topic it belongs to"
    return None


def _log_paths(path: Path) -> list[Path]:
    found = []
    for entry in path.iterdir():
        if entry.is_dir() and not entry.name.endswith((STRAY_SUFFIX, storage_layout.DELETED_SUFFIX)):
            try:
                storage_layout.log_name(entry)
            except ValueError:
                continue
            found.append(entry)
    return sorted(found)


def _mark_unclean(path: Path, reason: str) -> None:
    replace_file(path / UNCLEAN_NAME, f"{reason}\n".encode())


def _write_identity(path: Path, identity: Identity) -> None:
    lines = [f"version={META_VERSION}", f"node.id={identity.node_id}", f"directory.id={identity.directory_id}"]
    if identity.cluster_id is not None:
        lines.append(f"cluster.id={identity.cluster_id}")
    replace_file(path / META_NAME, ("\n".join(lines) + "\n").encode())


def _read_identity(path: Path) -> Identity | None:
    meta = path / META_NAME
    if not meta.exists():
        return None
    fields = _read_properties(meta)
    node_id, version = fields.get("node.id", ""), fields.get("version", "")
    if version.isascii() and version.isdigit() and int(version[:_MAX_DIGITS]) > int(META_VERSION):
        raise DirectoryRefused(f"{meta} has version {version[:_MAX_DIGITS]}; start the release that wrote it")
    if version not in (_WITHOUT_JOURNAL, META_VERSION) or not node_id.isdigit() or not fields.get("directory.id"):
        raise DirectoryRefused(f"{meta} is damaged; restore it, or start with an empty directory and replicate again")
    return Identity(
        node_id=NodeId(int(node_id)),
        directory_id=fields["directory.id"],
        cluster_id=fields.get("cluster.id"),
        version=version,
    )


def _read_properties(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return {}
    return dict(line.partition("=")[::2] for line in text.splitlines())


def _stray_name(log: Path, topic_id: str) -> Path:
    return _free_name(log.parent, log.name, f".{topic_id}{MOVED_SUFFIX}")


def _free_name(parent: Path, name: str, suffix: str) -> Path:
    """A path in the same folder that is free and not too long for the file system."""
    for attempt in range(1_000):
        tail = suffix if not attempt else f".{attempt}{suffix}"
        candidate = parent / storage_layout.name_with_suffix(name, tail)
        if not candidate.exists():
            return candidate
    raise DirectoryRefused(f"{parent} holds too many logs set aside from {name}; remove the *{STRAY_SUFFIX} folders")
