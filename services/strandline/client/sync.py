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
from strandline.client.administer import admin_answers, described, reassignments
from strandline.client.administer.described_groups import DescribedGroup, ListedGroup
from strandline.client.administer.described_transactions import (
    DescribedTransaction,
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

        An idempotent producer repeats what may have been lost, and the leader knows a copy (M61). Without
        idempotence only what was definitely not written is sent again.

        With ``transactional_id`` every record is part of a transaction, see `transaction`; a producer that is started
        with the same id later fences this one. ``transaction_timeout_ms``: after which its coordinator aborts one that
        is still open. It needs ``acks="all"`` and idempotence.

        Metadata older than ``metadata_stale_ms`` is looked for at another process. TLS is given as paths or as PEM in
        bytes, all three or none; or ``tls_ca`` alone, and ``token``, which returns the token to show.

        Raises:
            ValueError: a setting breaks its rule, the bootstrap names no address, or what is given for TLS cannot be
                used.
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
        which aborts what a producer before has left open.

        Raises:
            ClusterUnreachable: no node answered.
            Refused: there is no producer id to be had; INVALID_TRANSACTION_TIMEOUT: the cluster allows less.
        """
        self._run(self._inner.start)

    def transaction(self, *, consumer: Consumer[Any, Any] | None = None) -> Transaction:
        """A transaction, for ``with``: what is sent in the block is committed at its end, all or nothing.

        An exception that leaves the block aborts it. ``consumer`` takes part in it: the positions behind all that it
        has given are committed with the records, and after an abort it goes back to what its group has committed; its
        ``auto_commit`` must be off. Deliveries are acknowledged when a record is written, and not when it is committed.

        At the end of the block:

        Raises:
            TransactionAborted: nothing of it counts; run the block again.
            ProducerFenced: another producer was started with the ``transactional_id``; end the process.
            OutcomeUnknown: the coordinator did not answer within ``delivery_timeout_ms``; `Transaction.commit` asks
                again.
            ValueError: the producer has no ``transactional_id``; the consumer has no group, or commits by itself.
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
        """Send everything that was taken before now and wait for its end; failures are in the deliveries.

        Raises:
            TimeoutError: after ``timeout_ms``; without it the delivery time-out ends every wait.
        """
        self._run_within(timeout_ms, self._inner.flush, timeout_ms)

    def stats(self) -> ProducerStats:
        """Counts since this producer was made, and what it holds now."""
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
        """Take one record, waiting for room; the delivery is waited for to get its offset.

        ``on_done`` is called at the record's end with where it lies, or with why it was given up. ``tag`` is anything
        of yours that names the record: ``on_delivery`` gets those of a whole batch at once, for less than a call of
        each.

        Raises:
            Refused: MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS;
                nothing was sent then. REQUEST_TIMED_OUT after ``max_block_ms`` without room.
            TopicDeleted: the topic was sent to before and has been deleted for 5 s.
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
        ``isolation``: "read_committed" gives only what no transaction can take back, up to the last stable offset; as
        long as no transaction is open that is everything below the high watermark, as with "read_uncommitted".

        ``auto_offset_reset`` decides what happens when the position is not in the log, or the log was truncated
        below it: "error" and None raise `OffsetOutOfRange` or `LogTruncated`, the others go on elsewhere (after a
        truncation at the first offset that differs). Where a group has committed nothing, a member begins at the end
        that it names, under None at the beginning, and under "error" not at all. ``stop_at_end``: end iteration at what
        was the end of each partition when its position was found.

        With ``group``, `assign` begins where that group has committed, and with ``auto_commit`` what was given before
        the present `poll` or step of iteration is committed every ``auto_commit_interval_ms`` and at the end: at least
        once, never what is in hand. Without it nothing is ever committed. Consumers that only `assign` share nothing:
        each partition is for the user to give to one of them. ``request_timeout_ms`` bounds a commit, `committed`
        and `lag`.

        With `subscribe` the group's coordinator gives each partition to one member, by ``assignor``. A member that
        sends no heartbeat for ``session_timeout_ms`` (the group's coordinator accepts 6 s to 30 min as it is set up),
        keeps what it was asked to give up for ``rebalance_timeout_ms``, or does not ask for records for
        ``max_poll_interval_ms``, loses its partitions. ``instance_id`` is a name that this consumer keeps when it is
        started again: its partitions wait for it for a session. A consumer whose heartbeats are not answered stops
        giving records when 0.9 of its session is over, so that no two members ever work on one partition;
        ``strict_ownership=False`` goes on, and allows that.

        ``on_stats`` gets `stats` every ``stats_interval_ms``. ``max_wait_ms``, ``min_bytes`` and ``max_bytes`` bound
        one answer, ``buffer_bytes`` what is fetched ahead. Metadata older than ``metadata_stale_ms`` is looked for at
        another process. TLS is given as paths or as PEM in bytes, all three or none; or ``tls_ca`` alone, and
        ``token``, which returns the token to show.

        Raises:
            ValueError: a setting has no such value, or what is given for TLS cannot be used.
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
        """Commit what was given before the last step (with ``auto_commit``), leave the group, close every connection.

        A member with an ``instance_id`` leaves for a restart: its partitions wait for it until its session is over.

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
        """Read exactly these from now on; a bare topic means all its partitions. Returns them one by one.

        ``end``, with ``stop_at_end``, is the offset in front of which reading stops, instead of what is the end now.
        ``start`` is where reading begins in partitions that were not assigned before: an end or an offset. With a group
        that is where it has committed; where it has not, ``auto_offset_reset`` if that names an end, else ``start``. As
        long as the group's coordinator does not answer, reading does not begin. A bare
        topic's partitions that are added later are read too, from their first record on, unless ``follow_topic`` is
        False or ``stop_at_end`` is set.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
            ValueError: the consumer has subscribed; or ``end`` is given without ``stop_at_end``.
        """
        return self._run(self._inner.assign, partitions, start=start, end=end, follow_topic=follow_topic)

    def subscribe(
        self, topics: str | Sequence[str] = (), *, pattern: str | None = None, listener: RebalanceListener | None = None
    ) -> None:
        """Join the group and read what its coordinator gives to this member, in place of an earlier subscription.

        ``pattern`` is RE2; the coordinator matches it against the whole names of topics, those that are created later
        included. Reading begins where the group has committed; where it has not, at the end that ``auto_offset_reset``
        names, under None at the beginning; under "error" the next call for records raises `NothingCommitted`, again
        and again until another place is sought. Returns when the coordinator has answered, or after
        ``request_timeout_ms``; then the consumer goes on asking.

        Raises:
            Refused: the coordinator rejects such a member: INVALID_REGULAR_EXPRESSION, GROUP_MAX_SIZE_REACHED,
                UNSUPPORTED_ASSIGNOR, INVALID_REQUEST and others.
            ValueError: the consumer has no group, or ``stop_at_end``; or neither topics nor a pattern are given.
        """
        self._run(self._inner.subscribe, topics, pattern=pattern, listener=listener)

    def unsubscribe(self) -> None:
        """Commit what was given before the last step (with ``auto_commit``), give everything up, leave the group.

        Without a subscription, drop what was assigned.
        """
        self._run(self._inner.unsubscribe)

    def group_metadata(self) -> GroupMetadata:
        """This member, as it commits.

        It is for `Transaction.send_offsets`, and names what was given before a partition was lost, which aborts a
        transaction even if the partition has come back. Ask before the first `poll` of a block that polls several
        times: what such a block is given once more counts as given.

        Raises:
            ValueError: the consumer has not subscribed.
        """
        return self._call(self._inner.group_metadata)

    def commit(self, offsets: Offsets | Iterable[ConsumerRecord[K, V]] | None = None, *, metadata: str = "") -> None:
        """Commit positions of the group: the next offset per partition, behind these records, or behind all given.

        ``metadata`` is a text that goes with bare offsets. It waits for a commit that is under way, and at most
        ``request_timeout_ms`` for its own.

        Raises:
            CommitFailed: some were not committed; ``refused`` says which and why. UNKNOWN_MEMBER_ID: the group has
                members, which own the partitions. STALE_MEMBER_EPOCH: another member owns the partition, or it was
                lost after these records were given.
            ValueError: the consumer has no group.
        """
        self._run(self._inner.commit, offsets, metadata=metadata)

    def commit_nowait(
        self,
        offsets: Offsets | None = None,
        done: Callable[[dict[TopicPartition, OffsetAndMetadata], CommitFailed | None], None] | None = None,
    ) -> None:
        """As `commit`, without waiting; ``done`` is called with the positions and what became of them.

        Calls that come while a commit is under way are merged into the next one.

        Raises:
            ValueError: the consumer has no group.
        """
        self._call(self._inner.commit_nowait, offsets, done)

    def committed(self, *partitions: tuple[str, int]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, by partition, of all that are assigned without any; None where nothing is.

        Raises:
            Refused: the coordinator refused, or did not answer within ``request_timeout_ms``.
            ValueError: the consumer has no group.
        """
        return self._run(self._inner.committed, *partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        """Every partition that is read now, those added to a bare topic included."""
        return self._call(self._inner.assignment)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give no record of these, of all without any; what is fetched stays buffered, and nothing more is fetched.

        Errors of a paused partition are still raised, once all that was fetched before has been given.
        """
        self._call(self._inner.pause, *partitions)

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Give records of these again, of all without any."""
        self._call(self._inner.resume, *partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._call(self._inner.paused)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at this offset."""
        self._call(self._inner.seek, topic, partition, offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go to the first offset of these partitions, of all without any."""
        self._call(self._inner.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go to the HW of these partitions, of all without any."""
        self._call(self._inner.seek_to_end, *partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Go to the first record at or after a time (ms since 1970), to the end if there is none."""
        self._call(self._inner.seek_to_time, timestamp_ms, *partitions)

    def position(self, topic: str, partition: int) -> Offset | None:
        """The next offset to be given; None while it is being found."""
        return self._call(self._inner.position, topic, partition)

    def high_watermark(self, topic: str, partition: int) -> Offset | None:
        """The HW that the last answer brought; None before the first."""
        return self._call(self._inner.high_watermark, topic, partition)

    @property
    def is_finished(self) -> bool:
        """With ``stop_at_end``: whether everything was given."""
        return self._call(lambda: self._inner.is_finished)

    def lag(self) -> dict[TopicPartition, Lag]:
        """How far each partition is behind what this consumer may read, asked of the leaders now.

        Partitions whose position is not found yet, or whose leader does not answer within ``request_timeout_ms``, are
        left out.

        Raises:
            Refused: a partition cannot be read.
        """
        return self._run(self._inner.lag)

    def stats(self) -> ConsumerStats:
        """Counts since this consumer was made, and where it stands in each partition."""
        return self._call(self._inner.stats)

    def fetch_batches(self, timeout_ms: int | None = None) -> list[FetchedRecords]:
        """What has been fetched, waiting for something; empty at the time-out, and when finished.

        The records are raw: neither deserializers nor interceptors see them.

        Raises:
            OffsetOutOfRange, LogTruncated, NothingCommitted: the position is lost, or there is none, see
                ``auto_offset_reset``.
            TopicDeleted: a topic that is read is gone; the next calls say so again until another `assign`. A member
                that subscribed by its name raises it once and goes on, one that subscribed by a pattern does not.
            UnreadableBatch: a batch cannot be unpacked; its ``next_offset`` is where to go on.
            Refused: a partition cannot be read. What was read before was given, the others come with the next call.
        """
        return self._run_within(timeout_ms, self._inner.fetch_batches, timeout_ms)

    def poll(self, timeout_ms: int | None = None, *, max_records: int = 500) -> list[ConsumerRecord[K, V]]:
        """Up to ``max_records`` records of any partitions, each in order; empty at the time-out, and when finished.

        It waits for the first record only.

        Raises:
            DeserializationFailed: a record cannot be deserialized; those before it were given, the next call goes on
                behind it.
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
            StopIteration: with ``stop_at_end``: everything was given.
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
        """``timeout_ms`` is the deadline of every question. Metadata older than ``metadata_stale_ms`` is looked for at
        another process. ``client_id`` is the first word of the user agent of every call. TLS is given as paths or as
        PEM in bytes, all three or none; or ``tls_ca`` alone, and ``token``, which returns the token to show.

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
        """Create one topic; what is None is the controller's default. ``assignments``: node ids by partition.

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
        """Topics as the controller has them; all without names.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION for the first name that is unknown.
        """
        return self._run(self._inner.describe_topics, names)

    def alter_topic_configs(
        self, name: str, configs: Mapping[str, str], *, delete: Iterable[str] = (), validate_only: bool = False
    ) -> None:
        """Give a topic's settings new values, and those in ``delete`` their defaults; all or nothing.

        Raises:
            Refused: INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._run(self._inner.alter_topic_configs, name, configs, delete=delete, validate_only=validate_only)

    def describe_configs(self, name: str, settings: Iterable[str] = ()) -> list[described.TopicConfig]:
        """Settings of a topic as they are in force, by name; ``settings`` empty: all.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG for a name that is no setting.
        """
        return self._run(self._inner.describe_configs, name, settings)

    def create_partitions(
        self, name: str, count: int, *, assignments: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        """Let a topic have ``count`` partitions; records with keys go elsewhere from then on.

        Raises:
            Refused: INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._run(self._inner.create_partitions, name, count, assignments=assignments)

    def elect_leaders(
        self, partitions: Iterable[tuple[str, int]] = (), *, unclean: bool = False
    ) -> list[admin_answers.Election]:
        """Elect the preferred replica, or with ``unclean`` any living one; without partitions where needed.

        An unclean election is held in the leader epoch that the partition has now, or not at all.
        """
        return self._run(self._inner.elect_leaders, partitions, unclean=unclean)

    def list_nodes(self) -> list[admin_answers.ListedNode]:
        """Every registered node."""
        return self._run(self._inner.list_nodes)

    def shutdown_node(self, node_id: int, *, node_epoch: int | None = None) -> list[TopicPartition]:
        """Begin a node's controlled shutdown; the partitions it still leads.

        ``node_epoch`` None means the process that is registered now, and none that the node starts later.

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
        targets: reassignments.Targets,
        *,
        planned_from: Mapping[tuple[str, int], Sequence[int]] | None = None,
        allow_replication_factor_change: bool = True,
        throttle_bytes_per_s: int | None = None,
        validate_only: bool = False,
        force: bool = False,
    ) -> list[reassignments.Reassigned]:
        """Change which nodes hold partitions, or cancel that; one row per partition, taken or refused.

        ``planned_from``: the nodes that a target was planned from; refused if they are others by now.
        ``throttle_bytes_per_s``: most bytes that a node sends, and that a node receives, for those of this rate, in a
        second; sent again with the same targets it takes the place of the former rate, None of any. ``force``: cancel
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
    ) -> list[reassignments.OngoingReassignment]:
        """The reassignments that have not ended, of these partitions or of all.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self._run(self._inner.list_partition_reassignments, partitions)

    def moves_per_node(self) -> int:
        """How many running reassignments may add a replica to one node, and how many may take one from it; 5 from a
        controller of a release that does not say.
        """
        return self._run(self._inner.moves_per_node)

    def drain_node(self, node_id: int, *, draining: bool = True) -> reassignments.DrainedNode:
        """Have a node get no new replicas and lead only where no other replica can, or end that; what it still has.

        Raises:
            Refused: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST if the other nodes are too few for what it holds;
                UNSUPPORTED_VERSION while a node runs an older release.
        """
        return self._run(self._inner.drain_node, node_id, draining=draining)

    def describe_acls(self) -> list[Rule]:
        """All rules of who may do what, in order."""
        return self._run(self._inner.describe_acls)

    def create_acls(
        self, rules: Iterable[Rule], *, validate_only: bool = False, force: bool = False
    ) -> list[Refusal | None]:
        """Add rules; for each why it was refused, None where it was not. One that is there already stays.

        ``force``: even if that keeps the caller from changing rules again.
        """
        return self._run(self._inner.create_acls, rules, validate_only=validate_only, force=force)

    def delete_acls(
        self, rules: Iterable[Rule], *, validate_only: bool = False, force: bool = False
    ) -> list[Refusal | None]:
        """Take rules back; for each why it was refused, None where it was not. ``force`` as in `create_acls`."""
        return self._run(self._inner.delete_acls, rules, validate_only=validate_only, force=force)

    def describe_quotas(self) -> list[Quota]:
        """All quotas of clients, in order."""
        return self._run(self._inner.describe_quotas)

    def alter_quotas(self, changes: Iterable[QuotaChange], *, validate_only: bool = False) -> list[Refusal | None]:
        """Set quotas, or remove them; for each why it was refused, None where it was not."""
        return self._run(self._inner.alter_quotas, changes, validate_only=validate_only)

    def describe_controllers(self) -> tuple[described.DescribedController, ...]:
        """Every controller that is there, and which one decides; none from a release that cannot say.

        Raises:
            Refused: the store that knows does not answer.
        """
        return self._run(self._inner.describe_controllers)

    def metadata(self, *, linearizable: bool = False) -> described.DescribedCluster:
        """The whole state of the cluster as the controller returns it now; without one, as a node has it.

        ``linearizable``: with every change that was answered before, by any client; a controller confirms
        that by its store, and no other process is asked (C14b). A controller of an earlier release answers without.

        Raises:
            Refused: NOT_CONTROLLER, with ``linearizable`` only: no controller decides, or the store does not answer.
            ControllersAway: with ``linearizable`` only.
        """
        return self._run(self._inner.metadata, linearizable=linearizable)

    def describe_partitions(self, topics: Iterable[str] = ()) -> list[described.DescribedLeader]:
        """What leaders measure of the partitions they lead, asked of every living node at once.

        A partition whose leader does not answer in time is left out.
        """
        return self._run(self._inner.describe_partitions, topics)

    def describe_replicas(self, topics: Iterable[str] = ()) -> list[described.DescribedReplica]:
        """What every living node says of its own replicas; a node that does not answer is left out."""
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
        """When the first record at or after each offset was written, in ms since 1970, by one small fetch each.

        A partition without such a record, or whose leader does not answer, is left out.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self._run(self._inner.record_times, offsets)

    def delete_records(self, topic: str, offsets: Mapping[int, int]) -> dict[int, DeletedRecords]:
        """Delete the records below an offset for good, and wait until every in-sync replica has deleted them.

        ``offsets``: by partition the first offset to keep, at most the HW; LATEST (-1) means the HW. Leaders are
        asked, again while a partition has none, for as long as this admin's ``timeout_ms``. Answers by partition, each
        with the refusal that kept it from being complete, if any: OFFSET_OUT_OF_RANGE (nothing was deleted),
        REQUEST_TIMED_OUT (the leader has deleted, an in-sync replica has not; ask again), NETWORK_EXCEPTION.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, CLUSTER_AUTHORIZATION_FAILED.
            ValueError: ``offsets`` is empty.
        """
        return self._run(self._inner.delete_records, topic, offsets)

    def list_groups(self, *, states: Iterable[str] = ()) -> list[ListedGroup]:
        """The groups of the cluster, by id; ``states``: only those in one of these, Empty for example.

        Raises:
            GroupsIncomplete: a living node did not answer, or does not know its groups yet; it has those of the others.
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
        """What a group has committed, of all partitions without any; None where nothing is.

        ``require_stable`` waits until no newer coordinator can have taken a commit, and until no open transaction is to
        commit another offset; without it the answer comes at once, also while the coordinator cannot commit, and may
        be from before such a commit.

        Raises:
            Refused: the coordinator refused, or did not answer in time.
        """
        return self._run(self._inner.list_group_offsets, group_id, partitions, require_stable=require_stable)

    def alter_group_offsets(self, group_id: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Commit positions for a group without members, all in one request; ``metadata`` goes with bare offsets.

        Raises:
            CommitFailed: some were not committed. UNKNOWN_MEMBER_ID: the group has members.
            ValueError: ``offsets`` is empty.
        """
        self._run(self._inner.alter_group_offsets, group_id, offsets, metadata=metadata)

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, Refusal | None]:
        """Delete what a group has committed; by partition why it was not, None if it is gone.

        Raises:
            Refused: the coordinator refused all of it.
        """
        return self._run(self._inner.delete_group_offsets, group_id, partitions)

    def delete_groups(self, group_ids: Iterable[str]) -> dict[str, Refusal | None]:
        """Delete groups that have no members, with their offsets; by id why it was not, None if it is gone."""
        return self._run(self._inner.delete_groups, group_ids)

    def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), longer_than_ms: int | None = None
    ) -> list[ListedTransaction]:
        """The transactional ids of the cluster, by id: those in one of ``states``, Ongoing for example, of one of
        ``producer_ids``, and with a transaction that has been open for longer than ``longer_than_ms``.

        Raises:
            TransactionsIncomplete: a living node did not answer, or does not know its ids yet; it has those of the
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
        """What the logs of partitions, all without any, remember of producers, by partition and producer id.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, or what a leader refused with.
        """
        return self._run(self._inner.describe_producers, topic, partitions)

    def find_hanging_transactions(
        self, topic: str, partitions: Iterable[int] | None = None, *, older_than_ms: int = 900000
    ) -> list[HangingTransaction]:
        """Open transactions of a topic that will not end by themselves: longer than ``older_than_ms`` without a word
        of their producer, and their coordinator does not know them, or knows them ended. The default is the longest
        time-out that a producer may ask for (`transaction.max.timeout.ms`).

        Raises:
            Refused: as `describe_producers`.
            TransactionsIncomplete: a node does not say what it coordinates, so nothing can be called hanging.
        """
        return self._run(self._inner.find_hanging_transactions, topic, partitions, older_than_ms=older_than_ms)

    def abort_transaction(self, topic: str, partition: int, *, start_offset: int) -> PartitionProducer:
        """Abort the transaction that began at ``start_offset`` of one partition, whatever its coordinator says; the
        producer as it was. Only for one that hangs: of one that lives, the other partitions may still be committed.

        Raises:
            Refused: as `open_transaction`; INVALID_PRODUCER_EPOCH: it has ended meanwhile.
        """
        return self._run(self._inner.abort_transaction, topic, partition, start_offset=start_offset)

    def open_transaction(self, topic: str, partition: int, *, start_offset: int) -> PartitionProducer:
        """Whose transaction is open in one partition since ``start_offset``.

        Raises:
            Refused: as `describe_producers`; INVALID_TXN_STATE: no transaction that is open began there.
        """
        return self._run(self._inner.open_transaction, topic, partition, start_offset=start_offset)

    def fence_transactional_id(self, transactional_id: str) -> tuple[int, int]:
        """Abort the open transaction of a transactional id, and fence its producer, whose next request fails; the
        producer id and epoch that it has then.

        Raises:
            Refused: TRANSACTIONAL_ID_NOT_FOUND, or the coordinator did not answer in time.
        """
        return self._run(self._inner.fence_transactional_id, transactional_id)

    @property
    def metadata_age_ms(self) -> int | None:
        """How old the metadata that this admin follows may be, in ms (C62); None before it has started."""
        return self._call(lambda: self._inner.metadata_age_ms)

    def authorizations(self) -> set[str]:
        """Who may do what at the nodes that answer, by their settings: off, acl, and empty without TLS."""
        return self._run(self._inner.authorizations)
