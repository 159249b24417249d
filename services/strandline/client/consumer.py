"""The `Consumer` client: decides where reading begins, which records are returned when, and when reading ends.

Invariant: records of a partition are returned in the order of their offsets, each once, and only committed ones; the
position is the next offset to return, never one that was only fetched.

Three ways to read: ``async for record in consumer`` yields one `ConsumerRecord` after another, `poll` returns a bounded
list of them, and `fetch_batches` returns lists of raw records per partition and is several times faster.
"""

from __future__ import annotations

import asyncio
import operator
import random
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Generic, Literal, Self

from strandline.client.cluster.metadata import METADATA_STALE_MS, Cluster
from strandline.client.consume.cursor import Cursor
from strandline.client.consume.fetching import LOOK_EVERY_MS, FetchCounts, Fetching, FetchPolicy
from strandline.client.consume.positions import Assignment, Lag, LagMeter, PositionFinder, Where, records_behind
from strandline.client.errors import ClientClosed, CommitFailed
from strandline.client.groups.committed_offsets import (
    AsMember,
    CommittedOffsets,
    OffsetAndMetadata,
    Offsets,
    read_offsets,
)
from strandline.client.groups.committing import Positions
from strandline.client.groups.group_commits import GroupCommits, behind
from strandline.client.groups.member import MemberTerms, Subscription
from strandline.client.groups.membership import GroupMetadata, Membership, MembershipHooks, MembershipSettings
from strandline.client.offsets import EARLIEST, LATEST, OffsetFinder
from strandline.client.records import ConsumerRecord, FetchedRecords, K, RebalanceListener, TopicPartition, V
from strandline.client.serialization import DeserializationFailed, Incoming, Interceptor, intercept_commit
from strandline.client.settings import DEFAULT_CLIENT_ID
from strandline.client.stats import STATS_INTERVAL_MS, ConsumerStats, PartitionStats, stats_reporter
from strandline.client.token import TokenCallback
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Offset
from strandline.records.codec import Record
from strandline.rpc import channels
from strandline.v1 import partition_pb2

_ISOLATION = {
    "read_uncommitted": partition_pb2.ISOLATION_LEVEL_UNSPECIFIED,
    "read_committed": partition_pb2.ISOLATION_LEVEL_READ_COMMITTED,
}

_ENDS: dict[str | None, Where] = {"earliest": "beginning", "latest": "end"}


class Consumer(Generic[K, V]):
    """Reads partitions of a cluster. Use it as an async context manager, or call `start` and `close`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        group: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        client_id: str = DEFAULT_CLIENT_ID,
        # Not Kafka's default: without transactions it costs nothing, with them it hides what is aborted.
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        auto_offset_reset: Literal["earliest", "latest", "error"] | None = None,
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        assignor: Literal["uniform", "range"] = "uniform",
        session_timeout_ms: int = 45_000,
        strict_ownership: bool = True,
        rebalance_timeout_ms: int = 300_000,
        max_poll_interval_ms: int = 300_000,
        request_timeout_ms: int = 30_000,
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
        reset = auto_offset_reset or "error"
        if read_from not in ("leader", "follower") or reset not in ("earliest", "latest", "error"):
            raise ValueError("read_from must be leader or follower, auto_offset_reset earliest, latest or error")
        if isolation not in _ISOLATION:
            raise ValueError(f"isolation {isolation!r} must be one of {', '.join(_ISOLATION)}")
        if stats_interval_ms <= 0:
            raise ValueError(f"stats_interval_ms {stats_interval_ms} must be positive")
        self._policy = FetchPolicy(
            read_from == "follower",
            rack,
            # Drawn, or all consumers of a rack would read from the same one of its replicas.
            random.getrandbits(32),
            reset,
            max_wait_ms,
            min_bytes,
            max_bytes,
            buffer_bytes,
            _ISOLATION[isolation],
        )
        if auto_commit_interval_ms <= 0 or request_timeout_ms <= 0:
            raise ValueError("auto_commit_interval_ms and request_timeout_ms must be positive")
        if group is not None and not group.strip():
            raise ValueError("group must not be blank; give a name of 1 to 249 characters, or None")
        positive = {
            "session_timeout_ms": session_timeout_ms,
            "rebalance_timeout_ms": rebalance_timeout_ms,
            "max_poll_interval_ms": max_poll_interval_ms,
        }
        if wrong := next((name for name, value in positive.items() if value <= 0), None):
            raise ValueError(f"{wrong} {positive[wrong]} must be positive")
        if instance_id is not None and (group is None or not instance_id.strip()):
            raise ValueError("instance_id must not be blank, and needs a group: it names one of its members")
        self._terms = MemberTerms(
            # Chosen here, so that a join that is repeated after a lost answer does not make a second member.
            member_id=str(uuid.uuid4()),
            instance_id=instance_id,
            rack=rack,
            assignor=assignor,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        self._membership_settings = MembershipSettings(
            start=None if auto_offset_reset == "error" else _ENDS.get(auto_offset_reset, "beginning"),
            max_poll_interval_ms=max_poll_interval_ms,
            strict_ownership=strict_ownership,
            commits_by_itself=auto_commit,
        )
        self._offsets: CommittedOffsets | None = None
        self._membership: Membership | None = None
        self._group_id = group
        self._auto_commit_ms = auto_commit_interval_ms if auto_commit else None
        self._request_timeout_ms = request_timeout_ms
        self._group: GroupCommits | None = None
        self._reset = auto_offset_reset
        self._stop_at_end = stop_at_end
        self._cluster = Cluster(
            bootstrap,
            client_id=client_id,
            stale_ms=metadata_stale_ms,
            on_trouble=lambda _: self._news.set(),
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_ca=tls_ca,
            token=token,
        )
        self._interceptors = interceptors
        incoming = Incoming(key, value, interceptors)
        self._incoming = None if incoming.changes_nothing else incoming
        self._on_stats = on_stats
        self._stats_interval_ms = stats_interval_ms
        self._fetching: Fetching | None = None
        self._assignment: Assignment | None = None
        self._news = asyncio.Event()
        self._lost = asyncio.Event()
        # Looked up once, because it is called for every record.
        self._is_here = self._cluster.background.is_here
        self._is_closing = False
        # The partition whose records iteration is returning.
        self._current: Cursor | None = None
        self._records_read = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect.

        Raises:
            ClusterUnreachable: no node answered.
        """
        await self._cluster.start()
        fetching = Fetching(self._cluster, self._policy, on_news=self._news.set, on_lost=self._lost.set)
        offsets = None if self._group_id is None else CommittedOffsets(self._cluster, self._group_id)
        is_committed = self._policy.isolation_level == partition_pb2.ISOLATION_LEVEL_READ_COMMITTED
        self._use(fetching, offsets, OffsetFinder(self._cluster, read_committed=is_committed))
        self._cluster.background.every(LOOK_EVERY_MS, fetching.look_for_leaders)

    def _use(self, fetching: Fetching, offsets: CommittedOffsets | None, finder: OffsetFinder) -> None:
        """Read, commit and find positions by these."""
        self._fetching, self._offsets, background = fetching, offsets, self._cluster.background
        if offsets is not None:
            self._group = GroupCommits(
                offsets,
                fetching,
                background,
                timeout_ms=self._request_timeout_ms,
                on_committed=lambda positions: intercept_commit(self._interceptors, positions),
            )
            if self._auto_commit_ms is not None:
                background.every(self._auto_commit_ms, self._group.commit_by_itself)
        positions = PositionFinder(
            finder, fetching, stop_at_end=self._stop_at_end, lost=self._lost, on_found=self._news.set, group=self._group
        )
        background.start(positions.run, "find positions")
        self._cluster.listen(self._topics_changed)
        self._assignment = Assignment(
            self._cluster,
            fetching,
            grows=not self._stop_at_end,
            of_group=self._group is not None,
            on_added=self._lost.set,
        )
        if self._on_stats is not None:
            background.every(self._stats_interval_ms, stats_reporter(self.stats, self._on_stats))

    async def close(self) -> None:
        """Commit what was returned before the last step (with ``auto_commit``), leave the group, close all connections.

        A member with an ``instance_id`` leaves for a restart: its partitions are kept for it until its session ends.

        Raises:
            RuntimeError: a background task had failed unexpectedly; WrongLoop: not the loop in which it was started.
        """
        self._cluster.background.check_loop()
        try:
            if self._group is not None and not self._is_closing:
                await self._leave(for_a_restart=True)
                if self._auto_commit_ms is not None:
                    await self._group.commit_last()
        finally:
            # Only now, because the listener may commit while partitions are given up, and a closed consumer refuses it.
            self._is_closing = True
            if self._fetching is not None:
                self._fetching.close()
            self._news.set()
            await self._cluster.close()

    async def assign(
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
        self._running()
        if end is not None and not self._stop_at_end:
            raise ValueError("an end needs stop_at_end=True, or what lies behind it would be waited for")
        assert self._assignment is not None
        if self._membership is not None:
            raise ValueError("this consumer has subscribed; await unsubscribe() before it assigns partitions itself")
        entries = [partitions] if isinstance(partitions, str) else partitions
        if self._group is not None:
            if self._auto_commit_ms is not None:
                # Before the change: afterwards the positions of partitions that are dropped are not known any more.
                self._group.commit_by_itself()
            start = _ENDS.get(self._reset, start)
        await self._assignment.assign(entries, start, follows=follow_topic, end=end)
        self._current = None
        self._begin()
        return self.assignment()

    async def subscribe(
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
        group = self._grouped()
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if not names and not pattern:
            raise ValueError("give the topics to subscribe to, or a pattern")
        if self._stop_at_end:
            raise ValueError("stop_at_end needs partitions that stay; assign them instead of subscribing")
        # Sorted, so that the same topics in another order are no change that the coordinator has to hear of.
        subscription = Subscription(tuple(sorted(set(names))), pattern)
        if self._membership is not None and self._membership.failure is None:
            self._membership.subscribe(subscription, listener)
            return
        await self._leave(for_a_restart=False)
        await self._join(group, subscription, listener)

    async def _join(self, group: GroupCommits, subscription: Subscription, listener: RebalanceListener | None) -> None:
        assert self._assignment is not None and self._offsets is not None
        self._assignment.clear()
        self._current = None
        self._membership = membership = Membership(
            self._cluster,
            self._offsets.coordinator,
            self._running(),
            self._assignment,
            group,
            self._cluster.background,
            terms=self._terms,
            subscription=subscription,
            settings=self._membership_settings,
            listener=listener,
            hooks=MembershipHooks(self._news.set, self._begin, self._withheld),
        )
        self._offsets.member, group.may_commit = membership.as_member, membership.may_give
        membership.begin()
        await membership.until_heard(self._request_timeout_ms)

    async def unsubscribe(self) -> None:
        """Commit what was returned before the last step (with ``auto_commit``), then leave the group.

        Without a subscription, drop the assignment.
        """
        fetching = self._running()
        await self._leave(for_a_restart=False)
        assert self._assignment is not None
        if fetching.cursors:
            self._assignment.clear()
        self._current = None

    async def _leave(self, *, for_a_restart: bool) -> None:
        membership = self._membership
        if membership is None or self._offsets is None or self._group is None:
            return
        await membership.leave(for_a_restart=for_a_restart)
        self._membership = None
        self._offsets.member, self._group.may_commit = lambda: None, lambda: True

    def group_metadata(self) -> GroupMetadata:
        """This member's identity for commits in a transaction.

        Pass it to `Transaction.send_offsets`: if records were returned from a partition that was lost since, the
        transaction is aborted, even if the partition has come back. In a block that polls several times, get it before
        the first `poll`.

        Raises:
            ValueError: the consumer has not subscribed.
        """
        self._running()
        member = self._member()
        if member is None or self._group_id is None:
            raise ValueError("this consumer is not a member of a group; subscribe first")
        return GroupMetadata(self._group_id, *member, self._grouped().superseded())

    async def commit(
        self, offsets: Offsets | Iterable[ConsumerRecord[K, V]] | None = None, *, metadata: str = ""
    ) -> None:
        """Commit offsets for the group: given next offsets, those after these records, or after all records returned.

        ``metadata`` is a text that is stored with plain offsets. It waits for a commit under way, and at most
        ``request_timeout_ms`` for its own.

        Raises:
            CommitFailed: some were not committed; ``refused`` says which and why. UNKNOWN_MEMBER_ID: the group has
                members, which own the partitions. STALE_MEMBER_EPOCH: another member owns the partition, or it was
                lost after these records were returned.
            ValueError: the consumer has no group.
        """
        await self._grouped().commit(self._to_commit(offsets, metadata))

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
        self._grouped().commit_nowait(self._to_commit(offsets, ""), done)

    async def committed(self, *partitions: tuple[str, int]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets by partition, by default of all assigned ones; None where there is none.

        Raises:
            Refused: the coordinator refused, or did not answer within ``request_timeout_ms``.
            ValueError: the consumer has no group.
        """
        group = self._grouped()
        wanted = [TopicPartition(*one) for one in partitions] or list(self.assignment())
        return await group.committed(wanted) if wanted else {}

    def assignment(self) -> frozenset[TopicPartition]:
        """Every partition that is read now, including those added to a topic that was assigned by name."""
        return frozenset(cursor.name for cursor in self._running().cursors.values())

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions, by default of all; fetched records stay buffered, no more are fetched.

        Errors of a paused partition are still raised, once everything that was fetched before has been returned.
        """
        for cursor in self._chosen(partitions):
            cursor.is_paused = True
            # What was unpacked stays with the cursor, and comes first when the partition is resumed.
            if cursor is self._current:
                self._current = None

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Return records of these partitions again, by default of all."""
        for cursor in self._chosen(partitions):
            cursor.is_paused = False
        self._news.set()
        self._running().pump()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(cursor.name for cursor in self._running().cursors.values() if cursor.is_paused)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at this offset."""
        self._move([self._cursor(topic, partition)], offset=Offset(offset))

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go to the first offset of these partitions, by default of all."""
        self._move(self._chosen(partitions), time=EARLIEST)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go to the HW of these partitions, by default of all."""
        self._move(self._chosen(partitions), time=LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Go to the first record at or after a time (ms since 1970), to the end if there is none."""
        # `time.time() * 1000` is a float, for example.
        self._move(self._chosen(partitions), time=int(timestamp_ms))

    def position(self, topic: str, partition: int) -> Offset | None:
        """The offset of the next record to return; None while it is being looked up."""
        return self._cursor(topic, partition).position

    def high_watermark(self, topic: str, partition: int) -> Offset | None:
        """The HW in the last answer; None before the first."""
        return self._cursor(topic, partition).high_watermark

    @property
    def is_finished(self) -> bool:
        """With ``stop_at_end``: whether everything was returned."""
        cursors = self._running().cursors.values()
        return self._stop_at_end and all(cursor.is_finished for cursor in cursors)

    async def lag(self) -> dict[TopicPartition, Lag]:
        """How many records each partition is behind what this consumer may read, requested from the leaders now.

        Partitions whose position is not found yet, or whose leader does not answer within ``request_timeout_ms``, are
        left out.

        Raises:
            Refused: a partition cannot be read.
        """
        # A copy: the assignment may change while leaders are asked.
        cursors = dict(self._running().cursors)
        meter = LagMeter(self._cluster, self._policy.isolation_level)
        found = await meter.measure(cursors.values(), deadline_ms=self._request_timeout_ms)
        return {cursors[tp].name: lag for tp, lag in found.items()}

    def stats(self) -> ConsumerStats:
        """Counts since this consumer was created, and its state in each partition."""
        cursors = list(self._fetching.cursors.values()) if self._fetching is not None else []
        counts = self._fetching.counts if self._fetching is not None else FetchCounts()
        return ConsumerStats(
            client_id=self._cluster.client_id,
            records_read=self._records_read,
            bytes_read=counts.bytes_read,
            fetch_answers=counts.answers,
            fetches_rejected=counts.rejected,
            buffered_bytes=sum(cursor.buffered_bytes for cursor in cursors),
            metadata_age_ms=self._cluster.metadata_age_ms,
            partitions=MappingProxyType({cursor.name: _stats_of(cursor) for cursor in cursors}),
        )

    async def fetch_batches(self, timeout_ms: int | None = None) -> list[FetchedRecords]:
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
        self._step()
        until_s = _until_s(timeout_ms)
        try:
            while True:
                fetched = self._take_buffered() if self._may_give() else []
                if fetched or self.is_finished or not await self._has_news(until_s):
                    return fetched
        finally:
            self._stepped()

    async def poll(self, timeout_ms: int | None = None, *, max_records: int = 500) -> list[ConsumerRecord[K, V]]:
        """Up to ``max_records`` records of any partitions, each in order; empty at the time-out, and when finished.

        It waits for the first record only.

        Raises:
            DeserializationFailed: a record cannot be deserialized; those before it were returned, the next call
            continues after it.
            OffsetOutOfRange, LogTruncated, NothingCommitted, TopicDeleted, UnreadableBatch, Refused: as
                `fetch_batches`.
            ValueError: ``max_records`` is not positive.
        """
        if max_records < 1:
            raise ValueError(f"max_records {max_records} must be positive")
        self._step()
        until_s = _until_s(timeout_ms)
        # A loop of polls that are served from the buffer would starve the streams that fill it.
        await asyncio.sleep(0)
        try:
            while True:
                may_give = self._may_give()
                records = self._gather(max_records) if may_give else []
                if self._incoming is not None and records:
                    records = self._incoming.intercept(records)
                if records or self.is_finished:
                    return records
                # An interceptor may have left out every record, while more of them can be given without waiting.
                if not (may_give and self._has_something()) and not await self._has_news(until_s):
                    return records
        finally:
            self._stepped()

    async def _has_news(self, until_s: float | None) -> bool:
        """Wait for news; returns False if there is none by a time of the loop. Only here does a TimeoutError mean that,
        because a listener may raise one, too."""
        # Nothing is awaited between the caller's look and this line, so no news can be lost in between.
        self._news.clear()
        try:
            async with asyncio.timeout_at(until_s):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        """The next record.

        Raises:
            StopAsyncIteration: with ``stop_at_end``, everything was returned.
            DeserializationFailed, OffsetOutOfRange, LogTruncated, NothingCommitted, TopicDeleted, UnreadableBatch,
                Refused: as `poll`.
        """
        while True:
            cursor = self._current
            if (
                cursor is None
                or not cursor.unpacked
                or not self._is_here()
                or (self._membership is not None and not self._membership.gives_on())
            ):
                cursor = await self._next_served()
            record = cursor.unpacked.popleft()
            # Neither Offset() nor a named tuple's own constructor: per record, each is a call of Python.
            cursor.position = record.offset + 1 if cursor.unpacked else cursor.unpacked_end  # type: ignore[assignment]
            if self._group is not None:
                self._group.gave_next(cursor, record.offset)
            if self._incoming is None:
                return record
            for given in self._incoming.intercept([self._incoming.convert(record)]):
                return given

    async def _next_served(self) -> Cursor:
        """Wait for a partition whose records are given one by one.

        Raises:
            StopAsyncIteration: everything was given.
        """
        self._step()
        try:
            while (cursor := self._current) is None or not cursor.unpacked or not self._may_give():
                if not await self._next_chunk():
                    raise StopAsyncIteration
            return cursor
        finally:
            self._stepped()

    async def _next_chunk(self) -> bool:
        """Wait for records to be given one by one; False when finished."""
        while not (self._may_give() and self._unpack()):
            if self.is_finished:
                return False
            await self._has_news(None)
        # Lets the streams go on while the records are worked on.
        await asyncio.sleep(0)
        return True

    def _unpack(self, *, may_raise: bool = True) -> bool:
        """Unpack what is given next, one by one; False if there is nothing now.

        Raises:
            Refused: a partition has failed, if ``may_raise``.
        """
        fetching = self._running()
        while cursor := next(
            (one for one in fetching.cursors.values() if one.has_records or (may_raise and one.has_failed)), None
        ):
            if not cursor.unpacked:
                cursor.unpack(self._pop(cursor, ConsumerRecord, cursor.name))
            # The one that is served goes last, so that a busy partition starves no other.
            fetching.cursors[cursor.tp] = fetching.cursors.pop(cursor.tp)
            fetching.pump()
            if cursor.unpacked:
                self._current = cursor
                return True
        return False

    def _gather(self, limit: int) -> list[ConsumerRecord[K, V]]:
        given: list[ConsumerRecord[K, V]] = []
        while len(given) < limit:
            if self._current is None or not self._current.unpacked:
                # A failure waits for a call without records, because an exception would take them with it.
                if not self._unpack(may_raise=not given):
                    break
                assert self._current is not None
            if not self._give(self._current, limit, given):
                break
        return given

    def _give(self, cursor: Cursor, limit: int, given: list[ConsumerRecord[K, V]]) -> bool:
        """Add a partition's next records until there are ``limit``; False in front of one that the next call reports.

        Raises:
            DeserializationFailed: the very first record cannot be deserialized.
        """
        unpacked = cursor.unpacked
        if self._group is not None:
            self._group.gave(cursor, unpacked[0].offset)
        if self._incoming is None:
            taken = [unpacked.popleft() for _ in range(min(limit - len(given), len(unpacked)))]
            given += taken
            cursor.position = Offset(taken[-1].offset + 1) if unpacked else cursor.unpacked_end
            return True
        while unpacked and len(given) < limit:
            record = unpacked[0]
            try:
                converted = self._incoming.convert(record)
            except DeserializationFailed:
                if given:
                    return False
                unpacked.popleft()
                cursor.position = Offset(record.offset + 1) if unpacked else cursor.unpacked_end
                raise
            unpacked.popleft()
            cursor.position = Offset(record.offset + 1) if unpacked else cursor.unpacked_end
            given.append(converted)
        return True

    def _has_something(self) -> bool:
        """Whether there is something to give or to raise without waiting."""
        return any(cursor.has_records or cursor.has_failed for cursor in self._running().cursors.values())

    def _take_buffered(self) -> list[FetchedRecords]:
        fetching = self._running()
        fetched: list[FetchedRecords] = []
        for cursor in fetching.cursors.values():
            # A failure waits for a call without records, because an exception would take them with it.
            if (fetched and cursor.failure is not None) or not (cursor.has_records or cursor.has_failed):
                continue
            first = len(fetched)
            if cursor.unpacked:
                # What was unpacked to be given one by one comes first.
                fetched.append(cursor.pop_unpacked())
            while cursor.chunks or (cursor.failure is not None and not fetched):
                popped = self._pop(cursor)
                if popped.records:
                    fetched.append(popped)
            if len(fetched) > first:
                # What was popped behind it may have held no record to give.
                cursor.position = max(fetched[-1].end, cursor.position or Offset(0))
                if self._group is not None:
                    self._group.gave(cursor, fetched[first].records[0].offset)
        if fetched:
            fetching.pump()
        return fetched

    def _pop(
        self, cursor: Cursor, kind: type[tuple[Any, ...]] = Record, before: tuple[Any, ...] = ()
    ) -> FetchedRecords:
        if not cursor.chunks and cursor.failure is not None:
            failure, cursor.failure = cursor.failure, None
            # A caller that continues after it reads on from the same position, a little later.
            fetching = self._running()
            cursor.later(fetching.now_ms())
            fetching.proceed(cursor)
            # Its end may have to be asked for again.
            self._lost.set()
            raise failure
        popped = cursor.pop_records(kind, before)
        self._records_read += len(popped.records)
        if cursor.failure is not None and not cursor.chunks:
            # The fetch under way asks for what lies behind a batch that only a seek gets past.
            self._running().drop(cursor)
        return popped

    def _running(self) -> Fetching:
        channels.check()
        self._cluster.background.check()
        if self._fetching is None or self._is_closing:
            raise ClientClosed("the consumer is not running; use `async with`, or await start() first")
        return self._fetching

    def _step(self) -> None:
        """The user asks for more."""
        self._running()
        if self._group is not None:
            self._group.step()
        if self._membership is not None:
            self._membership.asks()

    def _stepped(self) -> None:
        """The user has got what there was."""
        if self._membership is not None:
            self._membership.given()

    def _may_give(self) -> bool:
        """Whether records may be given now.

        Raises:
            Refused: the consumer is no member of its group any more; or whatever its listener raised.
        """
        self._running()
        if self._membership is None:
            return True
        self._membership.check()
        return self._membership.may_give()

    def _withheld(self, cursors: Collection[Cursor]) -> None:
        if self._current in cursors:
            self._current = None

    def _grouped(self) -> GroupCommits:
        self._running()
        if self._group is None:
            raise ValueError("this consumer has no group; give one: Consumer(bootstrap, group=...)")
        return self._group

    def _to_commit(self, offsets: Offsets | Iterable[ConsumerRecord[K, V]] | None, metadata: str) -> Positions:
        if offsets is None:
            return self._grouped().given(metadata)
        if isinstance(offsets, Mapping):
            return read_offsets(offsets, metadata)
        return behind(offsets, metadata)

    def _cursor(self, topic: str, partition: int) -> Cursor:
        for cursor in self._running().cursors.values():
            if cursor.topic == topic and cursor.tp.partition == partition:
                return cursor
        raise Refused(ErrorCode.INVALID_REQUEST, f"{topic}-{partition} is not assigned; assign it first")

    def _chosen(self, partitions: Sequence[tuple[str, int]]) -> list[Cursor]:
        if not partitions:
            return list(self._running().cursors.values())
        return [self._cursor(topic, partition) for topic, partition in partitions]

    def _move(self, cursors: Iterable[Cursor], *, offset: Offset | None = None, time: int | None = None) -> None:
        fetching, asked = self._running(), operator.index(offset or time or 0)
        if not -(1 << 63) <= asked < 1 << 63:
            raise ValueError(f"{asked} does not fit into 64 bits")
        for cursor in cursors:
            fetching.drop(cursor)
            if self._group is not None:
                # Before the seek, because it notes how far the records were given.
                self._group.moved(cursor)
            cursor.seek(offset=offset, time=time)
        self._begin()

    def _member(self) -> AsMember | None:
        """As whom offsets are committed now; None: as no member."""
        return self._membership.as_member() if self._membership is not None else None

    def _rewind(self) -> None:
        """Go back to what the group has committed, or to the first record that was given since."""
        if self._is_closing or self._group is None or self._fetching is None:
            return
        # After an abort: otherwise the next transaction would skip what the aborted one has consumed.
        for cursor, first in self._group.take_back().items():
            self._fetching.drop(cursor)
            self._group.moved(cursor)
            cursor.seek(offset=first)
            cursor.begin_at_committed()
            cursor.is_committed_only = False
        self._begin()

    def _topics_changed(self) -> None:
        if self._membership is not None:
            self._membership.topics_changed()

    def _begin(self) -> None:
        self._lost.set()
        self._running().pump()


def _until_s(timeout_ms: int | None) -> float | None:
    return None if timeout_ms is None else asyncio.get_running_loop().time() + timeout_ms / 1000


def _stats_of(cursor: Cursor) -> PartitionStats:
    position, high_watermark = cursor.position, cursor.high_watermark
    return PartitionStats(
        position=position,
        high_watermark=high_watermark,
        log_start_offset=cursor.log_start_offset,
        lag=records_behind(position, high_watermark, cursor.log_start_offset),
        buffered_bytes=cursor.buffered_bytes,
        is_paused=cursor.is_paused,
    )
