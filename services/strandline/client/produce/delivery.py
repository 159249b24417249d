"""What a batch in flight knows of itself, and how the sender of its records learns the outcome.

Invariant: a batch ends exactly once; it may be reported as definitely not written only if no attempt was ever
unaccounted for (P2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from strandline.client.background import Background
from strandline.client.errors import SendFailed, SendToDeletedTopic
from strandline.client.log import log
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.types import Offset, ProducerStamp, TopicPartition
from strandline.records.batch import Buffer, sealed
from strandline.records.builder import BatchBuilder


class ProducerIdentity(NamedTuple):
    """What makes a batch's sequence unique (KIP-98)."""

    producer_id: int
    producer_epoch: int


class RecordMetadata(NamedTuple):
    """Where a record lies. ``offset`` is None with acks=0, and for a duplicate too old to be looked up."""

    topic: str
    partition: int
    offset: Offset | None
    timestamp_ms: int | None


class BatchOutcome(NamedTuple):
    """The end of one batch, as `on_delivery` gets it. ``refusal`` is None for success.

    The batch's records, in the order they were sent, lie at ``base_offset`` and following.
    """

    topic: str
    partition: int
    base_offset: Offset | None
    record_count: int
    size_bytes: int
    latency_ms: float
    attempts: int
    refusal: Refusal | None
    tags: Sequence[object] = ()
    """What the records were sent with as ``tag``, in the order they were sent; empty if none of them had one."""


_new = tuple.__new__

OnDone = Callable[[RecordMetadata | None, SendFailed | None], None]
"""Gets the end of one record: where it lies, or why it was given up."""


class OutgoingBatch:
    """One record batch from its first record to its end."""

    __slots__ = (
        "_settled",
        "attempt",
        "attempts",
        "base_offset",
        "builder",
        "callbacks",
        "created_ms",
        "deadline_ms",
        "has_crc",
        "identity",
        "is_done",
        "is_topic_deleted",
        "last_refusal",
        "may_have_appeared",
        "owner",
        "payload",
        "record_count",
        "refusal",
        "reserved_bytes",
        "sequence",
        "tags",
        "topic",
        "tp",
    )

    def __init__(self, topic: str, tp: TopicPartition, *, now_ms: float, deadline_ms: float) -> None:
        self.topic = topic
        self.tp = tp
        self.created_ms = now_ms
        self.deadline_ms = deadline_ms
        # In whose loop its end can be waited for.
        self.owner: Background | None = None
        # While open: the builder; once closed: the bytes, without a producer's identity. One that was encoded by the
        # user has a CRC already.
        self.builder: BatchBuilder | None = None
        self.payload = b""
        self.has_crc = False
        self.record_count = 0
        # What it takes of the producer's buffer, given back at the end.
        self.reserved_bytes = 0
        # Set together at the first attempt, and kept through every retry of it.
        self.identity: ProducerIdentity | None = None
        self.sequence: int | None = None
        # The attempt whose answer is awaited; answers to any other are ignored.
        self.attempt: int | None = None
        self.attempts = 0
        self.may_have_appeared = False
        self.last_refusal: Refusal | None = None
        self.is_done = False
        self.is_topic_deleted = False
        self.base_offset: Offset | None = None
        self.refusal: Refusal | None = None
        # Place, timestamp and function of each record whose sender asked to be called; None: none did.
        self.callbacks: list[tuple[int, int, OnDone]] | None = None
        # Of the records up to the last one that has a tag; None for those without.
        self.tags: list[object] | None = None
        self._settled: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        state = "done" if self.is_done else f"attempt={self.attempt} seq={self.sequence}"
        return f"<OutgoingBatch {self.topic}-{self.tp.partition} records={self.record_count} {state}>"

    def seal(self) -> None:
        """No more records: build the bytes."""
        assert self.builder is not None
        self.payload = self.builder.build()
        self.record_count, self.reserved_bytes = self.builder.count, self.builder.size_bytes
        self.builder = None

    def as_sent(self, *, transactional: bool = False) -> tuple[Buffer, Buffer]:
        """The batch in two pieces, under its identity and sequence once it has them."""
        if self.identity is not None and self.sequence is not None:
            return sealed(self.payload, ProducerStamp(*self.identity, self.sequence), transactional=transactional)
        return (self.payload, b"") if self.has_crc else sealed(self.payload, None)

    def attempt_lost(self) -> None:
        """The attempt under way will never be heard of again, or its answer will not be believed."""
        if self.attempt is not None:
            self.attempt, self.may_have_appeared = None, True

    def succeed(self, base_offset: Offset | None) -> None:
        """The records were acknowledged."""
        self.base_offset = base_offset
        self._end()

    def fail(self, code: ErrorCode, message: str) -> None:
        """The records are given up; definite only if every attempt was."""
        outcome = Outcome.MAY_APPEAR if self.may_have_appeared or self.attempt is not None else Outcome.NOT_APPENDED
        self.refusal = Refusal(code, message, outcome)
        self._end()

    def _end(self) -> None:
        assert not self.is_done, "a batch ended twice"
        self.is_done, self.attempt = True, None
        self.builder, self.payload = None, b""
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    def call_when_done(self, index: int, timestamp_ms: int, on_done: OnDone) -> None:
        """Call this at the end with what became of the record at ``index``."""
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((index, timestamp_ms, on_done))

    def call_back(self) -> None:
        """The end is known: say so to those who asked. What their functions raise is logged."""
        callbacks, self.callbacks = self.callbacks, None
        has_failed = self.refusal is not None
        for index, timestamp_ms, on_done in callbacks or ():
            try:
                if has_failed:
                    # One for each: who raises it adds to its traceback.
                    on_done(None, self.failure())
                else:
                    on_done(self._place(index, timestamp_ms), None)
            except Exception:  # noqa: BLE001 - a user's function may raise anything
                log.exception("on_done of a record for %s-%d failed", self.topic, self.tp.partition)

    def note_tag(self, index: int, tag: object) -> None:
        """Give this back at the end, with those of the other records."""
        tags = self.tags
        if tags is None:
            tags = self.tags = []
        if len(tags) < index:
            tags.extend([None] * (index - len(tags)))
        tags.append(tag)

    def all_tags(self) -> Sequence[object]:
        """One of each record; empty if no record has one."""
        if self.tags is None:
            return ()
        return self.tags + [None] * (self.record_count - len(self.tags))

    def failure(self) -> SendFailed | None:
        """Why the batch was given up; None if it was not."""
        if self.refusal is None:
            return None
        if self.is_topic_deleted:
            return SendToDeletedTopic(self.topic, self.tp.partition, self.refusal, self.attempts)
        return SendFailed(self.topic, self.tp.partition, self.refusal, self.attempts)

    async def wait(self) -> None:
        """Wait for the end; never raises for the records, but `WrongLoop` in a loop that is not the producer's."""
        if self.is_done:
            return
        if self.owner is not None:
            self.owner.check_loop()
        if self._settled is None:
            self._settled = asyncio.get_running_loop().create_future()
        # Shielded: one caller that gives up must not cancel the wait of the others.
        await asyncio.shield(self._settled)

    def result(self, index: int, timestamp_ms: int | None) -> RecordMetadata:
        """Where the record at ``index`` lies.

        Raises:
            SendFailed: the batch was given up.
        """
        failed = self.failure()
        if failed is not None:
            raise failed
        return self._place(index, timestamp_ms)

    def _place(self, index: int, timestamp_ms: int | None) -> RecordMetadata:
        base = self.base_offset
        # `Offset` and the class's own `__new__` would each cost as much as the rest.
        return _new(
            RecordMetadata, (self.topic, self.tp.partition, None if base is None else base + index, timestamp_ms)
        )


class Delivery:
    """What became of one record, or of a batch sent whole; light enough to have one per record.

    ``await delivery`` gives the `RecordMetadata` or raises `SendFailed`; not awaiting it costs nothing and
    loses nothing (`Producer.flush` and ``on_delivery`` report the same).
    """

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: OutgoingBatch, index: int, timestamp_ms: int | None) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        yield from self._batch.wait().__await__()
        return self.result()

    @property
    def done(self) -> bool:
        """Whether the end is known."""
        return self._batch.is_done

    def result(self) -> RecordMetadata:
        """The end, which must be known.

        Raises:
            SendFailed: the record was given up.
            asyncio.InvalidStateError: the end is not known yet.
        """
        if not self._batch.is_done:
            raise asyncio.InvalidStateError("the record is still on its way; await the delivery")
        return self._batch.result(self._index, self._timestamp_ms)
