"""One passage through what is committed of the logs: from where it begins, and which records count by then.

An import reads the files once, to prove the log and to learn (`skeleton`), and passes through what it kept of them to
write: what explains a change may stand anywhere behind it, and nothing is written before all of it was readable.

Invariant: records of a transaction come when it ends, and never if it is aborted or has no end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from strandline.kafka.history.kept import Kept
from strandline.kafka.history.log_files import Copy, FoundBatch, Snapshot, read_records
from strandline.kafka.history.merging import Merge, Proof
from strandline.kafka.history.records import MetadataRecord
from strandline.kafka.history.wire import Unreadable

_WITHIN = {"BeginTransaction": False, "EndTransaction": True, "AbortTransaction": True}
"""Whether a record stands within a transaction."""


class Taken(NamedTuple):
    """One batch of the passage."""

    batch: FoundBatch
    read: list[MetadataRecord]
    """All its records."""
    ready: list[MetadataRecord]
    """Those that count from here on, among them what a transaction that ends here held back."""


class Beginning(NamedTuple):
    """Where a passage begins."""

    is_whole: bool
    """Whether nothing is missing before it."""
    start: Snapshot | None
    """The snapshot to begin from; None where the log begins at 0, or its beginning is in none."""


def beginning_of(copies: Sequence[Copy], first_offset: int, proved_end: int) -> Beginning:
    """From where a log that reaches from one offset to another can be replayed."""
    whole = [s for copy in copies for s in copy.snapshots if first_offset <= s.end_offset < proved_end]
    begins_within = first_offset != 0 and bool(whole)
    start = min(whole, key=lambda each: each.end_offset) if begins_within else None
    return Beginning(first_offset == 0 or bool(whole), start)


class Transactions:
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
        self._transactions = Transactions()
        self.is_whole, self.start = beginning_of(copies, proof.first_offset, proof.proved_end)

    @property
    def dropped(self) -> int:
        """Records of transactions that were aborted, or without an end, once the passage is over."""
        return self._transactions.dropped + self._transactions.unended

    def checks(self) -> list[Snapshot]:
        """The snapshots that the replayed state must equal, by the offsets at which they end."""
        if not self.is_whole:
            return []
        begin = 0 if self.start is None else self.start.end_offset
        found = (s for copy in self._copies for s in copy.snapshots)
        return sorted((s for s in found if s.end_offset > begin), key=lambda each: each.end_offset)

    def batches(self) -> Iterator[Taken]:
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
            yield Taken(batch, read, self._transactions.ready(batch.path, read))
        if start is not None and not has_begun:
            raise Unreadable(f"{start.path}: no committed record follows the snapshot; there is nothing to import")

    def _all(self) -> Iterator[FoundBatch]:
        if self._kept.is_complete:
            return self._kept.batches()
        return (batch for batch, _ in Merge(self._copies).batches())
