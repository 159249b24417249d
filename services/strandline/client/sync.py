"""The clients for programs without an event loop: the same names, and every call waits.

Written from the asynchronous clients by `make generated`; edit those.

All clients of a process share one thread with an event loop, which the first call starts. Functions that are given to
a client (``on_done``, ``on_delivery``, ``on_stats``, serializers and a producer's interceptors) are called in that
thread, must not block and cannot call a client; deserializers and a consumer's interceptors are called by `for` in the
thread of the loop, and by `poll` in the other one. A `Producer` and an `Admin` may be used by several threads at a
time, a `Consumer` by one.

A client that was started before a fork cannot be used behind it, and says so (`ForkedAfterUse`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, Self

from strandline.client import admin, consumer, errors, producer
from strandline.client.administer import admin_answers, described
from strandline.client.administer.described_by_coordinators import (
    DescribedGroup,
    DescribedTransaction,
    ListedGroup,
    ListedTransaction,
    PartitionProducer,
)
from strandline.client.administer.transaction_admin import HangingTransaction
from strandline.client.blocking import Blocking, BlockingReader, Delivery, Transaction
from strandline.client.cluster.metadata import DEFAULT_TIMEOUT_MS, METADATA_STALE_MS
from strandline.client.consume.positions import Lag, Where
from strandline.client.errors import CommitFailed
from strandline.client.groups.committed_offsets import OffsetAndMetadata, Offsets
from strandline.client.groups.membership import GroupMetadata
from strandline.client.offsets import LATEST, DeletedRecords, FoundOffset
from strandline.client.produce.delivery import BatchOutcome, RecordMetadata
from strandline.client.records import ConsumerRecord, FetchedRecords, K, RebalanceListener, TopicPartition, V
from strandline.client.serialization import Interceptor
from strandline.client.settings import DEFAULT_CLIENT_ID
from strandline.client.stats import STATS_INTERVAL_MS, ConsumerStats, ProducerStats
from strandline.client.token import TokenCallback
from strandline.core.errors import Refusal
from strandline.core.permissions import Rule
from strandline.core.quotas import Quota, QuotaChange
from strandline.core.types import Acks, Offset
from strandline.records.batch import Buffer
from strandline.records.codec import Headers, NewRecord
from strandline.records.compression import Compression

__all__ = ["Admin", "Consumer", "Delivery", "Producer", "Transaction"]


class Producer(Blocking, Generic[K, V]):
    """Sends records to a cluster. Use it as a context manager, or call `start` and `close`."""

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
        request_timeout_ms: int = 30000,
        delivery_timeout_ms: int = 120000,
        max_block_ms: int = 60000,
        buffer_bytes: int = 32 << 20,
        connect_timeout_ms: int = 2000,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
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
        self._inner: producer.Producer[K, V] = producer.Producer(
            bootstrap,
            acks=acks,
            idempotent=idempotent,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            max_in_flight=max_in_flight,
            compression=compression,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            max_block_ms=max_block_ms,
            buffer_bytes=buffer_bytes,
            connect_timeout_ms=connect_timeout_ms,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            metadata_stale_ms=metadata_stale_ms,
            client_id=client_id,
            key=key,
            value=value,
            partitioner=partitioner,
            interceptors=interceptors,
            on_delivery=on_delivery,
            on_stats=on_stats,
            stats_interval_ms=stats_interval_ms,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_ca=tls_ca,
            token=token,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._inner.__aexit__, kind, error, trace)

    def start(self) -> None:
        """Connect, and get a producer id if the producer is idempotent; for a transactional id from its coordinator,
        which aborts the open transaction of an earlier producer.

        Raises:
            ClusterUnreachable: no node answered.
            Refused: no producer id is available; INVALID_TRANSACTION_TIMEOUT: the cluster allows less.
        """
        self._run(self._inner.start)

    def transaction(self, *, consumer: Consumer[Any, Any] | None = None) -> Transaction:
        """A transaction, for ``with``: the records sent in the block are committed at its end, all or nothing.

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
        return Transaction(
            self, self._call(self._inner.transaction, consumer=None if consumer is None else consumer._inner), consumer
        )

    def close(self, *, flush: bool = True) -> None:
        """Send what is buffered (unless ``flush`` is False), then stop; what is left fails. An open transaction is
        aborted.

        Raises:
            RuntimeError: a background task had failed unexpectedly; WrongLoop: not the loop in which it was started.
        """
        self._run(self._inner.close, flush=flush)

    def flush(self, timeout_ms: int | None = None) -> None:
        """Send everything that was accepted so far and wait for its end; failures are in the deliveries.

        Raises:
            TimeoutError: after ``timeout_ms``; without it the delivery time-out ends every wait.
        """
        self._run_within(timeout_ms, self._inner.flush, timeout_ms)

    def stats(self) -> ProducerStats:
        """Counts since this producer was created, and what it holds now."""
        return self._call(self._inner.stats)

    def send(
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
        return Delivery(
            self,
            self._run(
                self._inner.send,
                topic,
                value,
                key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
                on_done=on_done,
                tag=tag,
            ),
        )

    def send_and_wait(
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
        return self._run(
            self._inner.send_and_wait,
            topic,
            value,
            key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
        )

    def send_many(self, topic: str, records: Sequence[tuple[K | None, V | None]]) -> list[Delivery]:
        """Take records of a key and a value each, in this order, as `send` takes one; one call of a blocking producer.

        Raises:
            Refused, TopicDeleted, SerializationFailed: as `send`; those in front of the record concerned are sent.
        """
        return [Delivery(self, one) for one in self._run(self._inner.send_many, topic, records)]

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
        return Delivery(
            self,
            self._call(
                self._inner.send_nowait,
                topic,
                value,
                key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
                on_done=on_done,
                tag=tag,
            ),
        )

    def ready(self, topic: str) -> int:
        """Wait until `send_nowait` can take a record for the topic; the number of its partitions.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION or REQUEST_TIMED_OUT after ``max_block_ms``.
        """
        return self._run(self._inner.ready, topic)

    def send_batch(self, topic: str, partition: int, records: Sequence[NewRecord]) -> Delivery:
        """Send records as exactly one batch; the delivery names the first record's offset.

        Raises:
            Refused: MESSAGE_TOO_LARGE, they do not fit into one; else as `send`.
        """
        return Delivery(self, self._run(self._inner.send_batch, topic, partition, records))

    def send_encoded(self, topic: str, partition: int, batch: Buffer) -> Delivery:
        """Send one finished record batch (v2); only its producer fields are set here, if idempotent.

        Raises:
            Refused: CORRUPT_MESSAGE or MESSAGE_TOO_LARGE for what is no batch; else as `send`.
        """
        return Delivery(self, self._run(self._inner.send_encoded, topic, partition, batch))


class Consumer(BlockingReader, Generic[K, V]):
    """Reads partitions of a cluster. Use it as a context manager, or call `start` and `close`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        group: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        client_id: str = DEFAULT_CLIENT_ID,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        auto_offset_reset: Literal["earliest", "latest", "error"] | None = None,
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        assignor: Literal["uniform", "range"] = "uniform",
        session_timeout_ms: int = 45000,
        strict_ownership: bool = True,
        rebalance_timeout_ms: int = 300000,
        max_poll_interval_ms: int = 300000,
        request_timeout_ms: int = 30000,
        key: Callable[[bytes], K] | None = None,
        value: Callable[[bytes], V] | None = None,
        interceptors: Sequence[Interceptor] = (),
        on_stats: Callable[[ConsumerStats], None] | None = None,
        stats_interval_ms: int = STATS_INTERVAL_MS,
        read_from: Literal["leader", "follower"] = "leader",
        stop_at_end: bool = False,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        buffer_bytes: int = 32 << 20,
        metadata_stale_ms: int = METADATA_STALE_MS,
        tls_cert: str | Path | bytes = "",
        tls_key: str | Path | bytes = "",
        tls_ca: str | Path | bytes = "",
        token: TokenCallback | None = None,
    ) -> None:
        """``key`` and ``value`` deserialize; without them records have bytes, and None is never deserialized.

        ``read_from="follower"`` reads from a replica in ``rack`` if there is one, else from any (KIP-392).
        ``isolation``: "read_committed" returns only records that no transaction can abort, up to the last stable
        offset; while no transaction is open that is everything below the high watermark, as with "read_uncommitted".

        ``auto_offset_reset`` decides what happens when the position is not in the log, or the log was truncated below
        it: "error" and None raise `OffsetOutOfRange` or `LogTruncated`, the others continue elsewhere (after a
        truncation at the first offset that differs). Where a group has no committed offset, a member begins at the end
        that it names, with None at the beginning, and with "error" not at all. ``stop_at_end``: end iteration at the
        end that each partition had when its position was found.

        With ``group``, `assign` begins at that group's committed offsets, and with ``auto_commit`` the records returned
        before the current `poll` or step of iteration are committed every ``auto_commit_interval_ms`` and at the end:
        at least once, never those still being processed. Without a group nothing is ever committed. Consumers that
        only `assign` do not coordinate: the user must assign each partition to one of them. ``request_timeout_ms``
        bounds a commit, `committed` and `lag`.

        With `subscribe` the group's coordinator assigns each partition to one member, by ``assignor``. A member loses
        its partitions if it sends no heartbeat for ``session_timeout_ms`` (by default the coordinator accepts 6 s to 30
        min), does not give up revoked partitions within ``rebalance_timeout_ms``, or does not ask for records for
        ``max_poll_interval_ms``. ``instance_id`` is a name that this consumer keeps over restarts: its partitions are
        kept for it for one session. A consumer whose heartbeats are not answered stops returning records after 0.9 of
        its session, so that no two members ever work on one partition; with ``strict_ownership=False`` it continues.

        ``on_stats`` gets `stats` every ``stats_interval_ms``. ``max_wait_ms``, ``min_bytes`` and ``max_bytes`` bound
        one answer, ``buffer_bytes`` what is fetched ahead. If metadata is older than ``metadata_stale_ms``, another
        process is asked for it. TLS is given as paths or as PEM in bytes, all three or none; or as ``tls_ca`` with
        ``token``, a function that returns the token to present.

        Raises:
            ValueError: a setting is invalid, or the TLS arguments cannot be used.
        """
        self._inner: consumer.Consumer[K, V] = consumer.Consumer(
            bootstrap,
            group=group,
            instance_id=instance_id,
            rack=rack,
            client_id=client_id,
            isolation=isolation,
            auto_offset_reset=auto_offset_reset,
            auto_commit=auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            assignor=assignor,
            session_timeout_ms=session_timeout_ms,
            strict_ownership=strict_ownership,
            rebalance_timeout_ms=rebalance_timeout_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            request_timeout_ms=request_timeout_ms,
            key=key,
            value=value,
            interceptors=interceptors,
            on_stats=on_stats,
            stats_interval_ms=stats_interval_ms,
            read_from=read_from,
            stop_at_end=stop_at_end,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            buffer_bytes=buffer_bytes,
            metadata_stale_ms=metadata_stale_ms,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_ca=tls_ca,
            token=token,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._inner.__aexit__, kind, error, trace)

    def start(self) -> None:
        """Connect.

        Raises:
            ClusterUnreachable: no node answered.
        """
        self._run(self._inner.start)

    def close(self) -> None:
        """Commit what was returned before the last step (with ``auto_commit``), leave the group, close all connections.

        A member with an ``instance_id`` leaves for a restart: its partitions are kept for it until its session ends.

        Raises:
            RuntimeError: a background task had failed unexpectedly; WrongLoop: not the loop in which it was started.
        """
        self._run(self._inner.close)

    def assign(
        self,
        partitions: str | Iterable[tuple[str, int] | str],
        *,
        start: Where | int = "beginning",
        end: int | None = None,
        follow_topic: bool = True,
    ) -> frozenset[TopicPartition]:
        """Read exactly these from now on; a topic name means all its partitions. Returns the partitions.

        ``end``, with ``stop_at_end``, is the offset before which reading stops, instead of the current end.
        ``start`` is where reading begins in partitions that were not assigned before: an end or an offset. With a
        group, reading begins at its committed offset; without one, at ``auto_offset_reset`` if that names an end, else
        at ``start``. Reading does not begin before the group's coordinator has answered. Partitions that are added
        later to a topic given by name are read too, from their first record on, unless ``follow_topic`` is False or
        ``stop_at_end`` is set.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
            ValueError: the consumer has subscribed; or ``end`` is given without ``stop_at_end``.
        """
        return self._run(self._inner.assign, partitions, start=start, end=end, follow_topic=follow_topic)

    def subscribe(
        self, topics: str | Sequence[str] = (), *, pattern: str | None = None, listener: RebalanceListener | None = None
    ) -> None:
        """Join the group and read the partitions that its coordinator assigns; replaces an earlier subscription.

        ``pattern`` is RE2; the coordinator matches it against whole topic names, including topics created later.
        Reading begins at the group's committed offset; without one, at the end that ``auto_offset_reset`` names, with
        None at the beginning; with "error" each call for records raises `NothingCommitted` until a seek. Returns when
        the coordinator has answered, or after ``request_timeout_ms``; the consumer then keeps trying in the background.

        Raises:
            Refused: the coordinator rejects such a member: INVALID_REGULAR_EXPRESSION, GROUP_MAX_SIZE_REACHED,
                UNSUPPORTED_ASSIGNOR, INVALID_REQUEST and others.
            ValueError: the consumer has no group, or ``stop_at_end``; or neither topics nor a pattern are given.
        """
        self._run(self._inner.subscribe, topics, pattern=pattern, listener=listener)

    def unsubscribe(self) -> None:
        """Commit what was returned before the last step (with ``auto_commit``), then leave the group.

        Without a subscription, drop the assignment.
        """
        self._run(self._inner.unsubscribe)

    def group_metadata(self) -> GroupMetadata:
        """This member's identity for commits in a transaction.

        Pass it to `Transaction.send_offsets`: if records were returned from a partition that was lost since, the
        transaction is aborted, even if the partition has come back. In a block that polls several times, get it before
        the first `poll`.

        Raises:
            ValueError: the consumer has not subscribed.
        """
        return self._call(self._inner.group_metadata)

    def commit(self, offsets: Offsets | Iterable[ConsumerRecord[K, V]] | None = None, *, metadata: str = "") -> None:
        """Commit offsets for the group: given next offsets, those after these records, or after all records returned.

        ``metadata`` is a text that is stored with plain offsets. It waits for a commit under way, and at most
        ``request_timeout_ms`` for its own.

        Raises:
            CommitFailed: some were not committed; ``refused`` says which and why. UNKNOWN_MEMBER_ID: the group has
                members, which own the partitions. STALE_MEMBER_EPOCH: another member owns the partition, or it was
                lost after these records were returned.
            ValueError: the consumer has no group.
        """
        self._run(self._inner.commit, offsets, metadata=metadata)

    def commit_nowait(
        self,
        offsets: Offsets | None = None,
        done: Callable[[dict[TopicPartition, OffsetAndMetadata], CommitFailed | None], None] | None = None,
    ) -> None:
        """As `commit`, without waiting; ``done`` is called with the offsets and the result.

        Calls that come while a commit is under way are merged into the next one.

        Raises:
            ValueError: the consumer has no group.
        """
        self._call(self._inner.commit_nowait, offsets, done)

    def committed(self, *partitions: tuple[str, int]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets by partition, by default of all assigned ones; None where there is none.

        Raises:
            Refused: the coordinator refused, or did not answer within ``request_timeout_ms``.
            ValueError: the consumer has no group.
        """
        return self._run(self._inner.committed, *partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        """Every partition that is read now, including those added to a topic that was assigned by name."""
        return self._call(self._inner.assignment)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions, by default of all; fetched records stay buffered, no more are fetched.

        Errors of a paused partition are still raised, once everything that was fetched before has been returned.
        """
        self._call(self._inner.pause, *partitions)

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Return records of these partitions again, by default of all."""
        self._call(self._inner.resume, *partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._call(self._inner.paused)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at this offset."""
        self._call(self._inner.seek, topic, partition, offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go to the first offset of these partitions, by default of all."""
        self._call(self._inner.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go to the HW of these partitions, by default of all."""
        self._call(self._inner.seek_to_end, *partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Go to the first record at or after a time (ms since 1970), to the end if there is none."""
        self._call(self._inner.seek_to_time, timestamp_ms, *partitions)

    def position(self, topic: str, partition: int) -> Offset | None:
        """The offset of the next record to return; None while it is being looked up."""
        return self._call(self._inner.position, topic, partition)

    def high_watermark(self, topic: str, partition: int) -> Offset | None:
        """The HW in the last answer; None before the first."""
        return self._call(self._inner.high_watermark, topic, partition)

    @property
    def is_finished(self) -> bool:
        """With ``stop_at_end``: whether everything was returned."""
        return self._call(lambda: self._inner.is_finished)

    def lag(self) -> dict[TopicPartition, Lag]:
        """How many records each partition is behind what this consumer may read, requested from the leaders now.

        Partitions whose position is not found yet, or whose leader does not answer within ``request_timeout_ms``, are
        left out.

        Raises:
            Refused: a partition cannot be read.
        """
        return self._run(self._inner.lag)

    def stats(self) -> ConsumerStats:
        """Counts since this consumer was created, and its state in each partition."""
        return self._call(self._inner.stats)

    def fetch_batches(self, timeout_ms: int | None = None) -> list[FetchedRecords]:
        """Fetched records, after waiting for some; empty at the time-out, and when finished.

        The records are raw: neither deserializers nor interceptors see them.

        Raises:
            OffsetOutOfRange, LogTruncated, NothingCommitted: the position is lost, or there is none, see
            ``auto_offset_reset``.
            TopicDeleted: a topic that is read was deleted; later calls raise it again until another `assign`. A member
            that subscribed by name raises it once and continues, one that subscribed by a pattern does not raise it.
            UnreadableBatch: a batch cannot be unpacked; its ``next_offset`` is where to continue.
            Refused: a partition cannot be read. Records before it were returned, the others come with the next call.
        """
        return self._run_within(timeout_ms, self._inner.fetch_batches, timeout_ms)

    def poll(self, timeout_ms: int | None = None, *, max_records: int = 500) -> list[ConsumerRecord[K, V]]:
        """Up to ``max_records`` records of any partitions, each in order; empty at the time-out, and when finished.

        It waits for the first record only.

        Raises:
            DeserializationFailed: a record cannot be deserialized; those before it were returned, the next call
            continues after it.
            OffsetOutOfRange, LogTruncated, NothingCommitted, TopicDeleted, UnreadableBatch, Refused: as
                `fetch_batches`.
            ValueError: ``max_records`` is not positive.
        """
        return self._run_within(timeout_ms, self._inner.poll, timeout_ms, max_records=max_records)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        """The next record.

        Raises:
            StopIteration: with ``stop_at_end``, everything was returned.
            DeserializationFailed, OffsetOutOfRange, LogTruncated, NothingCommitted, TopicDeleted, UnreadableBatch,
                Refused: as `poll`.
        """
        return self._take()


class Admin(Blocking):
    """Changes and inspects a cluster. Use it as a context manager, or call `start` and `close`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        metadata_stale_ms: int = METADATA_STALE_MS,
        client_id: str = DEFAULT_CLIENT_ID,
        tls_cert: str | Path | bytes = "",
        tls_key: str | Path | bytes = "",
        tls_ca: str | Path | bytes = "",
        token: TokenCallback | None = None,
    ) -> None:
        """``timeout_ms`` is the deadline of every request. If metadata is older than ``metadata_stale_ms``, another
        process is asked for it. ``client_id`` is the first word of the user agent of every call. TLS is given as paths
        or as PEM in bytes, all three or none; or as ``tls_ca`` with ``token``, which returns the token to present.

        Raises:
            ValueError: the bootstrap names no address, ``client_id`` is no such name, or what is given for TLS cannot
                be used.
        """
        self._inner: admin.Admin = admin.Admin(
            bootstrap,
            timeout_ms=timeout_ms,
            metadata_stale_ms=metadata_stale_ms,
            client_id=client_id,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_ca=tls_ca,
            token=token,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._inner.__aexit__, kind, error, trace)

    def start(self) -> None:
        """Connect.

        Raises:
            ClusterUnreachable: no node answered.
        """
        self._run(self._inner.start)

    def close(self) -> None:
        """Close every connection."""
        self._run(self._inner.close)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> admin_answers.CreatedTopic:
        """Create one topic; None means the controller's default. ``assignments``: node ids by partition.

        Raises:
            Refused: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
                INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG.
            ClusterUnreachable: no answer; the topic may have been created.
        """
        return self._run(
            self._inner.create_topic,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
            assignments=assignments,
            validate_only=validate_only,
        )

    def delete_topic(self, name: str) -> None:
        """Delete the topic that has this name now, and its records; never a later one of the same name.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._run(self._inner.delete_topic, name)

    def describe_topics(self, names: Iterable[str] = ()) -> list[described.DescribedTopic]:
        """Describe topics as the controller has them; without names, all topics.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION for the first name that is unknown.
        """
        return self._run(self._inner.describe_topics, names)

    def alter_topic_configs(
        self, name: str, configs: Mapping[str, str], *, delete: Iterable[str] = (), validate_only: bool = False
    ) -> None:
        """Set a topic's settings, and reset those in ``delete`` to their defaults; all or nothing.

        Raises:
            Refused: INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._run(self._inner.alter_topic_configs, name, configs, delete=delete, validate_only=validate_only)

    def describe_configs(self, name: str, settings: Iterable[str] = ()) -> list[described.TopicConfig]:
        """The effective settings of a topic, by name; with ``settings`` empty, all of them.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG for a name that is not a setting.
        """
        return self._run(self._inner.describe_configs, name, settings)

    def create_partitions(
        self, name: str, count: int, *, assignments: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        """Raise a topic's number of partitions to ``count``; records with keys may go to other partitions from then on.

        Raises:
            Refused: INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._run(self._inner.create_partitions, name, count, assignments=assignments)

    def elect_leaders(
        self, partitions: Iterable[tuple[str, int]] = (), *, unclean: bool = False
    ) -> list[admin_answers.Election]:
        """Elect the preferred replica, or with ``unclean`` any live one; without partitions, wherever that is needed.

        An unclean election is held only if the partition is still in the leader epoch that it has now.
        """
        return self._run(self._inner.elect_leaders, partitions, unclean=unclean)

    def list_nodes(self) -> list[admin_answers.ListedNode]:
        """Every registered node."""
        return self._run(self._inner.list_nodes)

    def shutdown_node(self, node_id: int, *, node_epoch: int | None = None) -> list[TopicPartition]:
        """Begin a node's controlled shutdown; returns the number of partitions that it still leads.

        ``node_epoch`` None means the currently registered process, not one that the node starts later.

        Raises:
            Refused: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
        """
        return self._run(self._inner.shutdown_node, node_id, node_epoch=node_epoch)

    def unregister_node(self, node_id: int) -> None:
        """Remove a node that is gone for good. Its id may register again, as a new node.

        Raises:
            Refused: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST while its session lives or replicas name it.
        """
        self._run(self._inner.unregister_node, node_id)

    def alter_partition_reassignments(
        self,
        targets: admin_answers.Targets,
        *,
        planned_from: Mapping[tuple[str, int], Sequence[int]] | None = None,
        allow_replication_factor_change: bool = True,
        throttle_bytes_per_s: int | None = None,
        validate_only: bool = False,
        force: bool = False,
    ) -> list[admin_answers.Reassigned]:
        """Move partitions to other nodes, or cancel moves; returns one row per partition, accepted or refused.

        ``planned_from``: the replicas that a target was planned from; refused if they have changed since.
        ``throttle_bytes_per_s``: the most bytes per second that each node sends, and receives, for all moves with this
        rate; sent again with the same targets it replaces the previous rate, and None removes it. ``force``: cancel
        even if that leaves the partition below its min ISR.

        Raises:
            Refused: UNSUPPORTED_VERSION while a node runs an older release; INVALID_REQUEST for a throttle below 0.
        """
        return self._run(
            self._inner.alter_partition_reassignments,
            targets,
            planned_from=planned_from,
            allow_replication_factor_change=allow_replication_factor_change,
            throttle_bytes_per_s=throttle_bytes_per_s,
            validate_only=validate_only,
            force=force,
        )

    def list_partition_reassignments(
        self, partitions: Iterable[tuple[str, int]] = ()
    ) -> list[admin_answers.OngoingReassignment]:
        """The reassignments that have not ended, of these partitions or of all.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self._run(self._inner.list_partition_reassignments, partitions)

    def moves_per_node(self) -> int:
        """How many running reassignments may add a replica to one node, and how many may remove one from it; 5 if the
        controller's release does not report it.
        """
        return self._run(self._inner.moves_per_node)

    def drain_node(self, node_id: int, *, draining: bool = True) -> admin_answers.DrainedNode:
        """Drain a node, so that it gets no new replicas and leads only where no other replica can, or stop draining it;
        returns what it still has.

        Raises:
            Refused: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST if the other nodes are too few for what it holds;
                UNSUPPORTED_VERSION while a node runs an older release.
        """
        return self._run(self._inner.drain_node, node_id, draining=draining)

    def describe_acls(self) -> list[Rule]:
        """All access rules, in order."""
        return self._run(self._inner.describe_acls)

    def create_acls(
        self, rules: Iterable[Rule], *, validate_only: bool = False, force: bool = False
    ) -> list[Refusal | None]:
        """Add rules; returns for each its refusal, or None. Adding an existing rule succeeds.

        ``force``: even if the caller could not change rules afterwards.
        """
        return self._run(self._inner.create_acls, rules, validate_only=validate_only, force=force)

    def delete_acls(
        self, rules: Iterable[Rule], *, validate_only: bool = False, force: bool = False
    ) -> list[Refusal | None]:
        """Remove rules; returns for each its refusal, or None. ``force`` as in `create_acls`."""
        return self._run(self._inner.delete_acls, rules, validate_only=validate_only, force=force)

    def describe_quotas(self) -> list[Quota]:
        """All client quotas, in order."""
        return self._run(self._inner.describe_quotas)

    def alter_quotas(self, changes: Iterable[QuotaChange], *, validate_only: bool = False) -> list[Refusal | None]:
        """Set or remove quotas; returns for each its refusal, or None."""
        return self._run(self._inner.alter_quotas, changes, validate_only=validate_only)

    def describe_controllers(self) -> tuple[described.DescribedController, ...]:
        """All controllers, and which of them is active; empty if the cluster's release does not report them.

        Raises:
            Refused: the store that knows does not answer.
        """
        return self._run(self._inner.describe_controllers)

    def metadata(self, *, linearizable: bool = False) -> described.DescribedCluster:
        """The state of the cluster as the controller returns it now, or as a node has it if no controller is active.

        ``linearizable``: include every change that was acknowledged before, to any client; a controller confirms that
        with its store, and no other process is asked (C14b). A controller of an earlier release ignores it.

        Raises:
            Refused: NOT_CONTROLLER, with ``linearizable`` only: no controller decides, or the store does not answer.
            ControllersAway: with ``linearizable`` only.
        """
        return self._run(self._inner.metadata, linearizable=linearizable)

    def describe_partitions(self, topics: Iterable[str] = ()) -> list[described.DescribedLeader]:
        """The leaders' measurements of their partitions, requested from all live nodes at once.

        A partition whose leader does not answer in time is left out.
        """
        return self._run(self._inner.describe_partitions, topics)

    def describe_replicas(self, topics: Iterable[str] = ()) -> list[described.DescribedReplica]:
        """Each live node's own replicas; a node that does not answer is left out."""
        return self._run(self._inner.describe_replicas, topics)

    def list_offsets(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        *,
        timestamp_ms: int = LATEST,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_uncommitted",
    ) -> dict[int, FoundOffset]:
        """Offsets by partition: LATEST (the HW), EARLIEST, MAX_TIMESTAMP, or by time in ms since 1970.

        With "read_committed" LATEST is the last stable offset: the end for readers of committed records.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, or a leader's last refusal at the deadline.
        """
        return self._run(self._inner.list_offsets, topic, partitions, timestamp_ms=timestamp_ms, isolation=isolation)

    def record_times(
        self, offsets: Mapping[tuple[str, int], int] | Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The timestamp of the first record at or after each offset, in ms since 1970, by one small fetch each.

        A partition without such a record, or whose leader does not answer, is left out.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self._run(self._inner.record_times, offsets)

    def delete_records(self, topic: str, offsets: Mapping[int, int]) -> dict[int, DeletedRecords]:
        """Delete the records below an offset permanently, and wait until every in-sync replica has deleted them.

        ``offsets``: the first offset to keep by partition, at most the HW; LATEST (-1) means the HW. While a partition
        has no leader its request is repeated, up to this admin's ``timeout_ms``. Returns the result by partition, with
        the refusal if the deletion is not complete: OFFSET_OUT_OF_RANGE (nothing was deleted),
        REQUEST_TIMED_OUT (the leader has deleted, an in-sync replica has not; ask again), NETWORK_EXCEPTION.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, CLUSTER_AUTHORIZATION_FAILED.
            ValueError: ``offsets`` is empty.
        """
        return self._run(self._inner.delete_records, topic, offsets)

    def list_groups(self, *, states: Iterable[str] = ()) -> list[ListedGroup]:
        """The groups of the cluster, by id; ``states``: only groups in one of these states, for example Empty.

        Raises:
            GroupsIncomplete: a live node did not answer, or has not loaded its groups; it has the others' groups.
        """
        return self._run(self._inner.list_groups, states=states)

    def describe_groups(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Groups with their members, in this order.

        Raises:
            Refused: GROUP_ID_NOT_FOUND for the first that does not exist.
        """
        return self._run(self._inner.describe_groups, group_ids)

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]] | None = None, *, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """A group's committed offsets, for all partitions if none is given; None where there is none.

        ``require_stable`` waits until no newer coordinator can have accepted a commit and no open transaction has
        staged an offset; without it the answer comes at once, even while the coordinator cannot commit, and may be
        older than such a commit.

        Raises:
            Refused: the coordinator refused, or did not answer in time.
        """
        return self._run(self._inner.list_group_offsets, group_id, partitions, require_stable=require_stable)

    def alter_group_offsets(self, group_id: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Commit offsets for a group without members, all in one request; ``metadata`` is stored with plain offsets.

        Raises:
            CommitFailed: some were not committed. UNKNOWN_MEMBER_ID: the group has members.
            ValueError: ``offsets`` is empty.
        """
        self._run(self._inner.alter_group_offsets, group_id, offsets, metadata=metadata)

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, Refusal | None]:
        """Delete a group's committed offsets; returns by partition the refusal, or None if it was deleted.

        Raises:
            Refused: the coordinator refused all of it.
        """
        return self._run(self._inner.delete_group_offsets, group_id, partitions)

    def delete_groups(self, group_ids: Iterable[str]) -> dict[str, Refusal | None]:
        """Delete groups without members and their offsets; returns by id the refusal, or None if it was deleted."""
        return self._run(self._inner.delete_groups, group_ids)

    def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), longer_than_ms: int | None = None
    ) -> list[ListedTransaction]:
        """The transactional ids of the cluster, by id: those in one of ``states``, for example Ongoing, of one of
        ``producer_ids``, and with a transaction that has been open for longer than ``longer_than_ms``.

        Raises:
            TransactionsIncomplete: a live node did not answer, or has not loaded its ids yet; it has the ids of the
            others.
        """
        return self._run(
            self._inner.list_transactions, states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms
        )

    def describe_transactions(self, transactional_ids: Iterable[str]) -> list[DescribedTransaction]:
        """Transactional ids with their transactions, in this order.

        Raises:
            Refused: TRANSACTIONAL_ID_NOT_FOUND for the first that does not exist.
        """
        return self._run(self._inner.describe_transactions, transactional_ids)

    def describe_producers(self, topic: str, partitions: Iterable[int] | None = None) -> list[PartitionProducer]:
        """The producers that the logs of partitions remember, by partition and producer id; all partitions by default.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, or what a leader refused with.
        """
        return self._run(self._inner.describe_producers, topic, partitions)

    def find_hanging_transactions(
        self, topic: str, partitions: Iterable[int] | None = None, *, older_than_ms: int = 900000
    ) -> list[HangingTransaction]:
        """Open transactions of a topic that will never end by themselves: their producer has been silent for longer
        than ``older_than_ms``, and their coordinator does not know them or has ended them. The default is the longest
        time-out that a producer may request (`transaction.max.timeout.ms`).

        Raises:
            Refused: as `describe_producers`.
            TransactionsIncomplete: a node does not report what it coordinates, so no transaction is known to hang.
        """
        return self._run(self._inner.find_hanging_transactions, topic, partitions, older_than_ms=older_than_ms)

    def abort_transaction(self, topic: str, partition: int, *, start_offset: int) -> PartitionProducer:
        """Abort the transaction that began at ``start_offset`` in one partition, regardless of its coordinator; returns
        its producer. Only for one that hangs: if it is alive, its other partitions may still be committed.

        Raises:
            Refused: as `open_transaction`; INVALID_PRODUCER_EPOCH: it has ended meanwhile.
        """
        return self._run(self._inner.abort_transaction, topic, partition, start_offset=start_offset)

    def open_transaction(self, topic: str, partition: int, *, start_offset: int) -> PartitionProducer:
        """The producer whose transaction has been open in one partition since ``start_offset``.

        Raises:
            Refused: as `describe_producers`; INVALID_TXN_STATE: no open transaction began there.
        """
        return self._run(self._inner.open_transaction, topic, partition, start_offset=start_offset)

    def fence_transactional_id(self, transactional_id: str) -> tuple[int, int]:
        """Abort the open transaction of a transactional id and fence its producer, whose next request fails; returns
        the id's new producer id and epoch.

        Raises:
            Refused: TRANSACTIONAL_ID_NOT_FOUND, or the coordinator did not answer in time.
        """
        return self._run(self._inner.fence_transactional_id, transactional_id)

    @property
    def metadata_age_ms(self) -> int | None:
        """The greatest possible age of this admin's metadata, in ms (C62); None before the start."""
        return self._call(lambda: self._inner.metadata_age_ms)

    def authorizations(self) -> set[str]:
        """The ``authorization`` setting of each node that answers: off, acl, or empty without TLS."""
        return self._run(self._inner.authorizations)
