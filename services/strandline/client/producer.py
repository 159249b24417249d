"""The `Producer` client: decides when `send` waits, and which partition's buffer a record goes to.

Invariant: a record that `send` accepted ends exactly once, acknowledged or failed, at most ``delivery_timeout_ms``
later; records of one producer to one partition are written in the order they were sent.

How fast: `send` makes no task and no future per record. A tight loop of ``await producer.send(...)`` builds
batches at some hundred thousand records a second; `send_nowait` saves the coroutine as well. To follow what
happens, give ``on_delivery`` (called once per batch, with the ``tag`` of each record) or ``on_done`` (once per record),
or keep the `Delivery` objects and await those you need.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from strandline.client import background, errors
from strandline.client.background import countdown
from strandline.client.cluster.metadata import METADATA_STALE_MS, Cluster
from strandline.client.consumer import Consumer
from strandline.client.log import log
from strandline.client.produce.delivery import (
    BatchOutcome,
    Delivery,
    OnDone,
    OutgoingBatch,
    ProducerIdentity,
    RecordMetadata,
)
from strandline.client.produce.dispatcher import Dispatcher
from strandline.client.produce.routes import BufferMemory, Route, TopicRoutes
from strandline.client.produce.transaction import Transaction
from strandline.client.produce.transactional_id import Sending, TransactionalId, TransactionCoordinator
from strandline.client.records import K, V
from strandline.client.serialization import Interceptor, Outgoing, OutgoingRecord
from strandline.client.settings import DEFAULT_CLIENT_ID, ProducerSettings, parse_acks, parse_compression
from strandline.client.stats import STATS_INTERVAL_MS, ProducerStats, stats_reporter
from strandline.client.token import TokenCallback
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.types import Acks, TopicPartition
from strandline.records.batch import MAX_BATCH_BYTES, Buffer, parse_header
from strandline.records.codec import Headers, NewRecord, encode_batch
from strandline.records.compression import Compression
from strandline.rpc import channels
from strandline.rpc.channels import Backoff

_LOOK_AGAIN_MS = 5.0
"""How often a batch that lingers behind a backlog checks whether it can be sent."""


class Producer(Generic[K, V]):
    """Sends records to a cluster. Use it as an async context manager, or call `start` and `close`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        acks: Acks | int | str = Acks.ALL,
        idempotent: bool = True,
        linger_ms: float = 5.0,
        batch_bytes: int = 256 << 10,
        max_in_flight: int = 5,
        compression: Compression | str | None = None,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        max_block_ms: int = 60_000,
        buffer_bytes: int = 32 << 20,
        connect_timeout_ms: int = 2_000,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        metadata_stale_ms: int = METADATA_STALE_MS,
        client_id: str = DEFAULT_CLIENT_ID,
        key: Callable[[K], bytes] | None = None,
        value: Callable[[V], bytes] | None = None,
        partitioner: Callable[[str, bytes | None, int], int] | None = None,
        interceptors: Sequence[Interceptor] = (),
        on_delivery: Callable[[BatchOutcome], None] | None = None,
        on_stats: Callable[[ProducerStats], None] | None = None,
        stats_interval_ms: int = STATS_INTERVAL_MS,
        tls_cert: str | Path | bytes = "",
        tls_key: str | Path | bytes = "",
        tls_ca: str | Path | bytes = "",
        token: TokenCallback | None = None,
    ) -> None:
        """``on_delivery`` is called at the end of every batch, ``on_stats`` with `stats` every ``stats_interval_ms``.

        ``linger_ms``: how long a batch waits for more records, up to ``batch_bytes``. ``request_timeout_ms``: how
        long a leader may wait for replicas. ``delivery_timeout_ms``: how long a record may take from `send` to its
        end, retries included. ``max_block_ms``: how long `send` waits for room among ``buffer_bytes``, or for a topic.

        ``key`` and ``value`` serialize; None is never serialized. ``partitioner`` gets topic, serialized key and number
        of partitions for every record without a ``partition``; without one equal keys go to equal partitions, those of
        Kafka's default.

        An idempotent producer resends what may have been lost, and the leader recognizes a copy (M61). Without
        idempotence only what was definitely not written is sent again.

        With ``transactional_id`` every record is part of a transaction, see `transaction`; a producer that is started
        later with the same id fences this one. The coordinator aborts a transaction that is still open after
        ``transaction_timeout_ms``. It needs ``acks="all"`` and idempotence.

        If metadata is older than ``metadata_stale_ms``, another process is asked for it. TLS is given as paths or as
        PEM in bytes, all three or none; or as ``tls_ca`` with ``token``, a function that returns the token to present.

        Raises:
            ValueError: a setting breaks its rule, the bootstrap names no address, or the TLS arguments cannot be used.
        """
        if stats_interval_ms <= 0:
            raise ValueError(f"stats_interval_ms {stats_interval_ms} must be positive")
        self._settings = ProducerSettings(
            acks=parse_acks(acks),
            idempotent=idempotent,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            max_in_flight=max_in_flight,
            compression=parse_compression(compression),
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            max_block_ms=max_block_ms,
            buffer_bytes=buffer_bytes,
            connect_timeout_ms=connect_timeout_ms,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        self._transactional: TransactionalId | None = None
        self._cluster = Cluster(
            bootstrap,
            client_id=client_id,
            stale_ms=metadata_stale_ms,
            on_trouble=self._troubled,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_ca=tls_ca,
            token=token,
        )
        self._memory = BufferMemory(buffer_bytes)
        self._routes = TopicRoutes(self._settings, self._memory, self._open_batch, self._batch_closed, partitioner)
        outgoing = Outgoing(key, value, interceptors)
        self._outgoing = None if outgoing.changes_nothing else outgoing
        self._on_delivery = on_delivery
        self._on_stats = on_stats
        self._stats_interval_ms = stats_interval_ms
        self._counts = _Counts()
        self._dispatcher: Dispatcher | None = None
        self._is_here = self._cluster.background.is_here
        self._is_closing = False
        self._batches_closed = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(flush=error is None)

    async def start(self) -> None:
        """Connect, and get a producer id if the producer is idempotent; for a transactional id from its coordinator,
        which aborts the open transaction of an earlier producer.

        Raises:
            ClusterUnreachable: no node answered.
            Refused: no producer id is available; INVALID_TRANSACTION_TIMEOUT: the cluster allows less.
        """
        await self._cluster.start()
        # Before the dispatcher: while it gives up the batches of a deleted topic, no more may be sent to that topic.
        self._cluster.listen(lambda: self._routes.metadata_changed(self._cluster.view, dispatcher.now_ms()))
        dispatcher = Dispatcher(self._cluster, self._settings, self._batch_ended)
        try:
            await dispatcher.start()
            if self._settings.transactional_id is not None:
                self._transactional = await self._start_transactional(self._settings.transactional_id, dispatcher)
        except BaseException:
            # `async with` does not leave what it could not enter, so nothing else would close the connections.
            await self._cluster.close()
            raise
        self._dispatcher = dispatcher
        background.STARTED.add(self)
        if self._on_stats is not None:
            self._cluster.background.every(self._stats_interval_ms, stats_reporter(self.stats, self._on_stats))

    async def _start_transactional(self, transactional_id: str, dispatcher: Dispatcher) -> TransactionalId:
        def begin(identity: ProducerIdentity) -> None:
            self._running()
            dispatcher.begin(identity)

        def abandon(why: Refusal) -> None:
            dispatcher.abandon_all(why.code, why.message)
            self._close_batches()

        settings = self._settings
        coordinator = TransactionCoordinator(
            self._cluster, transactional_id, transaction_timeout_ms=settings.transaction_timeout_ms
        )
        # Without a route every record takes the slow path, on which it is refused.
        sending = Sending(begin=begin, stop=self._routes.by_name.clear, finish=self.flush, abandon=abandon)
        transactional = TransactionalId(
            coordinator,
            sending,
            init_ms=settings.max_block_ms,
            commit_ms=settings.delivery_timeout_ms,
            abort_ms=settings.request_timeout_ms,
        )
        await transactional.start()
        return transactional

    async def _abort_open(self, transactional: TransactionalId) -> None:
        try:
            await transactional.abort()
        except errors.ProducerFenced as fenced:
            log.warning("%s", fenced)

    def transaction(self, *, consumer: Consumer[Any, Any] | None = None) -> Transaction:
        """A transaction, for ``async with``: the records sent in the block are committed at its end, all or nothing.

        An exception that leaves the block aborts it. ``consumer`` takes part in it: the offsets after all records that
        it has returned are committed with the records, and after an abort it returns to its group's committed offsets;
        its ``auto_commit`` must be off. Deliveries are acknowledged when a record is written, not when it is committed.

        At the end of the block:

        Raises:
            TransactionAborted: none of it is committed; run the block again.
            ProducerFenced: another producer was started with the ``transactional_id``; end the process.
            OutcomeUnknown: the coordinator did not answer within ``delivery_timeout_ms``; `Transaction.commit` asks
                again.
            ValueError: the producer has no ``transactional_id``; the consumer has no group, or uses ``auto_commit``.
        """
        self._running()
        if self._transactional is None:
            raise ValueError(
                "this producer has no transactional_id; give one: Producer(bootstrap, transactional_id=...)"
            )
        # With auto_commit the inputs of a transaction could be committed although it was aborted, and would be lost.
        if consumer is not None and (consumer._group_id is None or consumer._auto_commit_ms is not None):
            raise ValueError("the consumer of a transaction needs a group, and auto_commit=False")
        return Transaction(
            self._cluster, self._transactional, timeout_ms=self._settings.request_timeout_ms, consumer=consumer
        )

    async def close(self, *, flush: bool = True) -> None:
        """Send what is buffered (unless ``flush`` is False), then stop; what is left fails. An open transaction is
        aborted.

        Raises:
            RuntimeError: a background task had failed unexpectedly; WrongLoop: not the loop in which it was started.
        """
        self._cluster.background.check_loop()
        try:
            if self._transactional is not None and not self._is_closing:
                # Before the flush, which would send what is to be aborted.
                await self._abort_open(self._transactional)
            if flush and self._dispatcher is not None and not self._is_closing:
                await self.flush()
        finally:
            self._is_closing = True
            self._memory.wake_all()
            if self._dispatcher is not None:
                self._close_batches()
                self._dispatcher.abandon_all(ErrorCode.NETWORK_EXCEPTION, "the producer was closed")
            await self._cluster.close()

    def __del__(self) -> None:
        background.report(self)

    def _give_up(self) -> int:
        """Close; returns how many accepted records have not ended."""
        # __init__ may have raised, and __del__ is called even so.
        dispatcher: Dispatcher | None = getattr(self, "_dispatcher", None)
        if dispatcher is None or self._is_closing:
            return 0
        self._is_closing = True
        lingering = [buffer.open_batch for buffer in self._routes.buffers.values()]
        return sum(batch.record_count for batch in dispatcher.unfinished) + sum(
            batch.builder.count for batch in lingering if batch is not None and batch.builder is not None
        )

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Send everything that was accepted so far and wait for its end; failures are in the deliveries.

        Raises:
            TimeoutError: after ``timeout_ms``; without it the delivery time-out ends every wait.
        """
        dispatcher = self._running()
        self._close_batches()
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            for batch in dispatcher.unfinished:
                await batch.wait()
        self._cluster.background.check()

    def stats(self) -> ProducerStats:
        """Counts since this producer was created, and what it holds now."""
        counts = self._counts
        return ProducerStats(
            client_id=self._cluster.client_id,
            records_acknowledged=counts.records_acknowledged,
            records_failed=counts.records_failed,
            batches_acknowledged=counts.batches_acknowledged,
            batches_failed=counts.batches_failed,
            bytes_acknowledged=counts.bytes_acknowledged,
            retries=counts.retries,
            delivery_ms_sum=counts.delivery_ms_sum,
            batches_waiting=len(self._dispatcher.unfinished) if self._dispatcher is not None else 0,
            buffered_bytes=self._memory.used_bytes,
            metadata_age_ms=self._cluster.metadata_age_ms,
        )

    async def send(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_done: Callable[[RecordMetadata | None, errors.SendFailed | None], None] | None = None,
        tag: object = None,
    ) -> Delivery:
        """Accept one record, waiting for room; wait for the returned delivery to get its offset.

        ``on_done`` is called at the record's end with its metadata, or with the reason of its failure. ``tag`` is any
        object that identifies the record: ``on_delivery`` gets the tags of a whole batch at once, which costs less than
        a call for each record.

        Raises:
            Refused: MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS;
                nothing was sent then. REQUEST_TIMED_OUT after ``max_block_ms`` without room.
            TopicDeleted: the topic was used before and has been deleted for 5 s.
            SerializationFailed: the key or value cannot be serialized; nothing was sent.
        """
        if self._outgoing is not None:
            record = self._outgoing.prepare(OutgoingRecord(topic, value, key, partition, timestamp_ms, headers))
            topic, value, key, partition, timestamp_ms, headers = record
        route = self._routes.by_name.get(topic)
        if route is None or self._memory.free_bytes <= 0:
            route = await self._wait_until_ready(topic)
        closed_before = self._batches_closed
        delivery = self._take(route, value, key, partition, timestamp_ms, headers, on_done, tag)
        if self._batches_closed != closed_before:
            # A loop that only sends would starve the streams that carry what it sends.
            await asyncio.sleep(0)
        return delivery

    async def send_and_wait(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send one record and wait for its end.

        Raises:
            SendFailed: it was given up; ``is_definite`` says whether it may still appear.
            Refused, TopicDeleted, SerializationFailed: as `send`.
        """
        return await (
            await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        )

    async def send_many(self, topic: str, records: Sequence[tuple[K | None, V | None]]) -> list[Delivery]:
        """Take records of a key and a value each, in this order, as `send` takes one; one call of a blocking producer.

        Raises:
            Refused, TopicDeleted, SerializationFailed: as `send`; those in front of the record concerned are sent.
        """
        return [await self.send(topic, value, key) for key, value in records]

    def send_nowait(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_done: Callable[[RecordMetadata | None, errors.SendFailed | None], None] | None = None,
        tag: object = None,
    ) -> Delivery:
        """Take one record now, without waiting for room. A caller in a loop of its own must let that run now and then.

        Raises:
            BufferFull: the buffer is full or the topic not known yet; `send` or `ready` wait for that.
            Refused, TopicDeleted, SerializationFailed: as `send`.
        """
        if self._outgoing is not None:
            record = self._outgoing.prepare(OutgoingRecord(topic, value, key, partition, timestamp_ms, headers))
            topic, value, key, partition, timestamp_ms, headers = record
        route = self._routes.by_name.get(topic) or self._route_now(topic)
        if self._memory.free_bytes <= 0:
            raise errors.BufferFull("the producer's buffer is full; await send() instead")
        return self._take(route, value, key, partition, timestamp_ms, headers, on_done, tag)

    def _take(
        self,
        route: Route,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_done: OnDone | None,
        tag: object,
    ) -> Delivery:
        """Buffer one record; its key and value are bytes by now."""
        if not self._is_here():
            self._cluster.background.check_loop()
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        batch, place = route.buffer_for(key, partition).append(key, value, timestamp_ms, headers)
        if on_done is not None:
            batch.call_when_done(place, timestamp_ms, on_done)
        if tag is not None:
            batch.note_tag(place, tag)
        return Delivery(batch, place, timestamp_ms)

    async def ready(self, topic: str) -> int:
        """Wait until `send_nowait` can take a record for the topic; the number of its partitions.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION or REQUEST_TIMED_OUT after ``max_block_ms``.
        """
        return len((await self._wait_until_ready(topic)).buffers)

    async def send_batch(self, topic: str, partition: int, records: Sequence[NewRecord]) -> Delivery:
        """Send records as exactly one batch; the delivery names the first record's offset.

        Raises:
            Refused: MESSAGE_TOO_LARGE, they do not fit into one; else as `send`.
        """
        batch = encode_batch(records, compression=self._settings.compression)
        return await self.send_encoded(topic, partition, batch)

    async def send_encoded(self, topic: str, partition: int, batch: Buffer) -> Delivery:
        """Send one finished record batch (v2); only its producer fields are set here, if idempotent.

        Raises:
            Refused: CORRUPT_MESSAGE or MESSAGE_TOO_LARGE for what is no batch; else as `send`.
        """
        header = parse_header(batch)
        if len(batch) > MAX_BATCH_BYTES:
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE, f"batch of {len(batch)} bytes is too large", Outcome.NOT_APPENDED
            )
        buffer = (await self._wait_until_ready(topic)).buffer_for(None, partition)
        # What was sent to the partition before goes before.
        buffer.close_batch()
        outgoing = self._new_batch(topic, buffer.tp)
        outgoing.payload, outgoing.record_count, outgoing.has_crc = bytes(batch), header.record_count, True
        outgoing.reserved_bytes = len(batch)
        self._memory.free_bytes -= len(batch)
        self._running().add(outgoing)
        return Delivery(outgoing, 0, header.base_timestamp_ms)

    def _running(self) -> Dispatcher:
        channels.check()
        self._cluster.background.check()
        if self._dispatcher is None or self._is_closing:
            raise errors.ClientClosed("the producer is not running; use `async with`, or await start() first")
        return self._dispatcher

    async def _wait_until_ready(self, topic: str) -> Route:
        hope_ms = self._routes.hope_ms(topic, self._running().now_ms())
        self._check_transaction()
        left = countdown(self._settings.max_block_ms)
        if hope_ms is None:
            await self._cluster.topic(topic, deadline_ms=left())
        else:
            await self._hope_for(topic, min(hope_ms, left()))
        try:
            async with asyncio.timeout(left() / 1000):
                await self._memory.wait_for_room()
        except TimeoutError:
            message = f"no room in the producer's buffer for {self._settings.max_block_ms} ms"
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, message, Outcome.NOT_APPENDED) from None
        # It may have been closed while there was no room.
        self._running()
        return self._route_now(topic)

    async def _hope_for(self, topic: str, hope_ms: int) -> None:
        """Wait for a deleted topic to be created again."""
        try:
            await self._cluster.topic(topic, deadline_ms=hope_ms)
        except Refused as refused:
            if refused.refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise errors.TopicDeleted(topic) from None

    def _check_transaction(self) -> None:
        if self._transactional is not None:
            self._transactional.check()

    def _route_now(self, topic: str) -> Route:
        now_ms = self._running().now_ms()
        self._check_transaction()
        image = self._cluster.view.topic(topic)
        if image is None:
            if self._routes.hope_ms(topic, now_ms) == 0:
                raise errors.TopicDeleted(topic)
            # Now, so that the topic is known when the caller tries again.
            self._cluster.want(topic)
            raise errors.BufferFull(f"topic '{topic}' is not known yet; await send() or ready() instead")
        return self._routes.add(image)

    def _new_batch(self, topic: str, tp: TopicPartition) -> OutgoingBatch:
        now_ms = self._running().now_ms()
        batch = OutgoingBatch(topic, tp, now_ms=now_ms, deadline_ms=now_ms + self._settings.delivery_timeout_ms)
        batch.owner = self._cluster.background
        return batch

    def _open_batch(self, topic: str, tp: TopicPartition) -> OutgoingBatch:
        batch = self._new_batch(topic, tp)
        loop = asyncio.get_running_loop()
        loop.call_later(self._settings.linger_ms / 1000, self._linger_over, tp, batch)
        return batch

    def _linger_over(self, tp: TopicPartition, batch: OutgoingBatch) -> None:
        buffer = self._routes.buffers.get(tp)
        # It was full before its time, and the open batch is another one; or the topic was deleted.
        if buffer is None or buffer.open_batch is not batch:
            return
        dispatcher = self._dispatcher
        if dispatcher is not None and dispatcher.is_behind(tp) and dispatcher.now_ms() < batch.deadline_ms:
            # It could not be sent yet. It takes more records meanwhile, as in Kafka: a backlog of many small batches
            # would need a round trip for every few of them, and might never be caught up with.
            wait_ms = max(self._settings.linger_ms, _LOOK_AGAIN_MS)
            asyncio.get_running_loop().call_later(wait_ms / 1000, self._linger_over, tp, batch)
            return
        buffer.close_batch()

    def _batch_closed(self, batch: OutgoingBatch) -> None:
        self._batches_closed += 1
        assert self._dispatcher is not None
        self._dispatcher.add(batch)

    def _close_batches(self) -> None:
        # A function of the user that is called now may send to another topic.
        for buffer in list(self._routes.buffers.values()):
            buffer.close_batch()

    def _batch_ended(self, batch: OutgoingBatch) -> None:
        self._memory.release(batch.reserved_bytes)
        latency_ms = self._dispatcher.now_ms() - batch.created_ms if self._dispatcher else 0.0
        self._counts.ended(batch, latency_ms)
        if batch.callbacks is not None:
            batch.call_back()
        if self._transactional is not None and batch.refusal is not None:
            self._transactional.failed(batch.refusal)
        if self._on_delivery is None:
            return
        outcome = BatchOutcome(
            batch.topic,
            batch.tp.partition,
            batch.base_offset,
            batch.record_count,
            batch.reserved_bytes,
            latency_ms,
            batch.attempts,
            batch.refusal,
            batch.all_tags(),
        )
        try:
            self._on_delivery(outcome)
        except Exception:  # noqa: BLE001 - a user's function may raise anything
            log.exception("on_delivery failed")

    def _troubled(self, error: BaseException | None) -> None:
        """A defect of ours: end all waits, because nothing will answer them."""
        if error is None:
            return
        self._is_closing = True
        self._memory.wake_all()
        if self._dispatcher is not None:
            self._close_batches()
            self._dispatcher.abandon_all(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer failed: {error!r}")


@dataclass(slots=True)
class _Counts:
    """What `ProducerStats` has of the batches that have ended."""

    records_acknowledged: int = 0
    records_failed: int = 0
    batches_acknowledged: int = 0
    batches_failed: int = 0
    bytes_acknowledged: int = 0
    retries: int = 0
    delivery_ms_sum: float = 0.0

    def ended(self, batch: OutgoingBatch, latency_ms: float) -> None:
        self.retries += max(0, batch.attempts - 1)
        if batch.refusal is not None:
            self.batches_failed += 1
            self.records_failed += batch.record_count
            return
        self.batches_acknowledged += 1
        self.records_acknowledged += batch.record_count
        self.bytes_acknowledged += batch.reserved_bytes
        self.delivery_ms_sum += latency_ms


async def run_in_transaction(
    producer: Producer[Any, Any],
    work: Callable[[], Awaitable[T]],
    *,
    consumer: Consumer[Any, Any] | None = None,
    timeout_ms: int = 60_000,
) -> T:
    """What ``work`` returns in a transaction that is committed; when one was aborted it runs again in a new one.

    ``consumer`` takes part, as in `Producer.transaction`; poll it within ``work``.

    Raises:
        TransactionAborted: none was committed within ``timeout_ms``.
        OutcomeUnknown: the coordinator was asked twice, and did not answer.
        ProducerFenced: as `Producer.transaction`; or whatever ``work`` raises.
    """
    left, backoff = countdown(timeout_ms), Backoff()
    while True:
        transaction = producer.transaction(consumer=consumer)
        try:
            async with transaction:
                result = await work()
                try:
                    await transaction.commit()
                except errors.OutcomeUnknown:
                    # Asked once more: the work must not run again as long as it may be committed.
                    await transaction.commit()
                return result
        except errors.TransactionAborted:
            pause_s = backoff.next_s()
            if pause_s * 1000 >= left():
                raise
        await asyncio.sleep(pause_s)


T = TypeVar("T")
