"""One passage through what is committed of the logs: from where it begins, and which records count by then.

An import passes twice where other sources are placed by the log: once to learn, once to write.

Invariant: records of a transaction come when it ends, and never if it is aborted or has no end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strandline.kafka.history.log_files import Copy, FoundBatch, Snapshot, read_records
from strandline.kafka.history.merging import Merge, Proof
from strandline.kafka.history.records import MetadataRecord
from strandline.kafka.history.wire import Unreadable


class Taken(NamedTuple):
    """One batch of the passage."""

    batch: FoundBatch
    read: list[MetadataRecord]
    """All its records."""
    ready: list[MetadataRecord]
    """Those that count from here on, among them what a transaction that ends here held back."""


class Passage:
    """The committed batches of several copies, from offset 0 or the oldest snapshot from which the log goes on."""

    def __init__(self, copies: Sequence[Copy], proof: Proof) -> None:
        self._copies = copies
        self._proof = proof
        self._held: list[MetadataRecord] | None = None
        self.dropped = 0
        """Records of transactions that were aborted, or without an end."""
        whole = [s for copy in copies for s in copy.snapshots if proof.first_offset <= s.end_offset < proof.proved_end]
        self.is_whole = proof.first_offset == 0 or bool(whole)
        """Whether nothing is missing at the beginning."""
        begins_within = proof.first_offset != 0 and bool(whole)
        self.start: Snapshot | None = min(whole, key=lambda each: each.end_offset) if begins_within else None
        """The snapshot to begin from; None where the log begins at 0, or its beginning is in none."""

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
        for batch, _ in Merge(self._copies).batches():
            if batch.header.next_offset > self._proof.proved_end:
                break
            if start is not None and batch.offset < start.end_offset:
                continue
            has_begun = True
            read = read_records(batch)
            yield Taken(batch, read, self._ready(read))
        self.dropped += len(self._held or ())
        if start is not None and not has_begun:
            raise Unreadable(f"{start.path}: no committed record follows the snapshot; there is nothing to import")

    def _ready(self, read: list[MetadataRecord]) -> list[MetadataRecord]:
        ready: list[MetadataRecord] = []
        for record in read:
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
