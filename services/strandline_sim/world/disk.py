"""The disk of a simulated machine: what it still holds after its process, its power or the whole disk is lost.

Invariants: `kill` keeps every byte that was written, `lose_power` what was synced and some prefix of the rest, and
`wipe` nothing, under a new directory id; what recovery hands over is durable (TR17), and batches win over the epoch
checkpoint (M55).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from pathlib import Path

from strandline.core.log.producers import ProducerLedger
from strandline.core.messages import MetadataImage
from strandline.core.types import (
    NO_TRANSACTIONS,
    BatchHeader,
    EpochEntry,
    LeaderEpoch,
    Offset,
    ProducerBatch,
    TopicPartition,
    TransactionState,
)
from strandline.storage.journal import HEAD_BYTES, FoundJournal, Journal, judge, read_file
from strandline_sim.world.draws import Draw, mix2

# ---- journal
# The journal of a simulated disk: the services' own (`storage.journal`), over two files in memory.
#
# Invariant: whatever survives of the unsynced data, a loss of power takes no frame that was durable (M58); so it may
# come between a frame of one file and the next frame, which is in the other.

_FRAMES = 5
"""The number of frames after which the files take turns: few, so that it happens often in every run."""


class MemoryJournal(Journal):
    """Frames without a payload: what they hold is kept by the simulated disk. ``at_least`` was durable once."""

    def __init__(self, first: bytes = b"", second: bytes = b"", *, at_least: int = 0) -> None:
        is_new = not first and not second
        found = FoundJournal(exists=False) if is_new else judge((read_file(first), read_file(second)), at_least)
        super().__init__(Path(), found, _FRAMES * HEAD_BYTES)
        self._written, self._synced = [first, second], [first, second]

    def open_files(self) -> None:
        """Do nothing: the files exist."""
        self._fds = [0, 1]

    def write_file(self, buffers: list[bytes]) -> None:
        """Write to the page cache."""
        self._written[self._active] += b"".join(buffers)

    def sync_file(self) -> None:
        """Make all that was written durable."""
        self._synced[self._active] = self._written[self._active]

    def cut_file(self, size_bytes: int) -> None:
        """Cut in the page cache only."""
        self._written[self._active] = self._written[self._active][:size_bytes]

    def save(self, *, durable: bool) -> None:
        """Write what a step saved, as `storage.checkpoints` does; its files are written at once."""
        self.append(b"", durable=durable or self.is_full)
        if self.is_full:
            self.complete = self.sequence

    def lose_power(self, draw: Draw) -> MemoryJournal:
        """Keep of each file what was synced, with any part of what was written since."""
        left = []
        for written, synced in zip(self._written, self._synced, strict=True):
            kept = len(synced) if written.startswith(synced) else 0
            left.append(draw.choose((synced, written[: draw.between(kept, len(written))])))
        return MemoryJournal(*left, at_least=self.durable)


HashBelow = Callable[[int], int]


class CommitFailed(Exception):
    """A commit (fsync) failed."""


def _unknown(offset: int) -> int:
    return 0


class LogFile:
    """One log: its batches as written, how far it was synced, and its checkpoint files.

    ``hashes[i]`` identifies the whole log up to the end of batch i: two logs with equal hashes are equal up to there.
    """

    __slots__ = (
        "ends", "epochs", "flushing", "hashes", "headers", "hw_cached", "hw_durable", "log_start", "producers_below",
        "reconciled", "recovery_point", "recovery_point_durable", "root", "root_hash", "starts", "synced",
        "transactions_below", "values",
    )  # fmt: skip

    def __init__(self, root: int = 0, root_hash: int = 0) -> None:
        # First offset of every batch, and the offset after it; batches have no gaps, except after the root.
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.headers: list[BatchHeader] = []
        self.values: list[object] = []
        self.hashes: list[int] = []
        # Offset of the first record that this file has held since it was created or restarted.
        self.root = root
        self.root_hash = root_hash
        self.log_start = root
        # The state of producers below the root when the log began there.
        self.producers_below: tuple[ProducerBatch, ...] = ()
        self.transactions_below = NO_TRANSACTIONS
        self.synced = root
        # What the commit in progress will cover; None if there is none.
        self.flushing: int | None = None
        self.epochs: tuple[EpochEntry, ...] = ()
        self.hw_cached = self.hw_durable = 0
        # The durable end by the checkpoint, as written and as it survives a loss of power.
        self.recovery_point = self.recovery_point_durable = 0
        # Last leader epoch in which this log led or agreed with its leader (M66); always durable.
        self.reconciled: LeaderEpoch | None = None

    @property
    def leo(self) -> int:
        """Offset of the next record."""
        return self.ends[-1] if self.ends else self.root

    def append(self, header: BatchHeader, value: object, content: int) -> int:
        """Write a batch; ``content`` represents its bytes. Returns the hash of the log that ends with it."""
        base = header.base_offset
        before, leo = (self.hashes[-1], self.ends[-1]) if self.ends else (self.root_hash, self.root)
        assert base == leo, f"a batch at {base} on a log that ends at {leo}"
        after = mix2(before ^ (header.stamped_epoch << 40), content + base)
        self.starts.append(base)
        self.ends.append(base + header.record_count)
        self.headers.append(header)
        self.values.append(value)
        self.hashes.append(after)
        return after

    def index_of(self, offset: int) -> int:
        """The number of batches below ``offset``, which is a border between batches."""
        return bisect_left(self.starts, offset)

    def border_below(self, offset: int) -> int:
        """The last end of a batch at or below ``offset``."""
        index = bisect_left(self.starts, offset)
        if index and self.ends[index - 1] > offset:
            return self.starts[index - 1]
        return offset

    def hash_at(self, offset: int) -> int | None:
        """The hash of the log below ``offset``; None if it does not reach that far or no batch ends there."""
        if offset <= self.root:
            return self.root_hash if offset == self.root else None
        index = bisect_left(self.starts, offset) - 1
        if index < 0 or self.ends[index] != offset:
            return None
        return self.hashes[index]

    def cut(self, offset: int) -> None:
        """Drop every batch from ``offset`` on, including the one that contains it: batches are never split."""
        keep = bisect_left(self.starts, self.border_below(offset))
        del self.starts[keep:], self.ends[keep:], self.headers[keep:], self.values[keep:], self.hashes[keep:]
        self.synced = min(self.synced, self.leo)
        self.recovery_point = min(self.recovery_point, self.leo)
        self.recovery_point_durable = min(self.recovery_point_durable, self.leo)
        if self.flushing is not None:
            self.flushing = min(self.flushing, self.leo)

    def restart(
        self,
        offset: int,
        root_hash: int,
        producers: tuple[ProducerBatch, ...] = (),
        transactions: TransactionState = NO_TRANSACTIONS,
    ) -> None:
        """Drop everything and begin at ``offset``, durably, with the producer state below it."""
        self.producers_below, self.transactions_below = producers, transactions
        del self.starts[:], self.ends[:], self.headers[:], self.values[:], self.hashes[:]
        self.root = self.log_start = self.synced = offset
        self.root_hash, self.epochs = root_hash, ()
        if self.flushing is not None:
            self.flushing = offset

    def begin_flush(self) -> int:
        """Issue a commit of all that is written. Returns the LEO it was issued at."""
        assert self.flushing is None, "two commits of one log at once"
        self.flushing = self.leo
        return self.flushing

    def end_flush(self) -> None:
        """The commit in progress succeeded."""
        assert self.flushing is not None
        self.synced, self.flushing = max(self.synced, self.flushing), None

    def producers(self) -> ProducerLedger:
        """The state of producers and their transactions, folded from the log (M61, X12)."""
        ledger = ProducerLedger(self.producers_below, self.transactions_below)
        for header in self.headers:
            ledger.observe(header, header.base_offset)
        return ledger

    def lose_power(self, draw: Draw) -> int:
        """Keep what was synced and some prefix of the rest. Returns how many records were lost."""
        first = bisect_left(self.starts, self.synced)
        borders = [self.synced, *self.ends[first:]]
        before, keep = self.leo, draw.choose(borders)
        self.cut(keep)
        self.hw_cached = self.hw_durable
        self.recovery_point = self.recovery_point_durable
        return before - keep

    def copy(self) -> LogFile:
        """This file as a backup keeps it: what was written is durable in the copy."""
        twin = LogFile(self.root, self.root_hash)
        for name in ("starts", "ends", "headers", "values", "hashes"):
            setattr(twin, name, list(getattr(self, name)))
        for name in (
            "log_start",
            "epochs",
            "hw_cached",
            "recovery_point",
            "reconciled",
            "producers_below",
            "transactions_below",
        ):
            setattr(twin, name, getattr(self, name))
        twin.synced, twin.hw_durable, twin.recovery_point_durable = twin.leo, twin.hw_cached, twin.recovery_point
        return twin

    def lose_from(self, offset: int) -> int:
        """Damage: everything from ``offset`` on is lost, synced or not; the checkpoints stay as they are.

        Returns how many records were lost.
        """
        before, points = self.leo, (self.recovery_point, self.recovery_point_durable)
        self.cut(offset)
        self.recovery_point, self.recovery_point_durable = points
        return before - self.leo

    def recover(self, hash_below: HashBelow = _unknown) -> bool:
        """Bring the files in line with the batches; all is durable then. Returns whether records are missed (M58).

        ``hash_below`` gives what was committed below an offset, for a log that begins again there.
        """
        self.flushing = None
        leo = self.leo
        missed = leo < self.recovery_point or leo < self.hw_cached
        if leo < self.log_start:
            # What remains was deleted before; the log starts again, empty, at its recorded start.
            self.restart(self.log_start, hash_below(self.log_start), self.producers_below, self.transactions_below)
        self.epochs = self._believed_epochs()
        self.synced = self.leo
        # Lowered once the loss is marked: the next start must not report it again.
        self.hw_cached = self.hw_durable = min(self.hw_cached, self.leo)
        self.recovery_point = self.recovery_point_durable = min(self.recovery_point, self.leo)
        return missed

    def _believed_epochs(self) -> tuple[EpochEntry, ...]:
        """The checkpoint where it agrees with the batches, else the batches; nothing begins at or above the LEO."""
        leo = self.leo
        first = bisect_left(self.starts, self.log_start)
        entries = [entry for entry in self.epochs if entry.start_offset < leo]
        for header in self.headers[first:]:
            if not entries or header.stamped_epoch > entries[-1].epoch:
                entries.append(EpochEntry(header.stamped_epoch, Offset(header.base_offset)))
        return tuple(entries)


class Disk:
    """Everything that one machine stores. ``copy`` counts the disks that this machine has had."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.copy = 0
        self.logs: dict[TopicPartition, LogFile] = {}
        self.journal = MemoryJournal()
        self.seen: MetadataImage | None = None
        self.cluster_id: str | None = None
        self.is_unclean = False
        self.was_stopped_cleanly = True
        # The processes recorded in the directory; None if it was never used (M67).
        self.incarnations: tuple[str, ...] | None = None

    def begin_incarnation(self, incarnation_id: str) -> tuple[str, ...]:
        """Record a process before it registers, as `storage.incarnations` does."""
        known = self.incarnations
        self.incarnations = (*(known or ()), incarnation_id)
        return () if known is None else self.incarnations

    def confirm_incarnation(self, incarnation_id: str) -> None:
        """The controller registered this process."""
        self.incarnations = (incarnation_id,)

    @property
    def directory_id(self) -> str:
        """Identifies this disk: a machine with another disk has another directory."""
        return f"dir-{self._node_id}-{self.copy}"

    def copied(self) -> Disk:
        """The whole directory, as a backup taken now holds it."""
        twin = Disk(self._node_id)
        twin.copy, twin.seen, twin.cluster_id = self.copy, self.seen, self.cluster_id
        twin.is_unclean, twin.was_stopped_cleanly = self.is_unclean, self.was_stopped_cleanly
        twin.incarnations = self.incarnations
        twin.logs = {tp: log.copy() for tp, log in self.logs.items()}
        return twin

    def wipe(self) -> None:
        """Replace this disk by a new, empty one."""
        self.copy += 1
        self.logs, self.journal, self.seen, self.cluster_id = {}, MemoryJournal(), None, None
        self.is_unclean, self.was_stopped_cleanly = False, True
        self.incarnations = None

    def lose_power(self, draw: Draw) -> int:
        """Every log loses some of its unsynced data. Returns how many records were lost in all."""
        return sum(log.lose_power(draw) for log in self.logs.values())

    def recover(
        self, *, trusts_only_clean_stops: bool, hash_below: Callable[[TopicPartition, int], int] = lambda tp, offset: 0
    ) -> None:
        """Open the data directory, as is done before the process registers."""
        missed = [log.recover(partial(hash_below, tp)) for tp, log in self.logs.items()]
        if any(missed) or (trusts_only_clean_stops and not self.was_stopped_cleanly):
            self.is_unclean = True
        self.was_stopped_cleanly = False
