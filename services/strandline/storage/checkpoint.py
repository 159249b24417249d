"""The small text files beside the logs: epochs, offsets, and whose log a directory is.

Invariant: each file is replaced as a whole and names its own length, so a damaged one is seen as damaged
(`CheckpointDamaged`) and never read as a shorter truth. The forms are Kafka's (M36, M63).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline.storage.disk import replace_file

EPOCHS_NAME = "leader-epoch-checkpoint"
METADATA_NAME = "partition.metadata"
HIGH_WATERMARKS_NAME = "replication-offset-checkpoint"
RECOVERY_POINTS_NAME = "recovery-point-offset-checkpoint"
LOG_STARTS_NAME = "log-start-offset-checkpoint"
RECONCILED_NAME = "reconciled-epoch-checkpoint"

_VERSION = "0"


class CheckpointDamaged(Exception):
    """A checkpoint file is not what its own form says."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} is damaged: {reason}")


def write_epochs(directory: Path, entries: Iterable[EpochEntry], *, durable: bool = True) -> None:
    """Replace ``leader-epoch-checkpoint``.

    Raises:
        StorageFailed: the disk failed.
    """
    rows = [f"{entry.epoch} {entry.start_offset}" for entry in entries]
    _write_rows(directory / EPOCHS_NAME, rows, durable=durable)


def read_epochs(directory: Path) -> list[EpochEntry] | None:
    """The entries of ``leader-epoch-checkpoint``, or ``None`` without a file.

    Raises:
        CheckpointDamaged: not the form, or not strictly increasing in both fields.
    """
    path = directory / EPOCHS_NAME
    rows = _read_rows(path)
    if rows is None:
        return None
    numbers = (_numbers(path, row, 2) for row in rows)
    entries = [EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in numbers]
    for earlier, later in pairwise(entries):
        if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
            raise CheckpointDamaged(path, f"entries {earlier} and {later} do not increase")
    return entries


def write_topic_id(directory: Path, topic_id: str) -> None:
    """Write ``partition.metadata``, durably: the log belongs to this topic id (M63).

    Raises:
        StorageFailed: the disk failed.
    """
    replace_file(directory / METADATA_NAME, f"version: {_VERSION}\ntopic_id: {topic_id}\n".encode())


def read_topic_id(directory: Path) -> str | None:
    """The topic id in ``partition.metadata``, or ``None`` without a file.

    Raises:
        CheckpointDamaged: not the form.
    """
    path = directory / METADATA_NAME
    text = _read_text(path)
    if text is None:
        return None
    fields = dict(line.partition(": ")[::2] for line in text.splitlines())
    if fields.get("version") != _VERSION or not fields.get("topic_id"):
        raise CheckpointDamaged(path, "it needs the lines 'version: 0' and 'topic_id: ...'")
    return fields["topic_id"]


LogName = tuple[str, int]
"""Topic name and partition: how one log is named in the files of a data directory."""


@dataclass(slots=True)
class OffsetCheckpoint:
    """One offset per log of a data directory, in one file of the form ``topic partition offset``.

    Values change in memory by `put`; `save` makes the file equal to them.
    """

    path: Path
    offsets: dict[LogName, Offset] = field(default_factory=dict)
    damaged: bool = False
    """Whether the file that was found could not be read; it then counts as missing (every offset 0)."""

    @classmethod
    def load(cls, path: Path) -> OffsetCheckpoint:
        """Read the file; missing or damaged means no offsets (M36: a missing HW is 0)."""
        try:
            rows = _read_rows(path) or []
            return cls(path, dict(_offset_row(path, row) for row in rows))
        except CheckpointDamaged:
            return cls(path, damaged=True)

    def get(self, name: LogName) -> Offset | None:
        """The offset remembered for a log, or ``None``."""
        return self.offsets.get(name)

    def put(self, name: LogName, offset: Offset) -> bool:
        """Remember an offset in memory; returns whether anything changed."""
        changed = self.offsets.get(name) != offset
        self.offsets[name] = offset
        return changed

    def drop(self, name: LogName) -> None:
        """Forget a log, in memory."""
        self.offsets.pop(name, None)

    def update(self, offsets: Mapping[LogName, Offset]) -> None:
        """Remember many offsets, in memory."""
        self.offsets.update(offsets)

    def save(self, *, durable: bool = True) -> None:
        """Replace the file.

        Raises:
            StorageFailed: the disk failed.
        """
        rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(self.offsets.items())]
        _write_rows(self.path, rows, durable=durable)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryCheckpoints:
    """The files of one data directory with a number for each of its logs."""

    high_watermarks: OffsetCheckpoint
    recovery_points: OffsetCheckpoint
    """Up to where each log is known to be durable: recovery trusts what lies below."""
    log_starts: OffsetCheckpoint
    reconciled_epochs: OffsetCheckpoint
    """The last leader epoch in which each log led or agreed with its leader; epochs in the form of offsets (M66)."""

    @classmethod
    def load(cls, directory: Path) -> DirectoryCheckpoints:
        """Read them all; missing and damaged files count as empty."""
        load: Callable[[Path], OffsetCheckpoint] = OffsetCheckpoint.load
        return cls(
            high_watermarks=load(directory / HIGH_WATERMARKS_NAME),
            recovery_points=load(directory / RECOVERY_POINTS_NAME),
            log_starts=load(directory / LOG_STARTS_NAME),
            reconciled_epochs=load(directory / RECONCILED_NAME),
        )

    def forget(self, name: LogName, *, durable: bool = True) -> None:
        """Drop a deleted log from all of them.

        Raises:
            StorageFailed: the disk failed.
        """
        for checkpoint in (self.high_watermarks, self.recovery_points, self.log_starts, self.reconciled_epochs):
            if checkpoint.get(name) is not None:
                checkpoint.drop(name)
                checkpoint.save(durable=durable)

    def lower(self, name: LogName, leo: Offset, *, durable: bool = True) -> None:
        """Bring HW and recovery point of a log down to ``leo`` before it is cut there (M41, M55).

        Before and not after: a crash between then leaves a log longer than remembered, which recovery
        merely checks, instead of one that seems to have lost durable records.

        Raises:
            StorageFailed: the disk failed.
        """
        for checkpoint in (self.recovery_points, self.high_watermarks):
            known = checkpoint.get(name)
            if known is not None and known > leo:
                checkpoint.put(name, leo)
                checkpoint.save(durable=durable)


def _offset_row(path: Path, row: str) -> tuple[LogName, Offset]:
    topic, _, rest = row.partition(" ")
    partition, offset = _numbers(path, rest, 2)
    return (topic, partition), Offset(offset)


def _numbers(path: Path, row: str, count: int) -> list[int]:
    words = row.split(" ")
    if len(words) != count or not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
        raise CheckpointDamaged(path, f"row {row[:80]!r} must be {count} numbers")
    return [int(word) for word in words]


def _write_rows(path: Path, rows: list[str], *, durable: bool) -> None:
    replace_file(path, ("\n".join([_VERSION, str(len(rows)), *rows]) + "\n").encode(), durable=durable)


def _read_rows(path: Path) -> list[str] | None:
    text = _read_text(path)
    if text is None:
        return None
    version, *lines = text.splitlines() or [""]
    if version != _VERSION:
        raise CheckpointDamaged(path, f"version {version[:20]!r} must be {_VERSION}")
    if not lines or lines[0] != str(len(lines) - 1) or not text.endswith("\n"):
        raise CheckpointDamaged(path, "the count of its second line does not match its rows")
    return lines[1:]


def _read_text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointDamaged(path, "it is not UTF-8 text") from error
