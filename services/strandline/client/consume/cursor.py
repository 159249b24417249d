"""What one partition's fetch answers mean to a consumer: records, a wait, another leader, a lost place.

Invariant: what is given to the user has no gap and no overlap (P4): bytes are kept only if they hold the very
offset that was asked for and are dense from there on; an answer from before a seek is dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

from strandline.client import records
from strandline.client.errors import UnreadableBatch
from strandline.client.log import RetryLog
from strandline.client.records import ConsumerRecord, FetchedRecords
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import EARLIEST, LATEST, Endpoint
from strandline.core.types import EpochEnd, LeaderEpoch, Offset, TopicPartition
from strandline.records.batch import Buffer, committed, crc_matches, split_batches
from strandline.records.codec import Record, Row, decode_rows
from strandline.rpc.channels import Backoff

_ANY_SIZE = 1 << 31
_TROUBLE_ENDS_AFTER_MS = 10_000
"""Longer than it takes to try again and fail again; a fetch that is parked meanwhile works without an answer."""
_CORRUPT_ANSWERS_BORNE = 5
"""A damaged answer is asked for again so many times before the user hears of it."""


class FetchedChunk(NamedTuple):
    """Whole batches as they came, and the offset from which they were asked for."""

    payload: Buffer
    start: Offset
    end: Offset
    high_watermark: Offset | None
    aborted: tuple[tuple[int, Offset], ...] = ()
    """(producer id, first offset) of the aborted transactions whose records are among them."""


class FetchAnswer(NamedTuple):
    """One partition's answer, as far as a consumer needs it."""

    refusal: Refusal | None
    high_watermark: Offset | None
    log_start_offset: Offset | None
    diverging: EpochEnd | None
    payload: Buffer
    aborted: tuple[tuple[int, Offset], ...] = ()


class WantedFetch(NamedTuple):
    """What is asked of a node for one partition."""

    tp: TopicPartition
    offset: Offset
    last_fetched_epoch: LeaderEpoch | None
    current_leader_epoch: LeaderEpoch | None


@dataclass(slots=True, eq=False)
class Cursor:
    """A consumer's position in one partition."""

    topic: str
    tp: TopicPartition
    # Where to begin: a time in ms, EARLIEST or LATEST, until `position` is known.
    seek_time: int | None = EARLIEST
    # Next offset to give to the user; the one to fetch next runs ahead of it by what is buffered.
    position: Offset | None = None
    # Whether to begin where the consumer's group has committed, if it has.
    is_committed_first: bool = False
    # Whether that is the only place to begin at.
    is_committed_only: bool = False
    # The offset to begin at if it has not, instead of a time.
    otherwise: Offset | None = None
    fetch_offset: Offset | None = None
    last_epoch: LeaderEpoch | None = None
    stop_at: Offset | None = None
    high_watermark: Offset | None = None
    log_start_offset: Offset | None = None
    chunks: deque[FetchedChunk] = field(default_factory=deque)
    buffered_bytes: int = 0
    # The fetch under way: who was asked, and under which number.
    outstanding: tuple[object, int] | None = None
    # Where it was asked for last, and in which leader epoch.
    asked: tuple[Endpoint, LeaderEpoch] | None = None
    resume_at_ms: float = 0.0
    backoff: Backoff = field(default_factory=Backoff)
    retry: RetryLog = field(init=False)
    corrupt_answers: int = 0
    failure: Refused | None = None
    # What `Consumer.pause` withholds stays buffered.
    is_paused: bool = False
    # While its group takes it away, and before the user has heard of it, nothing is given and nothing fetched.
    is_withheld: bool = False
    # Records that are given one by one, unpacked from the oldest chunk, and what they came with.
    unpacked: deque[ConsumerRecord[Any, Any]] = field(default_factory=deque)
    unpacked_from: FetchedRecords | None = None
    # The position once all of them are given: behind them may lie markers, and records that are not given.
    unpacked_end: Offset = Offset(0)
    # Counts seeks, so that what was read before one is not given after it.
    generation: int = 0

    def __post_init__(self) -> None:
        self.retry = RetryLog(f"reading {self.topic}-{self.tp.partition}", forgets_after_ms=_TROUBLE_ENDS_AFTER_MS)

    @property
    def name(self) -> records.TopicPartition:
        """The partition as users name it."""
        return records.TopicPartition(self.topic, self.tp.partition)

    @property
    def is_finished(self) -> bool:
        """Whether everything up to the stop offset was given to the user."""
        return self.stop_at is not None and self.position is not None and self.position >= self.stop_at

    @property
    def has_records(self) -> bool:
        """Whether there may be records to give now."""
        return not self.is_paused and not self.is_withheld and bool(self.unpacked or self.chunks)

    @property
    def has_failed(self) -> bool:
        """Whether there is an error to raise, once all that was read before has been given."""
        return self.failure is not None and not self.is_withheld and not self.unpacked and not self.chunks

    @property
    def is_lost(self) -> bool:
        """Whether the position has yet to be found."""
        return self.position is None and self.failure is None

    def may_fetch(self, now_ms: float, limit_bytes: int) -> bool:
        """Whether a fetch for it shall be sent now."""
        if self.outstanding is not None or self.fetch_offset is None or self.failure is not None:
            return False
        if self.is_paused or self.is_withheld:
            return False
        if self.stop_at is not None and self.fetch_offset >= self.stop_at:
            return False
        return self.buffered_bytes < limit_bytes and now_ms >= self.resume_at_ms

    def wanted(self, epoch: LeaderEpoch | None) -> WantedFetch:
        """The fetch to send, to a node that knows leader epoch ``epoch``."""
        assert self.fetch_offset is not None
        return WantedFetch(self.tp, self.fetch_offset, self.last_epoch, epoch)

    def seek(self, *, offset: Offset | None = None, time: int | None = None) -> None:
        """Go to an offset, or to where a time (or EARLIEST, LATEST) will be found."""
        self.position = self.fetch_offset = offset
        self.seek_time = time if offset is None else None
        self.is_committed_first = False
        self.last_epoch, self.failure = None, None
        self.chunks.clear()
        self.unpacked.clear()
        self.buffered_bytes = 0
        self.resume_at_ms = 0.0
        self.generation += 1

    def begin_at_committed(self) -> None:
        """Begin where the group has committed; where it was to begin before is for when it has nothing (U12)."""
        self.is_committed_first = True
        self.otherwise, self.position, self.fetch_offset = self.position, None, None

    def nothing_committed(self) -> None:
        """The group has committed nothing here."""
        self.is_committed_first = False
        if self.otherwise is not None:
            self.found(self.otherwise)

    def found(self, offset: Offset) -> None:
        """The position that was looked for."""
        if self.is_lost:
            self.position = self.fetch_offset = offset
            self.seek_time = None

    def take(self, answer: FetchAnswer) -> None:
        """Keep what was read.

        Raises:
            Refused: CORRUPT_MESSAGE, the bytes are damaged, or are not what was asked for.
        """
        self.high_watermark, self.log_start_offset = answer.high_watermark, answer.log_start_offset
        self.backoff.reset()
        if not answer.payload:
            return
        assert self.fetch_offset is not None
        end, epoch = _check(answer.payload, self.fetch_offset)
        self.chunks.append(FetchedChunk(answer.payload, self.fetch_offset, end, answer.high_watermark, answer.aborted))
        self.buffered_bytes += len(answer.payload)
        self.fetch_offset, self.last_epoch = end, epoch
        self.corrupt_answers = 0

    def later(self, now_ms: float) -> None:
        """Nothing to be had now: ask again after a wait that grows."""
        self.resume_at_ms = now_ms + self.backoff.next_s() * 1000

    def damaged(self, refused: Refused, now_ms: float) -> None:
        """Ask again; after several damaged answers in a row report it to the user."""
        self.corrupt_answers += 1
        if self.corrupt_answers >= _CORRUPT_ANSWERS_BORNE:
            self.failure = refused
        self.later(now_ms)

    def pop_records(self, kind: type[tuple[Any, ...]] = Record, before: tuple[Any, ...] = ()) -> FetchedRecords:
        """The oldest buffered records with their epochs and HW; moves nothing but the buffer.

        They end in front of a batch that cannot be unpacked, which is then the failure of this cursor. ``kind`` is the
        named tuple to make of each, whose fields are those of `Record` behind ``before``.
        """
        chunk = self.chunks.popleft()
        self.buffered_bytes -= len(chunk.payload)
        rows: list[Row] = []
        epochs: list[tuple[Offset, LeaderEpoch]] = []
        end = chunk.end
        batches = split_batches(chunk.payload, _ANY_SIZE)
        for header, view in committed(batches, chunk.aborted) if chunk.aborted else batches:
            if self.stop_at is not None and header.base_offset >= self.stop_at:
                break
            try:
                rows += decode_rows(view)
            except Refused as refused:
                end = max(header.base_offset, chunk.start)
                self._cannot_read(refused.refusal, end, header.next_offset)
                break
            epochs.append((Offset(header.base_offset), header.stamped_epoch))
        if rows and rows[0][0] < chunk.start:
            rows = [row for row in rows if row[0] >= chunk.start]
        if self.stop_at is not None and chunk.end > self.stop_at:
            rows = [row for row in rows if row[0] < self.stop_at]
        if self.stop_at is not None:
            end = min(end, max(self.stop_at, chunk.start))
        if not rows:
            self.position = end
        # Once each, and in no loop of Python's: with small records this takes longer than the network.
        records: list[Any] = list(map(tuple.__new__, repeat(kind), map(before.__add__, rows) if before else rows))
        return FetchedRecords(self.topic, self.tp.partition, records, chunk.high_watermark, epochs, end)

    def unpack(self, fetched: FetchedRecords) -> None:
        """Give these, popped as `ConsumerRecord`, one by one."""
        given: list[Any] = fetched.records
        self.unpacked.extend(given)
        self.unpacked_from = fetched._replace(records=[])
        self.unpacked_end = fetched.end

    def pop_unpacked(self) -> FetchedRecords:
        """What is left of them, together."""
        assert self.unpacked_from is not None
        rest = self.unpacked_from._replace(records=[Record(*one[2:]) for one in self.unpacked])
        self.unpacked.clear()
        return rest

    def _cannot_read(self, refusal: Refusal, offset: Offset, next_offset: Offset) -> None:
        """Nothing behind a batch that cannot be unpacked is given: who goes on all the same meets it again."""
        self.failure = UnreadableBatch(self.topic, self.tp.partition, refusal, offset=offset, next_offset=next_offset)
        self.chunks.clear()
        self.buffered_bytes = 0
        self.fetch_offset, self.last_epoch = offset, None


def reset_time(policy: str) -> int | None:
    """Where `auto_offset_reset` sends a consumer that lost its place; None: nowhere."""
    return {"earliest": EARLIEST, "latest": LATEST}.get(policy)


def _check(payload: Buffer, offset: Offset) -> tuple[Offset, LeaderEpoch]:
    """Where these batches end, and the epoch of the last, once they are known to be sound."""
    batches = split_batches(payload, _ANY_SIZE)
    expected: int | None = None
    for header, view in batches:
        if not crc_matches(view, header.crc) or header.record_count <= 0:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the batch at {header.base_offset} does not match its CRC")
        if expected is None and not header.base_offset <= offset < header.next_offset:
            message = f"asked for offset {offset}, got {header.base_offset} to {header.next_offset}"
            raise Refused(ErrorCode.CORRUPT_MESSAGE, message)
        if expected is not None and header.base_offset != expected:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"offset {expected} is missing; got {header.base_offset}")
        if header.leader_epoch is None:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the batch at {header.base_offset} carries no leader epoch")
        expected = header.next_offset
    last = batches[-1].header
    return last.next_offset, last.stamped_epoch
