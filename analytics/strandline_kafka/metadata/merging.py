"""Merges the copies of several nodes into one log, and proves up to which offset it is committed.

Invariant: at every offset there is one batch. Where copies differ, that of the higher epoch is in the log: a batch
that was committed is in the log of every later leader.
"""

from __future__ import annotations

import struct
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import NamedTuple, Protocol

from strandline.records.batch import CONTROL_BIT, HEADER_BYTES, parse_header
from strandline_kafka.metadata.log_files import Copy, FoundBatch, read_records
from strandline_kafka.metadata.wire import Unreadable

# ---- kept
# Keeps the merged log as it was read, so that Kafka's files are read only once.
#
# A controller deletes segments below its snapshots at any time, and appends meanwhile: exactly what was proved has to
# be written, whatever happened to the files since.
#
# Invariant: at most `MOST_IN_MEMORY` bytes are in memory; with more, all of it is in a file without a name, in the
# directory for temporary files. The returned batches are what was read and checked, byte by byte.

MOST_IN_MEMORY = 16 << 20
_PLACE = struct.Struct(">II")
"""The file that contained a batch, and its size."""


class Kept:
    """Batches in the order in which they were added."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=MOST_IN_MEMORY)  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._file.close)
        self._paths: dict[Path, int] = {}
        self.is_complete = True
        """Whether everything that was added is kept: batches that were read from a text have no bytes to keep."""

    def add(self, batch: FoundBatch) -> None:
        """Keep one more batch.

        Raises:
            OSError: there is no room for temporary files.
        """
        if batch.records is not None:
            self.is_complete = False
            return
        number = self._paths.setdefault(batch.path, len(self._paths))
        self._file.write(_PLACE.pack(number, len(batch.content)))
        self._file.write(batch.content)

    def batches(self) -> Iterator[FoundBatch]:
        """Every batch, from the first on; only one iteration at a time."""
        paths = list(self._paths)
        self._file.seek(0)
        while place := self._file.read(_PLACE.size):
            number, size = _PLACE.unpack(place)
            content = self._file.read(size)
            yield FoundBatch(parse_header(content[:HEADER_BYTES]), content, paths[number])


MOST_WAITING_BYTES = 32 << 20
"""The most bytes of batches that wait for a later batch to prove them."""


class Agreed(NamedTuple):
    """A batch of the merged log, and its holders."""

    batch: FoundBatch
    holders: frozenset[int]
    """The nodes that hold it, as far as they are known."""


@dataclass(slots=True)
class Proof:
    """How far the merged log reaches, and how far it is committed."""

    first_offset: int
    end_offset: int
    proved_end: int
    voters: frozenset[int]
    first_ms: int
    """When the first and the last batch were written, ms since 1970."""
    last_ms: int
    proved_ms: int
    """When the last proved batch was written, ms since 1970."""
    notes: list[str] = field(default_factory=list)


class Hearer(Protocol):
    """Takes proved batches while they are read, so that they need not be read again."""

    def take(self, batch: FoundBatch) -> None:
        """The next batch that is proved, in order of offsets."""

    def lose(self) -> None:
        """Batches are missing from here on: too many waited for their proof."""


class Merge:
    """The batches of several copies as one log; ``notes`` lists the places where a copy differed."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._copies = copies
        self.notes: list[str] = []

    def batches(self) -> Iterator[Agreed]:
        """Every batch of the merged log, in order of offsets.

        Raises:
            Unreadable: a copy is damaged, offsets are in no copy, or two copies contradict each other.
        """
        self.notes = []
        rows = [(copy, copy.batches()) for copy in self._copies]
        heads = [(copy, row, batch) for copy, row in rows if (batch := next(row, None)) is not None]
        expected = min((batch.offset for _, _, batch in heads), default=0)
        while heads:
            if len(heads) == 1 and heads[0][2].offset == expected:
                # With one copy left there is nothing to compare; `Copy.batches` has checked that nothing is missing.
                ((copy, row, batch),) = heads
                holders = frozenset[int]() if copy.node_id is None else frozenset((copy.node_id,))
                yield Agreed(batch, holders)
                for batch in row:
                    yield Agreed(batch, holders)
                return
            here = [each for each in heads if each[2].offset == expected]
            if not here:
                raise self._gap(expected, heads)
            chosen = self._chosen(here, expected)
            nodes = (copy.node_id for copy, _, batch in here if batch.equals(chosen))
            yield Agreed(chosen, frozenset(node for node in nodes if node is not None))
            expected = chosen.header.next_offset
            later = [each for each in heads if each[2].offset != chosen.offset]
            for copy, row, batch in here:
                if batch.equals(chosen) and (following := next(row, None)) is not None:
                    later.append((copy, row, following))
            heads = later

    def _chosen(self, here: list[tuple[Copy, Iterator[FoundBatch], FoundBatch]], offset: int) -> FoundBatch:
        newest = max((batch for _, _, batch in here), key=lambda batch: batch.header.stamped_epoch)
        for copy, _, batch in here:
            if batch.equals(newest):
                continue
            if batch.header.stamped_epoch == newest.header.stamped_epoch:
                raise Unreadable(
                    f"{batch.path} and {newest.path} hold different batches of epoch {newest.header.stamped_epoch} at "
                    f"offset {offset}; one is damaged or of another cluster, leave it out"
                )
            self.notes.append(f"{copy.name}: from offset {offset} on it holds what was never committed; left out")
        return newest

    def _gap(self, expected: int, heads: list[tuple[Copy, Iterator[FoundBatch], FoundBatch]]) -> Unreadable:
        nearest = min((each for each in heads), key=lambda each: each[2].offset)
        if nearest[2].offset < expected:
            return Unreadable(f"{nearest[2].path}: offset {nearest[2].offset} lies within a batch of another copy")
        return Unreadable(
            f"offsets {expected} to {nearest[2].offset - 1} are in no copy; give the log of a node that has them, "
            f"or only copies that begin at {nearest[2].offset}"
        )


def prove(copies: Sequence[Copy], kept: Kept, hearer: Hearer, *, trust_tail: bool, committed_below: int = 0) -> Proof:
    """Read all batches once and find the offset up to which they are committed.

    A batch is proved if a snapshot contains it, most voters hold it, the quorum has one voter, or the quorum itself
    calls it committed.

    Args:
        kept: is given each batch of the merged log.
        hearer: is given each batch as soon as it is proved.
        committed_below: the high watermark of the quorum, if it was asked.

    Raises:
        Unreadable: as `Merge.batches`; or there is not one batch; or the hearer refuses one.
    """
    voters = frozenset[int]().union(*(copy.voters for copy in copies))
    merge, waiting = Merge(copies), _WaitingBatches(hearer)
    first: int | None = None
    end = proved = first_ms = last_ms = proved_ms = 0
    snapshot_end = max((snapshot.end_offset for copy in copies for snapshot in copy.snapshots), default=0)
    for batch, holders in merge.batches():
        if first is None:
            first, first_ms = batch.offset, batch.header.base_timestamp_ms
        last_ms = max(last_ms, batch.header.max_timestamp_ms)
        if batch.header.attributes & CONTROL_BIT:
            voters = _voters(batch) or voters
        end = batch.header.next_offset
        kept.add(batch)
        waiting.add(batch)
        is_held = len(voters) == 1 or (voters and 2 * len(holders & voters) > len(voters))
        if is_held or trust_tail or end <= max(committed_below, snapshot_end):
            proved, proved_ms = end, max(proved_ms, batch.header.max_timestamp_ms)
            waiting.give()
    if first is None:
        raise Unreadable(f"{', '.join(copy.name for copy in copies)}: there is not one whole batch")
    return Proof(first, end, proved, voters, first_ms, last_ms, proved_ms, merge.notes)


class _WaitingBatches:
    """Batches that are passed on when a later one proves them. Invariant: at most `MOST_WAITING_BYTES` wait."""

    def __init__(self, hearer: Hearer) -> None:
        self._hearer = hearer
        self._batches: deque[FoundBatch] = deque()
        self._bytes = 0
        self._is_lost = False

    def add(self, batch: FoundBatch) -> None:
        if self._is_lost:
            return
        self._batches.append(batch)
        self._bytes += len(batch.content)
        if self._bytes > MOST_WAITING_BYTES:
            self._is_lost = True
            self._batches.clear()
            self._hearer.lose()

    def give(self) -> None:
        while self._batches:
            self._hearer.take(self._batches.popleft())
        self._bytes = 0


def _voters(batch: FoundBatch) -> frozenset[int]:
    """The voters from a batch on, by the election or the change of a dynamic quorum (KIP-853) in it."""
    for one in read_records(batch):
        if one.kind in ("LeaderChange", "KRaftVoters") and one.fields:
            return frozenset(voter["voter_id"] for voter in one.fields["voters"])
    return frozenset()
