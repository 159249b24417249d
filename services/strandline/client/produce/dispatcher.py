"""Sends what the lanes decide, over one stream per leader, and hands their answers back.

Invariant: every closed batch is in exactly one lane until it ends, and every end is reported once through
``on_end``; each wait (answer, back-off, delivery) is bounded by the tick that looks at all lanes.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from functools import partial

from strandline.client.cluster.metadata import Cluster
from strandline.client.errors import ClusterUnreachable
from strandline.client.log import RetryLog, log, some_of
from strandline.client.produce.delivery import OutgoingBatch, ProducerIdentity
from strandline.client.produce.lane import PartitionLane
from strandline.client.produce.produce_link import ProduceLink, ProduceTerms, Sent
from strandline.client.settings import ProducerSettings
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import Endpoint
from strandline.core.types import Offset, TopicPartition
from strandline.rpc.channels import Backoff
from strandline.rpc.convert.errors import read_error
from strandline.v1 import leader_service_pb2

TICK_MS = 100
_ANSWER_SLACK_MS = 3_000
"""What a leader's own time-out takes to reach us; a node silent for longer is given up."""

_UNKNOWN_AFTER = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
"""Refusals of a whole message after which its records may be in the log all the same."""


class Dispatcher:
    """All lanes and links of one producer."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, on_end: Callable[[OutgoingBatch], None]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._background = cluster.background
        self._on_end = on_end
        self._lanes: dict[TopicPartition, PartitionLane] = {}
        self._links: dict[Endpoint, ProduceLink] = {}
        self._attempts = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        # Batches in lanes, in order of arrival: what `flush` waits for.
        self._unfinished: dict[OutgoingBatch, PartitionLane] = {}
        self._renewing: set[TopicPartition] = set()
        self._identity: ProducerIdentity | None = None
        self._woken_at: dict[TopicPartition, float] = {}
        self._is_closed = False
        # What batches fail with that come while it is closed.
        self._closed_for = (ErrorCode.NETWORK_EXCEPTION, "the producer is closed")
        cluster.listen(self._metadata_changed)

    def now_ms(self) -> float:
        """The monotonic clock of all deadlines here; not the loop's, which some loops only move between callbacks."""
        return time.monotonic() * 1000

    async def start(self) -> None:
        """Get the producer's identity, and begin to look at deadlines.

        Raises:
            Refused, ClusterUnreachable: there is no identity to be had.
        """
        if self._settings.idempotent and self._settings.transactional_id is None:
            self._identity = await self._init_producer_id()
        self._background.every(TICK_MS, self._tick)

    @property
    def unfinished(self) -> list[OutgoingBatch]:
        """Every closed batch whose end is not known, oldest first."""
        return list(self._unfinished)

    def add(self, batch: OutgoingBatch) -> None:
        """Take a closed batch; from here on its end is certain."""
        lane = self._lane(batch.topic, batch.tp)
        self._unfinished[batch] = lane
        lane.queue.append(batch)
        if self._is_closed:
            self._abandon(batch.tp, lane, [batch], *self._closed_for)
        elif self._cluster.view.topic_by_id(batch.tp.topic_id) is None:
            # It lingered meanwhile.
            self._topic_deleted(batch.tp, lane)
        else:
            self._pump(batch.tp, lane)

    def is_behind(self, tp: TopicPartition) -> bool:
        """Whether batches of this partition wait to be sent."""
        lane = self._lanes.get(tp)
        return lane is not None and bool(lane.queue)

    def begin(self, identity: ProducerIdentity) -> None:
        """Begin a transaction: number from 0 under this identity, and take batches again after `abandon_all`.

        Everything that was taken before has ended.
        """
        assert not self._unfinished, "a transaction begins before the one before has ended"
        self._is_closed, self._identity = False, identity
        for lane in self._lanes.values():
            lane.begin_transaction(identity)

    def abandon_all(self, code: ErrorCode, message: str) -> None:
        """Give everything up, and from now on whatever comes, until `begin`."""
        self._is_closed, self._closed_for = True, (code, message)
        # A copy: the end of a batch may bring the first one of another partition, which is given up at once.
        for tp, lane in list(self._lanes.items()):
            self._abandon(tp, lane, (*lane.in_flight, *lane.queue), code, message)

    def _lane(self, topic: str, tp: TopicPartition) -> PartitionLane:
        lane = self._lanes.get(tp)
        if lane is None:
            lane = PartitionLane(
                f"{topic}-{tp.partition}",
                idempotent=self._settings.idempotent,
                max_in_flight=self._settings.max_in_flight,
                is_transactional=self._settings.transactional_id is not None,
            )
            lane.identity = self._identity
            self._lanes[tp] = lane
        return lane

    def _pump(self, tp: TopicPartition, lane: PartitionLane) -> None:
        """Send whatever the lane lets go now."""
        if self._is_closed or not lane.queue:
            return
        if lane.needs_identity:
            self._renew(tp, lane)
            return
        leader = self._cluster.view.leader_of(tp)
        if leader is None:
            return
        now_ms = self.now_ms()
        lane.leader_is(leader, now_ms)
        while (batch := lane.maybe_take(next(self._attempts), now_ms)) is not None:
            assert batch.attempt is not None
            self._link(leader.endpoint).submit(Sent(batch.attempt, batch, now_ms))
        if lane.queue and lane.resume_at_ms > now_ms:
            self._wake_at(tp, lane)

    def _wake_at(self, tp: TopicPartition, lane: PartitionLane) -> None:
        if self._woken_at.get(tp) == lane.resume_at_ms:
            return
        self._woken_at[tp] = lane.resume_at_ms
        self._loop.call_later((lane.resume_at_ms - self.now_ms()) / 1000, self._woken, tp, lane)

    def _woken(self, tp: TopicPartition, lane: PartitionLane) -> None:
        # A timer may fire a little early; the pump then sets the next.
        self._woken_at.pop(tp, None)
        self._pump(tp, lane)

    def _link(self, endpoint: Endpoint) -> ProduceLink:
        link = self._links.get(endpoint)
        if link is None or link.is_broken:
            settings = self._settings
            terms = ProduceTerms(
                settings.acks, settings.request_timeout_ms, self._cluster.cluster_id, settings.transactional_id
            )
            link = ProduceLink(
                self._cluster.channels.to(endpoint), terms, on_answer=self._answered, on_lost=self._link_lost
            )
            self._links[endpoint] = link
            self._background.start(partial(link.run, settings.connect_timeout_ms), "produce stream", once=True)
        return link

    def _answered(self, sent: Sent, answer: leader_service_pb2.ProduceStreamResponse) -> None:
        batch = sent.batch
        lane = self._unfinished.get(batch)
        if lane is None or not sent.is_current:
            return
        now_ms = self.now_ms()
        row = next((row for topic in answer.responses for row in topic.partition_responses), None)
        refusal = _refusal_of(answer, row)
        if refusal is not None:
            lane.refused(batch, refusal, now_ms)
            if row is not None and row.HasField("current_leader"):
                self._cluster.note_leader(batch.tp, row.current_leader)
            if refusal.retriable:
                self._cluster.refresh()
        else:
            assert row is not None
            lane.acknowledged(batch, Offset(row.base_offset) if row.HasField("base_offset") else None, now_ms)
        self._after(batch.tp, lane, batch)

    def _after(self, tp: TopicPartition, lane: PartitionLane, *touched: OutgoingBatch) -> None:
        for batch in touched:
            if batch.is_done and self._unfinished.pop(batch, None) is not None:
                self._on_end(batch)
        self._pump(tp, lane)

    def _link_lost(self, link: ProduceLink, sent: list[Sent], never_sent: list[Sent], why: str) -> None:
        self._cluster.refresh()
        for group, was_sent in ((sent, True), (never_sent, False)):
            for one in group:
                lane = self._unfinished.get(one.batch)
                if lane is not None and one.is_current:
                    lane.lost(one.batch, self.now_ms(), was_sent=was_sent, why=why)
                    self._after(one.batch.tp, lane, one.batch)

    def _renew(self, tp: TopicPartition, lane: PartitionLane) -> None:
        if tp not in self._renewing:
            self._renewing.add(tp)
            self._background.start(partial(self._renew_lane, tp, lane), "new producer id", once=True)

    async def _renew_lane(self, tp: TopicPartition, lane: PartitionLane) -> None:
        backoff = Backoff()
        retry = RetryLog(f"asking for a new producer id for {lane.name}")
        try:
            while lane.needs_identity and not self._is_closed:
                try:
                    identity = await self._init_producer_id()
                except (Refused, ClusterUnreachable) as error:
                    retry.failed(self.now_ms(), str(error))
                    # The tick gives the batches up when their time is over; until then it is worth asking.
                    await asyncio.sleep(backoff.next_s())
                    continue
                retry.worked()
                if lane.needs_identity:
                    lane.renew(identity)
        finally:
            self._renewing.discard(tp)
        self._pump(tp, lane)

    async def _init_producer_id(self) -> ProducerIdentity:
        answer = await self._cluster.init_producer_id()
        refusal = read_error(answer)
        if refusal is not None:
            raise Refused.of(refusal)
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def _tick(self) -> None:
        now_ms = self.now_ms()
        for tp, lane in list(self._lanes.items()):
            if lane.queue or lane.in_flight:
                self._note_trouble(tp, lane, now_ms)
                self._after(tp, lane, *lane.expire(now_ms))
        limit_ms = self._settings.request_timeout_ms + _ANSWER_SLACK_MS
        for link in self._links.values():
            since_ms = link.oldest_since_ms()
            if since_ms is not None and now_ms - since_ms > limit_ms:
                link.break_off()

    def _note_trouble(self, tp: TopicPartition, lane: PartitionLane, now_ms: float) -> None:
        """Log what keeps a lane from sending, once it has lasted."""
        refusal = lane.last_refusal
        if refusal is not None:
            lane.retry.failed(now_ms, str(refusal))
        elif lane.queue and self._cluster.view.leader_of(tp) is None:
            lane.retry.failed(now_ms, "no leader is known")

    def _metadata_changed(self) -> None:
        if self._is_closed:
            return
        view = self._cluster.view
        now_ms = self.now_ms()
        moved: list[str] = []
        for tp, lane in list(self._lanes.items()):
            if view.topic_by_id(tp.topic_id) is None:
                # Deleted, perhaps made again under its name: that is another log (M63).
                self._topic_deleted(tp, lane)
                continue
            leader = view.leader_of(tp)
            if leader is not None:
                if lane.leader_is(leader, now_ms):
                    moved.append(lane.name)
                self._pump(tp, lane)
        if moved:
            log.info("new leaders for %s", some_of(moved))

    def _topic_deleted(self, tp: TopicPartition, lane: PartitionLane) -> None:
        batches = [*lane.in_flight, *lane.queue]
        for batch in batches:
            batch.is_topic_deleted = True
        self._abandon(tp, lane, batches, ErrorCode.UNKNOWN_TOPIC_ID, "topic is deleted")
        del self._lanes[tp]

    def _abandon(
        self, tp: TopicPartition, lane: PartitionLane, batches: Iterable[OutgoingBatch], code: ErrorCode, message: str
    ) -> None:
        given_up = list(batches)
        lane.abandon(given_up, code, message, self.now_ms())
        self._after(tp, lane, *given_up)


def _refusal_of(
    answer: leader_service_pb2.ProduceStreamResponse, row: leader_service_pb2.ProducePartitionResponse | None
) -> Refusal | None:
    whole = read_error(answer)
    if whole is not None:
        outcome = Outcome.MAY_APPEAR if whole.code in _UNKNOWN_AFTER else Outcome.NOT_APPENDED
        return Refusal(whole.code, whole.message, outcome)
    if row is None:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer names no partition", Outcome.MAY_APPEAR)
    refusal = read_error(row, row.outcome)
    if refusal is not None and refusal.outcome is None:
        return Refusal(refusal.code, refusal.message, Outcome.MAY_APPEAR)
    return refusal
