"""Whom each partition is fetched from, and what happens after each answer.

Invariant: a cursor has at most one fetch under way, whose answer is the only one it takes; what is buffered in
all cursors stays below ``buffer_bytes`` plus one answer each.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from strandline.client.cluster.metadata import Cluster
from strandline.client.cluster.view import ClusterView, Leader
from strandline.client.consume.cursor import Cursor, FetchAnswer, WantedFetch, reset_time
from strandline.client.consume.fetch_link import FetchLink, FetchTerms, FollowerLink, LeaderLink
from strandline.client.errors import LogTruncated, OffsetOutOfRange, TopicDeleted
from strandline.client.log import log, some_of
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import Endpoint, PartitionImage
from strandline.core.types import LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.v1 import partition_pb2

# ---- replica_choice
# Which replica a consumer that reads from followers asks: one in its rack if there is one, and not all the same.
#
# Invariant: every consumer stays with its choice while the candidates stay the same; consumers that have the same
# candidates are spread over them by the number that each draws once.


def choose_replica(
    view: ClusterView, partition: PartitionImage, leader: Leader, *, rack: str | None, draw: int
) -> Endpoint:
    """Where to read the partition (KIP-392: in sync and in the reader's rack first).

    The order: an in-sync follower in ``rack``; the leader if it is in ``rack``; any in-sync follower; any other
    replica or observer, those in ``rack`` first; the leader.
    """
    in_sync = _living(view, (node_id for node_id in partition.isr if node_id != leader.node_id))
    near = _in_rack(view, in_sync, rack)
    if near:
        return _one_of(near, partition, draw)
    if _in_rack(view, {leader.node_id: leader.endpoint}, rack):
        return leader.endpoint
    if in_sync:
        return _one_of(in_sync, partition, draw)
    others = _living(view, (one for one in (*partition.replicas, *partition.observers) if one != leader.node_id))
    rest = _in_rack(view, others, rack) or others
    # Without another replica the leader serves: it holds one, and its follower service serves it.
    return _one_of(rest, partition, draw) if rest else leader.endpoint


def _living(view: ClusterView, node_ids: Iterable[NodeId]) -> dict[NodeId, Endpoint]:
    found = {}
    for node_id in node_ids:
        node = view.node(node_id)
        if node is not None and not node.fenced and node.client_endpoint is not None:
            found[node_id] = node.client_endpoint
    return found


def _in_rack(view: ClusterView, among: dict[NodeId, Endpoint], rack: str | None) -> dict[NodeId, Endpoint]:
    if rack is None:
        return {}
    racks = {node_id: node.rack for node_id in among if (node := view.node(node_id)) is not None}
    return {node_id: endpoint for node_id, endpoint in among.items() if racks.get(node_id) == rack}


def _one_of(among: dict[NodeId, Endpoint], partition: PartitionImage, draw: int) -> Endpoint:
    # By the partition too: one consumer of many partitions should not read all of them from one node.
    node_ids = sorted(among)
    return among[node_ids[(draw + partition.tp.partition) % len(node_ids)]]


LOOK_EVERY_MS = 1_000


class FetchPolicy(NamedTuple):
    """How a consumer fetches and what it does when it loses its place."""

    from_followers: bool
    rack: str | None
    draw: int
    """Drawn once by each consumer: which of several equal replicas it reads from."""
    auto_offset_reset: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    buffer_bytes: int
    isolation_level: partition_pb2.IsolationLevel.ValueType


@dataclass(slots=True)
class FetchCounts:
    """What was answered, counted."""

    answers: int = 0
    rejected: int = 0
    bytes_read: int = 0


class Source(NamedTuple):
    """Where a partition is fetched."""

    endpoint: Endpoint
    epoch: LeaderEpoch


class Fetching:
    """All cursors and links of one consumer."""

    def __init__(
        self, cluster: Cluster, policy: FetchPolicy, *, on_news: Callable[[], None], on_lost: Callable[[], None]
    ) -> None:
        """``on_news``: there is something to give to the user; ``on_lost``: a position has to be found."""
        self._cluster = cluster
        self._policy = policy
        self._background = cluster.background
        self._on_news = on_news
        self._on_lost = on_lost
        self._links: dict[Endpoint, FetchLink] = {}
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self.cursors: dict[TopicPartition, Cursor] = {}
        self.counts = FetchCounts()
        self._is_closed = False
        cluster.listen(self._metadata_changed)

    def now_ms(self) -> float:
        """The monotonic clock of back-offs."""
        return time.monotonic() * 1000

    def close(self) -> None:
        """Ask nothing more."""
        self._is_closed = True

    def pump(self, cursors: Iterable[Cursor] | None = None) -> None:
        """Fetch for these cursors (all, if not given) whatever may be fetched now."""
        if self._is_closed:
            return
        now_ms = self.now_ms()
        is_roomy = sum(cursor.buffered_bytes for cursor in self.cursors.values()) < self._policy.buffer_bytes
        wanted: dict[Endpoint, list[tuple[Cursor, WantedFetch]]] = {}
        for cursor in self.cursors.values() if cursors is None else cursors:
            if self._is_deleted(cursor, now_ms):
                continue
            if not (is_roomy or not cursor.buffered_bytes) or not cursor.may_fetch(now_ms, self._policy.max_bytes):
                continue
            source = self._source_of(cursor)
            if source is not None:
                cursor.asked = source
                wanted.setdefault(source.endpoint, []).append((cursor, cursor.wanted(source.epoch)))
        for endpoint, group in wanted.items():
            link, number = self._link(endpoint), next(self._numbers)
            for cursor, _ in group:
                cursor.outstanding = (link, number)
            link.name(number, [one for _, one in group])

    def _is_deleted(self, cursor: Cursor, now_ms: float) -> bool:
        """Whether the cursor's topic is gone. That is an error for the user, again a little later if they read on."""
        if cursor.is_finished or self._cluster.view.topic_by_id(cursor.tp.topic_id) is not None:
            return False
        self.drop(cursor)
        if cursor.failure is None and now_ms >= cursor.resume_at_ms:
            cursor.failure = TopicDeleted(cursor.topic)
            self._on_news()
        return True

    def _source_of(self, cursor: Cursor) -> Source | None:
        view = self._cluster.view
        leader = view.leader_of(cursor.tp)
        if leader is None:
            return None
        partition = view.partition(cursor.tp)
        if self._policy.from_followers and partition is not None:
            policy = self._policy
            endpoint = choose_replica(view, partition, leader, rack=policy.rack, draw=policy.draw)
            return Source(endpoint, leader.epoch)
        return Source(leader.endpoint, leader.epoch)

    def _link(self, endpoint: Endpoint) -> FetchLink:
        link = self._links.get(endpoint)
        if link is None or link.is_broken:
            policy = self._policy
            terms = FetchTerms(
                self._cluster.cluster_id, policy.max_wait_ms, policy.min_bytes, policy.max_bytes, policy.isolation_level
            )
            kind = FollowerLink if policy.from_followers else LeaderLink
            channel = self._cluster.channels.to(endpoint)
            link = kind(channel, terms, self._answered, self._message_refused, self._link_ended)
            self._links[endpoint] = link
            self._background.start(link.run, "fetch link", once=True)
        return link

    def drop(self, cursor: Cursor) -> None:
        """End the fetch under way for a cursor that moves or goes."""
        if cursor.outstanding is not None:
            link, _ = cursor.outstanding
            for known in self._links.values():
                if known is link and not known.is_broken:
                    known.forget([cursor.tp])
            cursor.outstanding = None

    def _answered(
        self,
        link: FetchLink,
        number: int,
        tp: TopicPartition,
        answer: FetchAnswer,
        hint: partition_pb2.CurrentLeader | None,
    ) -> None:
        cursor = self.cursors.get(tp)
        if cursor is None or cursor.outstanding != (link, number):
            return
        cursor.outstanding = None
        self.counts.answers += 1
        if answer.refusal is not None:
            self._refused(cursor, answer.refusal)
            if hint is not None:
                self._cluster.note_leader(tp, hint)
        elif answer.diverging is not None:
            self._diverged(cursor, answer.diverging.end_offset)
        else:
            self._take(cursor, answer)
        self.proceed(cursor)

    def _take(self, cursor: Cursor, answer: FetchAnswer) -> None:
        now_ms = self.now_ms()
        try:
            cursor.take(answer)
        except Refused as refused:
            cursor.damaged(refused, now_ms)
            cursor.retry.failed(now_ms, str(refused))
        else:
            self.counts.bytes_read += len(answer.payload)
            cursor.retry.worked()
        if cursor.chunks:
            self._on_news()

    def proceed(self, cursor: Cursor) -> None:
        """Do what is next for a cursor without a fetch under way: report, find, wait or fetch."""
        if cursor.failure is not None:
            self._on_news()
        elif cursor.is_lost:
            self._on_lost()
        elif cursor.resume_at_ms > self.now_ms():
            # A timer may fire a little early; this is then looked at again.
            self._loop.call_later((cursor.resume_at_ms - self.now_ms()) / 1000, self._woken, cursor)
        else:
            self.pump([cursor])

    def _woken(self, cursor: Cursor) -> None:
        if not self._is_closed and self.cursors.get(cursor.tp) is cursor and cursor.outstanding is None:
            self.proceed(cursor)

    def _refused(self, cursor: Cursor, refusal: Refusal) -> None:
        self.counts.rejected += 1
        if refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(cursor, refusal)
        elif refusal.retriable:
            now_ms = self.now_ms()
            cursor.later(now_ms)
            cursor.retry.failed(now_ms, str(refusal))
            self._cluster.refresh()
        else:
            cursor.failure = Refused(refusal.code, f"{cursor.topic}-{cursor.tp.partition}: {refusal.message}")

    def _out_of_range(self, cursor: Cursor, refusal: Refusal) -> None:
        assert cursor.fetch_offset is not None
        time = reset_time(self._policy.auto_offset_reset)
        if time is None:
            cursor.failure = OffsetOutOfRange(
                cursor.topic, cursor.tp.partition, cursor.fetch_offset, refusal.message or "not in the log"
            )
        else:
            cursor.seek(time=time)

    def _diverged(self, cursor: Cursor, end_offset: Offset) -> None:
        """The log is another one from ``end_offset`` on; what was read after it will not be found again."""
        assert cursor.fetch_offset is not None
        diverging = end_offset if end_offset >= 0 else None
        if self._policy.auto_offset_reset != "error" and diverging is not None:
            cursor.seek(offset=min(diverging, cursor.fetch_offset))
            return
        cursor.failure = LogTruncated(
            cursor.topic,
            cursor.tp.partition,
            offset=cursor.fetch_offset,
            epoch=cursor.last_epoch,
            diverging_offset=diverging,
        )

    def _message_refused(self, link: FetchLink, number: int, refusal: Refusal) -> None:
        for cursor in list(self.cursors.values()):
            if cursor.outstanding == (link, number):
                cursor.outstanding = None
                self._refused(cursor, refusal)
                self.proceed(cursor)

    def _link_ended(self, link: FetchLink, why: str) -> None:
        self._cluster.refresh()
        now_ms = self.now_ms()
        for cursor in list(self.cursors.values()):
            if cursor.outstanding is not None and cursor.outstanding[0] is link:
                cursor.outstanding = None
                cursor.later(now_ms)
                cursor.retry.failed(now_ms, why)
                self.proceed(cursor)

    def _metadata_changed(self) -> None:
        """A new leader, or the next replica, is asked at once; what is parked at the old one is ended."""
        if self._is_closed:
            return
        moved: list[tuple[str, int]] = []
        for cursor in self.cursors.values():
            source = self._source_of(cursor)
            if source is None or source == cursor.asked:
                continue
            if cursor.asked is not None and cursor.asked[1] != source.epoch:
                moved.append((cursor.topic, cursor.tp.partition))
            cursor.asked = source
            self.drop(cursor)
            cursor.backoff.reset()
            cursor.resume_at_ms = 0.0
        if moved:
            log.info("new leaders for %s", some_of(moved))
        self.pump()

    def look_for_leaders(self) -> None:
        """Log it when a partition has had no leader for a while; metadata brings the next one."""
        now_ms = self.now_ms()
        for cursor in self.cursors.values():
            if cursor.may_fetch(now_ms, self._policy.max_bytes) and self._source_of(cursor) is None:
                cursor.retry.failed(now_ms, "no leader is known")
