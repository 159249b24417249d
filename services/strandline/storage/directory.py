"""Decides whose a data directory is, who may open it, and whether its last run lost durable records.

Invariant: one process at a time (lock), one node of one cluster for ever (``meta.properties``), and an
unclean directory stays marked until it was reported to the controller (M58).
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

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
"""Below this much free space produce is refused; a few segments and checkpoints still fit."""

META_VERSION = "2"
"""A release without the journal refuses it; it would believe checkpoint files that are behind."""
_WITHOUT_JOURNAL = "1"
_FRAME_FIELD = "journal.frame"
_MAX_DIGITS = 20
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class DirectoryRefused(Exception):
    """This process must not use this data directory; the sentence says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What ``meta.properties`` holds."""

    node_id: NodeId
    directory_id: str
    """A UUID, made once: another id means another (or wiped) disk."""
    cluster_id: str | None = None
    """Unknown until the node has met its controller."""
    version: str = META_VERSION
    """Of the form that the directory is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLog:
    """A log, what opening it found, and where a log of another topic id was set aside to (M63)."""

    log: Log
    recovery: Recovery
    set_aside: Path | None = None


@dataclass(slots=True)
class DataDirectory:
    """A locked data directory: its identity, its marks, its checkpoints, and the way to its logs."""

    path: Path
    identity: Identity
    checkpoints: Checkpoints
    stopped_cleanly: bool
    """Whether the last run ended with a clean stop, so that logs need no CRC check."""
    space: LowSpaceMark
    files: OpenFiles
    _lock_fd: int
    _opened: set[LogName] = field(default_factory=set)
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
        """Lock the directory (made if missing), check whose it is, and read its marks, its checkpoints and its journal.

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
                # Behind the journal: a directory of this version without one has lost it.
                identity = replace(identity, version=META_VERSION)
                _write_identity(path, identity)
            stopped_cleanly = _begin_run(path, durability)
        except BaseException:
            os.close(lock_fd)
            raise
        for leftover in path.glob(f"*{storage_layout.DELETED_SUFFIX}"):
            storage_layout.remove_tree(leftover)
        _maybe_mark_lost_logs(path, checkpoints)
        if checkpoints.reconciled_epochs.damaged:
            _mark_unclean(path, f"{checkpoints.reconciled_epochs.path.name} is damaged; it was durable")
        files = OpenFiles(syncs=durability is Durability.FSYNC)
        return cls(path, identity, checkpoints, stopped_cleanly, LowSpaceMark(path, low_space_bytes), files, lock_fd)

    def adopt_cluster(self, cluster_id: str) -> None:
        """Bind the directory to the cluster its node has met; for ever.

        Raises:
            Refused: INCONSISTENT_CLUSTER_ID, it is bound to another.
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
        """Whether the node must register as unclean (M58): asked after all logs were opened."""
        return (self.path / UNCLEAN_NAME).exists()

    def mark_unclean(self, reason: str) -> None:
        """Set the unclean mark, durably: a CRC failure in service, or records lost that were durable.

        Raises:
            StorageFailed: the disk failed.
        """
        _mark_unclean(self.path, reason)

    def clear_unclean(self) -> None:
        """Remove the mark: the controller has registered this node as unclean and took it out of every ISR.

        Raises:
            StorageFailed: the disk failed.
        """
        remove(self.path / UNCLEAN_NAME)
        sync_directory(self.path)

    def begin_incarnation(self, incarnation_id: str) -> tuple[str, ...]:
        """Write this process down before it registers; see `incarnations.begin`."""
        return layout.begin(self.path, incarnation_id)

    def confirm_incarnation(self, incarnation_id: str) -> None:
        """The controller registered this process; see `incarnations.confirm`."""
        layout.confirm(self.path, incarnation_id)

    def low_space(self, now_ms: int) -> str | None:
        """How much is free, in a sentence, if produce must be refused before ENOSPC; ``now_ms`` is monotonic."""
        return self.space.low_space(now_ms)

    def log_names(self) -> list[LogName]:
        """Topic and partition of every log in the directory."""
        return [storage_layout.log_name(path) for path in _log_paths(self.path)]

    def open_log(self, topic: str, partition: int, topic_id: str, settings: LogSettings | None = None) -> OpenedLog:
        """Open or make the log of a topic id; one of another id is renamed away, never served (M63).

        The entry of a new log is durable when `settle` returns, which precedes the first append.

        Raises:
            Refused: INVALID_TOPIC_EXCEPTION, the name could leave the directory.
            StorageFailed: the disk failed.
        """
        path = self._log_path(topic, partition)
        name = (topic, partition)
        if self._doomed or self._moved:
            # One of this name may be among them.
            self.settle()
        set_aside = self._maybe_set_aside(path, name, topic_id)
        clean = self.stopped_cleanly and name not in self._opened
        # Damage found in service lies below the recovery point: an unclean directory is read as a whole.
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
            # The mark first: once the checkpoints are lowered nothing else shows the loss.
            self.mark_unclean(f"{path.name} ends at {recovery.leo}, below what was durable or committed")
            self.checkpoints.lower(name, recovery.leo)
            self.checkpoints.settle()
        if _topic_id_or_none(path) == topic_id:
            self.checkpoints.belongs(name, topic_id)
        else:
            # The journal has it until the file is durable, too.
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
        found = _topic_id_or_none(path)
        if found == topic_id or (found is None and not any(file.stat().st_size for file in path.glob("*.log"))):
            # The second: made by a life that crashed before it wrote the id.
            return None
        # Its offsets must not be taken for the new log's, so they go first.
        self.checkpoints.forget(name)
        self.checkpoints.settle()
        target = _free_name(self.path, path.name, f".{found or 'unknown'}{STRAY_SUFFIX}")
        storage_layout.rename_directory(path, target)
        return target

    def delete_log(self, log: Log) -> None:
        """Remove a log for good; its directory goes when `settle` is called."""
        log.forget()
        self._doomed.append(log.directory)

    def set_log_aside(self, log: Log, topic_id: str) -> None:
        """Never open a log again; its directory is renamed when `settle` is called, and removed later (C78)."""
        log.forget(moved=True)
        self._moved.append((log.directory, topic_id))

    @property
    def waits(self) -> bool:
        """Whether `settle` has anything to do."""
        return self.checkpoints.waiting or self._has_new_entries or bool(self._doomed or self._moved)

    def settle(self) -> None:
        """Make all changes since the last call durable: one sync of the journal, and one of this directory if logs were
        made or deleted.

        Raises:
            StorageFailed: the disk failed.
        """
        self.checkpoints.settle()
        if self._has_new_entries:
            self._has_new_entries = False
            sync_directory(self.path)
        if self._doomed:
            doomed, self._doomed = self._doomed, []
            for retired in storage_layout.retire_directories(doomed):
                storage_layout.remove_tree(retired)
        moved, self._moved = self._moved, []
        for log, topic_id in moved:
            self.strays.set_aside(log, _stray_name(log, topic_id))

    def save_checkpoints(self, *, durable: bool = True) -> None:
        """Save high watermarks and recovery points, now and then (M36: every 5 s), with all that waits.

        Raises:
            StorageFailed: the disk failed.
        """
        checkpoints = self.checkpoints
        checkpoints.save(checkpoints.high_watermarks, checkpoints.recovery_points, durable=durable)
        self.settle()

    def close(self, *, clean: bool) -> None:
        """Give the directory back. ``clean`` says that every log was closed cleanly; only then is the mark set.

        Raises:
            StorageFailed: the disk failed.
        """
        checkpoints = self.checkpoints
        if clean:
            self.save_checkpoints()
            checkpoints.write_files()
            fields = (f"directory.id={self.identity.directory_id}", f"{_FRAME_FIELD}={checkpoints.journal.durable}", "")
            replace_file(self.path / CLEAN_NAME, "\n".join(fields).encode())
        checkpoints.close()
        os.close(self._lock_fd)


def _open_checkpoints(path: Path, identity: Identity, journal_bytes: int) -> Checkpoints:
    """Read the small files and the journal, finish what a crash interrupted, and open the journal for this run."""
    if identity.version == _WITHOUT_JOURNAL:
        for name in JOURNAL_NAMES:
            # Of a start that ended before the version was written; nothing went through it.
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
    """Why a directory without a journal must have had one, None if it has it or is older."""
    is_expected = _read_properties(path / META_NAME).get("version") == META_VERSION
    return "checkpoint.journal is missing" if is_expected and not checkpoints.journal.found.exists else None


def _finish(path: Path, checkpoints: Checkpoints) -> None:
    """Do what the journal says was done to the folders of logs, and the power took back."""
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
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise DirectoryRefused(
            f"data directory {path} is used by process {holder}; stop that one or choose another directory"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _identify(path: Path, node_id: NodeId, cluster_id: str | None) -> Identity:
    identity = _read_identity(path)
    if identity is None:
        # Written down when the journal is there.
        identity = Identity(node_id=node_id, directory_id=str(uuid.uuid4()), cluster_id=cluster_id, version="")
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
    """Take the last run's marks off and put this run's on; returns whether the last one stopped cleanly."""
    stopped_cleanly = (path / CLEAN_NAME).exists()
    last_durability = _read_properties(path / RUN_NAME).get("durability")
    if not stopped_cleanly and last_durability == Durability.PAGE_CACHE:
        _mark_unclean(path, "the last run acknowledged from the page cache and did not stop cleanly")
    replace_file(path / RUN_NAME, f"durability={durability}\n".encode())
    remove(path / CLEAN_NAME)
    sync_directory(path)
    return stopped_cleanly


def _maybe_mark_lost_logs(path: Path, checkpoints: Checkpoints) -> None:
    """Mark the directory unclean when a log that held records is gone, or does not say whose it is (M58).

    Such a log restarts empty, so this node must be in no ISR; and that has to be known before it registers.
    """
    rows = (checkpoints.high_watermarks.offsets, checkpoints.recovery_points.offsets)
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
    """The folders that are logs by their name."""
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
    """A sibling's name that is free and not too long for the file system."""
    for attempt in range(1_000):
        tail = suffix if not attempt else f".{attempt}{suffix}"
        candidate = parent / storage_layout.name_with_suffix(name, tail)
        if not candidate.exists():
            return candidate
    raise DirectoryRefused(f"{parent} holds too many logs set aside from {name}; remove the *{STRAY_SUFFIX} folders")
