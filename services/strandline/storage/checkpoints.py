"""The small data that a data directory keeps about its logs: the checkpoint files, and the journal in front of them.

Decides where a change is written first. All changes since the last `settle` become one frame of the journal; a thread
updates the files later (`storage.completion`), and a start reads the files, then the journal.

Invariant: every change of these files goes through the journal, even lowering and forgetting, so that replaying it
never restores what was truncated or deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from strandline.core.types import EpochEntry, Offset
from strandline.storage import checkpoint_files
from strandline.storage.completion import SNAPSHOT_NAME, Completion, LogFiles
from strandline.storage.journal import LIMIT_BYTES, Journal, read_journal

_NAMES = {
    checkpoint_files.Kind.HIGH_WATERMARK: checkpoint_files.HIGH_WATERMARKS_NAME,
    checkpoint_files.Kind.RECOVERY_POINT: checkpoint_files.RECOVERY_POINTS_NAME,
    checkpoint_files.Kind.LOG_START: checkpoint_files.LOG_STARTS_NAME,
    checkpoint_files.Kind.RECONCILED_EPOCH: checkpoint_files.RECONCILED_NAME,
}


@dataclass(slots=True)
class Checkpoints:
    """The content of one data directory's small files and journal together. For the loop thread only.

    Changes are visible at once, and are in the journal when `settle` returns.
    """

    directory: Path
    journal: Journal
    by_kind: dict[checkpoint_files.Kind, checkpoint_files.OffsetCheckpoint]
    fault: str | None = None
    """Why the journal is damaged (M58), or None; frames in front of the damage are valid."""
    forgotten: dict[checkpoint_files.LogName, str] = field(default_factory=dict)
    """Logs that were deleted or moved, and not created again, according to the journal at the start; with their topic
    ids in the form of `LogForgotten`."""
    _logs: dict[checkpoint_files.LogName, LogFiles] = field(default_factory=dict)
    _metadata: bytes | None = None
    _owners: dict[checkpoint_files.LogName, str] = field(default_factory=dict)
    _waiting: list[checkpoint_files.Save] = field(default_factory=list)
    _waiting_durably: bool = False
    _completion: Completion | None = None

    @classmethod
    def load(cls, directory: Path, *, at_least: int = 0, limit_bytes: int = LIMIT_BYTES) -> Checkpoints:
        """Read the journal and the files. Nothing is changed, so it can be used on a running node.

        Missing and damaged files count as empty. ``at_least``: the number of a frame known to have been durable.
        """
        # The journal first: what a running node moves to the files meanwhile is then read twice instead of never.
        found = read_journal(directory, at_least=at_least)
        by_kind = {kind: checkpoint_files.OffsetCheckpoint.load(directory / name) for kind, name in _NAMES.items()}
        checkpoints = cls(directory, Journal(directory, found, limit_bytes), by_kind, found.fault)
        for payload in found.payloads:
            try:
                saves = checkpoint_files.decode(payload)
            except checkpoint_files.SavesDamaged as damage:
                checkpoints.fault = checkpoints.fault or f"checkpoint.journal is damaged: {damage}"
                # What follows are changes of a state that is not known.
                break
            for save in saves:
                checkpoints._replay(save)
        return checkpoints

    @property
    def high_watermarks(self) -> checkpoint_files.OffsetCheckpoint:
        """The HW of each log (M36)."""
        return self.by_kind[checkpoint_files.Kind.HIGH_WATERMARK]

    @property
    def recovery_points(self) -> checkpoint_files.OffsetCheckpoint:
        """The offset up to which each log is known to be durable; recovery trusts everything below."""
        return self.by_kind[checkpoint_files.Kind.RECOVERY_POINT]

    @property
    def log_starts(self) -> checkpoint_files.OffsetCheckpoint:
        """The start offset of each log (M10)."""
        return self.by_kind[checkpoint_files.Kind.LOG_START]

    @property
    def reconciled_epochs(self) -> checkpoint_files.OffsetCheckpoint:
        """The last leader epoch in which each log led or agreed with its leader, in the form of an offset (M66)."""
        return self.by_kind[checkpoint_files.Kind.RECONCILED_EPOCH]

    def _replay(self, save: checkpoint_files.Save) -> None:
        match save:
            case checkpoint_files.OffsetsSaved():
                self.by_kind[save.kind].offsets.update(save.rows)
            case checkpoint_files.EpochsSaved():
                self._owners[save.name] = save.topic_id or self._owners.get(save.name, "")
                self._logs[save.name] = replace(self._logs.get(save.name, LogFiles()), epochs=save.entries)
            case checkpoint_files.LogMade():
                self._owners[save.name] = save.topic_id
                self._logs[save.name] = LogFiles(topic_id=save.topic_id)
                self.forgotten.pop(save.name, None)
            case checkpoint_files.LogForgotten():
                self._drop(save.name)
                if save.topic_id:
                    self.forgotten[save.name] = save.topic_id
            case checkpoint_files.MetadataSaved():
                self._metadata = save.content

    def _drop(self, name: checkpoint_files.LogName) -> None:
        for checkpoint in self.by_kind.values():
            checkpoint.drop(name)
        self._logs.pop(name, None)
        self._owners.pop(name, None)

    def _add(self, save: checkpoint_files.Save, *, durable: bool) -> None:
        self._waiting.append(save)
        self._waiting_durably |= durable

    def made(self, name: checkpoint_files.LogName, topic_id: str) -> None:
        """Note a log created for this topic id, whose `partition.metadata` was written without a sync."""
        self._owners[name] = topic_id
        self._logs[name] = LogFiles(topic_id=topic_id)
        self._add(checkpoint_files.LogMade(name, topic_id), durable=True)

    def belongs(self, name: checkpoint_files.LogName, topic_id: str) -> None:
        """Note the topic id of a log that was found."""
        self._owners[name] = topic_id

    def epochs_of(self, name: checkpoint_files.LogName) -> tuple[EpochEntry, ...] | None:
        """The saved epochs of a log; None if none were saved.

        Raises:
            CheckpointDamaged: the file is damaged, and the journal has nothing newer.
        """
        # From new to old: what waits for the next round, what the thread is writing now, what the file holds.
        files = self._logs.get(name) or (self._completion.logs.get(name) if self._completion else None)
        folder = self.directory / f"{name[0]}-{name[1]}"
        if files is not None and files.epochs is not None and self._is_owner(name, folder):
            return files.epochs
        found = checkpoint_files.read_epochs(folder)
        return None if found is None else tuple(found)

    def _is_owner(self, name: checkpoint_files.LogName, folder: Path) -> bool:
        """Whether the folder belongs to the topic in the journal; one without a topic id is assumed to."""
        try:
            found = checkpoint_files.read_topic_id(folder)
        except checkpoint_files.CheckpointDamaged:
            found = None
        return not found or self._owners.get(name, "") in ("", found)

    def topic_id_of(self, name: checkpoint_files.LogName) -> str | None:
        """The topic id of a log; None if unknown.

        Raises:
            CheckpointDamaged: the file is damaged.
        """
        return self._owners.get(name) or checkpoint_files.read_topic_id(self.directory / f"{name[0]}-{name[1]}")

    def unfinished(self) -> Iterable[tuple[checkpoint_files.LogName, str]]:
        """Logs whose `partition.metadata` may have been lost in a power failure, with their topic ids."""
        return [(name, files.topic_id) for name, files in self._logs.items() if files.topic_id is not None]

    def metadata(self) -> bytes | None:
        """The newest saved metadata; None if none was saved."""
        if self._metadata is not None:
            return self._metadata
        if self._completion is not None and self._completion.metadata is not None:
            return self._completion.metadata
        try:
            return (self.directory / SNAPSHOT_NAME).read_bytes()
        except FileNotFoundError:
            return None

    def metadata_written_s(self) -> float | None:
        """When the metadata's file was last written, in seconds since 1970; None if there is none."""
        try:
            return (self.directory / SNAPSHOT_NAME).stat().st_mtime
        except FileNotFoundError:
            return None

    def save(self, *checkpoints: checkpoint_files.OffsetCheckpoint, durable: bool = True) -> None:
        """Save the changes in these since they were last saved."""
        for kind, checkpoint in self.by_kind.items():
            if any(checkpoint is given for given in checkpoints) and checkpoint.changed:
                rows = tuple((name, checkpoint.offsets[name]) for name in sorted(checkpoint.changed))
                checkpoint.changed.clear()
                self._add(checkpoint_files.OffsetsSaved(kind, rows), durable=durable)

    def save_epochs(
        self, name: checkpoint_files.LogName, entries: Iterable[EpochEntry], *, durable: bool = True
    ) -> None:
        """Save all epochs of a log (M36)."""
        epochs = tuple(entries)
        self._logs[name] = replace(self._logs.get(name, LogFiles()), epochs=epochs)
        self._add(checkpoint_files.EpochsSaved(name, self._owners.get(name, ""), epochs), durable=durable)

    def save_metadata(self, content: bytes) -> None:
        """Save the newest metadata."""
        self._metadata = content
        self._add(checkpoint_files.MetadataSaved(content), durable=True)

    def forget(
        self, name: checkpoint_files.LogName, *, durable: bool = True, deleted: bool = False, moved: bool = False
    ) -> None:
        """Drop everything that was saved under a name. With ``deleted`` the folder will be removed too, or with
        ``moved`` set aside."""
        if self._completion is not None:
            # At once: the name may soon belong to another log, whose folder must not get these epochs.
            self._completion.leave_out(name)
        topic_id = self._owners.get(name, "") if deleted or moved else ""
        self._drop(name)
        fate = checkpoint_files.MOVED if moved and topic_id else ""
        self._add(checkpoint_files.LogForgotten(name, topic_id + fate), durable=durable)

    def lower(self, name: checkpoint_files.LogName, leo: Offset, *, durable: bool = True) -> None:
        """Lower HW and recovery point of a log to ``leo`` before it is truncated there (M41, M55).

        Before and not after: a crash in between then leaves a log that is longer than recorded, which recovery merely
        checks, instead of one that seems to have lost durable records.
        """
        for checkpoint in (self.recovery_points, self.high_watermarks):
            known = checkpoint.get(name)
            if known is not None and known > leo:
                checkpoint.put(name, leo)
                self.save(checkpoint, durable=durable)

    def settle(self) -> None:
        """Write all waiting changes with one append, and make them durable with one sync if any must be.

        Raises:
            StorageFailed: the disk failed, now or while the files were written.
        """
        self._look_at_completion()
        if self._waiting:
            saves, self._waiting = self._waiting, []
            # A full journal is synced even if nothing else ever is, because otherwise it would grow for ever.
            durable, self._waiting_durably = self._waiting_durably or self.journal.is_full, False
            self.journal.append(checkpoint_files.encode(saves), durable=durable)
        # Only if all frames are durable: a file must not hold a change that the journal could still lose.
        if self.journal.is_full and self._completion is None and self.journal.durable == self.journal.sequence:
            self._completion = self._round()
            self._completion.start()

    def _look_at_completion(self) -> None:
        completion = self._completion
        if completion is None or not completion.is_over:
            return
        self._completion = None
        if completion.error is not None:
            # In the loop thread, where it ends the process.
            raise completion.error
        if completion.is_complete:
            # Only now may the journal begin the file with these frames again.
            self.journal.complete = completion.sequence

    def _round(self) -> Completion:
        """Collect everything that the files do not hold. Values are copied, so the thread works independently."""
        logs, self._logs = self._logs, {}
        metadata, self._metadata = self._metadata, None
        offsets = {c.path: dict(c.offsets) for c in self.by_kind.values() if c.offsets or c.path.exists()}
        return Completion(self.directory, self.journal.sequence, offsets, metadata, logs)

    @property
    def begins_again(self) -> bool:
        """Whether the journal is absent or damaged, so that the files must hold everything before `open`."""
        return self.fault is not None or self.journal.begins_again

    def open(self) -> None:
        """Open the journal for writing. Raises `StorageFailed`."""
        self.journal.open(again=self.begins_again)

    def complete(self) -> None:
        """Write the files now, durably; for a start that begins another journal. Raises `StorageFailed`."""
        completion = self._round()
        completion.write(durable=True)
        self.journal.complete = completion.sequence

    def write_files(self) -> None:
        """Write the files now, without a sync, for other programs to read; the journal still has everything.

        Raises:
            StorageFailed: the disk failed.
        """
        self._end_completion()
        self._round().write(durable=False)

    def _end_completion(self) -> None:
        """Stop the thread; what it has not written must be written again."""
        completion = self._completion
        if completion is None:
            return
        completion.stop()
        if not completion.is_complete and completion.error is None:
            self._completion = None
            for name, files in completion.logs.items():
                if not completion.wrote_all_of(name):
                    newer = self._logs.get(name, LogFiles())
                    epochs = files.epochs if newer.epochs is None else newer.epochs
                    self._logs[name] = LogFiles(newer.topic_id or files.topic_id, epochs)
            self._metadata = self._metadata or completion.metadata
        self._look_at_completion()

    def close(self) -> None:
        """Stop the thread and close the journal; waiting changes are dropped, as in a crash."""
        if self._completion is not None:
            self._completion.stop()
        self.journal.close()
