"""One pass through the committed part of the logs: where it begins, and which records count at each point.

An import reads the files once, to prove the log and to learn (`skeleton`), and passes through the kept batches to
write: the reason for a change may come anywhere after it, and nothing is written before all of it was readable.

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
"""Whether a record is within a transaction."""


class PassageBatch(NamedTuple):
    """One batch of the passage."""

    batch: FoundBatch
    read: list[MetadataRecord]
    """All its records."""
    ready: list[MetadataRecord]
    """Records that count from here on, including those held back by a transaction that ends here."""


class Beginning(NamedTuple):
    """The start of a passage."""

    is_whole: bool
    """Whether nothing is missing before it."""
    start: SnapshotFile | None
    """The snapshot to begin from; None if the log begins at 0, or no snapshot has its beginning."""


def beginning_of(copies: Sequence[Copy], first_offset: int, proved_end: int) -> Beginning:
    """The place from which a log between two offsets can be replayed."""
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
        """The number of records that wait for the end of their transaction."""
        return len(self._held or ())

    def ready(self, path: Path, read: list[MetadataRecord]) -> list[MetadataRecord]:
        """The records that count once these records of a file were read.

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
# Selects the part of a history that becomes an export: everything, or the events of one window.
#
# Earlier records are still replayed, so that the window begins with the state of every partition.

_FOREVER_US = 1 << 62


class Window(NamedTuple):
    """[start_us, end_us), in microseconds since 1970 by the clock of the writer."""

    start_us: int = 0
    end_us: int = _FOREVER_US

    @property
    def has_start(self) -> bool:
        """Whether it has a start, before which there may be events."""
        return self.start_us > 0

    def holds(self, at_us: int) -> bool:
        """Whether a moment is within it."""
        return self.start_us <= at_us < self.end_us


EVERYTHING = Window()


# ---- silences
# Finds when a controller decided nothing for long: no record for more than three periods of its idle record (A14).
#
# An election of controllers writes a record of its own, which decides nothing and ends no silence.

_IDLE_MS = 500
"""The default interval of an idle controller's NoOp; a longer interval is measured."""
_ELECTION = "LeaderChange"
_PERIODS_OF_SILENCE = 3
_MEASURED, _ENOUGH = 101, 10


class Silences:
    """Takes records in the order of the log."""

    def __init__(self) -> None:
        self._intervals: deque[int] = deque(maxlen=_MEASURED)
        self._last: MetadataRecord | None = None

    def passed(self, record: MetadataRecord) -> int | None:
        """The silence before a record in ms; None if there was none."""
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
        # The median is computed only where it matters, which is rare.
        return len(self._intervals) >= _ENOUGH and passed_ms > _PERIODS_OF_SILENCE * median(self._intervals)
