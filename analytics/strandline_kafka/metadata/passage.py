"""One passage through what is committed of the logs: from where it begins, and which records count by then.

An import reads the files once, to prove the log and to learn (`skeleton`), and passes through what it kept of them to
write: what explains a change may stand anywhere behind it, and nothing is written before all of it was readable.

Invariant: records of a transaction come when it ends, and never if it is aborted or has no end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from strandline_kafka.metadata.log_files import Copy, FoundBatch, SnapshotFile, read_records
from strandline_kafka.metadata.merging import Kept, Merge, Proof
from strandline_kafka.metadata.records import MetadataRecord
from strandline_kafka.metadata.wire import Unreadable

_WITHIN = {"BeginTransaction": False, "EndTransaction": True, "AbortTransaction": True}
"""Whether a record stands within a transaction."""


class PassageBatch(NamedTuple):
    """One batch of the passage."""

    batch: FoundBatch
    read: list[MetadataRecord]
    """All its records."""
    ready: list[MetadataRecord]
    """Records that count from here on, among them what a transaction that ends here held back."""


class Beginning(NamedTuple):
    """Where a passage begins."""

    is_whole: bool
    """Whether nothing is missing before it."""
    start: SnapshotFile | None
    """The snapshot to begin from; None where the log begins at 0, or its beginning is in none."""


def beginning_of(copies: Sequence[Copy], first_offset: int, proved_end: int) -> Beginning:
    """From where a log that reaches from one offset to another can be replayed."""
    whole = [s for copy in copies for s in copy.snapshots if first_offset <= s.end_offset < proved_end]
    begins_within = first_offset != 0 and bool(whole)
    start = min(whole, key=lambda each: each.end_offset) if begins_within else None
    return Beginning(first_offset == 0 or bool(whole), start)


class HeldTransactions:
    """Holds records of a transaction back until it ends."""

    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None
        self._first: int | None = None
        self.dropped = 0
        """Records of transactions that were aborted."""

    @property
    def unended(self) -> int:
        """How many records wait for the end of theirs."""
        return len(self._held or ())

    def ready(self, path: Path, read: list[MetadataRecord]) -> list[MetadataRecord]:
        """The records that count once these of a file were read.

        Raises:
            Unreadable: a transaction begins within another one, or ends without its begin.
        """
        ready: list[MetadataRecord] = []
        for record in read:
            self._first = record.offset if self._first is None else self._first
            is_misplaced = record.kind in _WITHIN and (self._held is None) == _WITHIN[record.kind]
            # A log that begins later may begin within a transaction.
            if is_misplaced and (self._held is not None or self._first == 0):
                where = "within a transaction" if self._held is not None else "without a BeginTransaction"
                raise Unreadable(f"{path}: offset {record.offset}: {record.kind} stands {where}; it is damaged")
            if record.kind == "BeginTransaction":
                self._held = []
            elif record.kind == "AbortTransaction":
                self.dropped += len(self._held or ())
                self._held = None
            elif record.kind == "EndTransaction":
                ready += self._held or ()
                self._held = None
            elif self._held is not None:
                self._held.append(record)
            else:
                ready.append(record)
        return ready


class Passage:
    """The committed batches of several copies, from offset 0 or the oldest snapshot from which the log goes on."""

    def __init__(self, copies: Sequence[Copy], kept: Kept, proof: Proof) -> None:
        self._copies = copies
        self._kept = kept
        self._proof = proof
        self._transactions = HeldTransactions()
        self.is_whole, self.start = beginning_of(copies, proof.first_offset, proof.proved_end)

    @property
    def dropped(self) -> int:
        """Records of transactions that were aborted, or without an end, once the passage is over."""
        return self._transactions.dropped + self._transactions.unended

    def checks(self) -> list[SnapshotFile]:
        """The snapshots that the replayed state must equal, by the offsets at which they end."""
        if not self.is_whole:
            return []
        begin = 0 if self.start is None else self.start.end_offset
        found = (s for copy in self._copies for s in copy.snapshots)
        return sorted((s for s in found if s.end_offset > begin), key=lambda each: each.end_offset)

    def batches(self) -> Iterator[PassageBatch]:
        """Every batch behind the start.

        Raises:
            Unreadable: as `Merge.batches`; or no committed batch follows the snapshot.
        """
        start, has_begun = self.start, False
        for batch in self._all():
            if batch.header.next_offset > self._proof.proved_end:
                break
            if start is not None and batch.offset < start.end_offset:
                continue
            has_begun = True
            read = read_records(batch)
            yield PassageBatch(batch, read, self._transactions.ready(batch.path, read))
        if start is not None and not has_begun:
            raise Unreadable(f"{start.path}: no committed record follows the snapshot; there is nothing to import")

    def _all(self) -> Iterator[FoundBatch]:
        if self._kept.is_complete:
            return self._kept.batches()
        return (batch for batch, _ in Merge(self._copies).batches())


# ---- window
# Which part of a history becomes an export: everything, or the events of one window.
#
# What lies before is replayed all the same, so that the window begins with the state of every partition.

_FOREVER_US = 1 << 62


class Window(NamedTuple):
    """[start_us, end_us), in microseconds since 1970 by the clock of the writer."""

    start_us: int = 0
    end_us: int = _FOREVER_US

    @property
    def has_start(self) -> bool:
        """Whether something may lie before it."""
        return self.start_us > 0

    def holds(self, at_us: int) -> bool:
        """Whether a moment lies within."""
        return self.start_us <= at_us < self.end_us


EVERYTHING = Window()


# ---- silences
# When a controller decided nothing for long: no record came for more than three periods of its idle record (A14).
#
# An election of controllers writes a record of its own, which decides nothing and ends no silence.

_IDLE_MS = 500
"""How often an idle controller writes a NoOp by default; measured, where that is less often."""
_ELECTION = "LeaderChange"
_PERIODS_OF_SILENCE = 3
_MEASURED, _ENOUGH = 101, 10


class Silences:
    """Takes records in the order of the log."""

    def __init__(self) -> None:
        self._intervals: deque[int] = deque(maxlen=_MEASURED)
        self._last: MetadataRecord | None = None

    def passed(self, record: MetadataRecord) -> int | None:
        """How many ms of silence were before a record; None if there were none."""
        if record.kind == _ELECTION:
            return None
        last, self._last = self._last, record
        if last is None:
            return None
        passed_ms = record.timestamp_ms - last.timestamp_ms
        # Nearly every record comes within the default.
        if passed_ms > _PERIODS_OF_SILENCE * _IDLE_MS and self._is_silence(passed_ms):
            return passed_ms
        if record.kind == last.kind == "NoOp":
            self._intervals.append(passed_ms)
        return None

    def _is_silence(self, passed_ms: int) -> bool:
        # The median is looked for only where it decides, which is seldom.
        return len(self._intervals) >= _ENOUGH and passed_ms > _PERIODS_OF_SILENCE * median(self._intervals)
