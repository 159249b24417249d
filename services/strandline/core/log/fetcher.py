"""Decides whom this node asks, for which partitions, and when: the follower's loop over all partitions.

Invariants: a partition has at most one question under way, and only an answer that names that question
counts (a late one is of another epoch or another log); a partition is asked for only when everything
below its fetch offset is durable (M54).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from strandline.core import messages
from strandline.core.log import effects, events
from strandline.core.log.follower import FetchState, FollowerReplica
from strandline.core.log.move_throttle import MoveThrottle, rate_of
from strandline.core.log.state import NodeState
from strandline.core.types import NodeId, TopicPartition

ASK_AGAIN_AFTER_MS = 30_000
"""A question without an answer for this long is asked again (Kafka: replica.socket.timeout.ms)."""


class Fetcher:
    """Asks leaders on behalf of ``state.followers`` and hands each the answers to its own questions."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._checked = state.truncation.checked
        self.candidates: dict[TopicPartition, None] = {}
        """Partitions that may be ready to ask; others wait for an answer, a commit or a time. Changed here alone."""
        self._backing_off: dict[TopicPartition, None] = {}
        self._throttle = MoveThrottle()

    def consider(self, tp: TopicPartition) -> None:
        """Something changed for this partition; look at the end of the step whether it can be asked for."""
        self.candidates[tp] = None

    def ask(self, now_ms: int, out: list[effects.Effect]) -> None:
        """End of a step: one message per leader and kind of question."""
        candidates, self.candidates = self.candidates, {}
        by_kind: dict[tuple[FetchState, NodeId], list[FollowerReplica]] = defaultdict(list)
        for tp in candidates:
            follower = self._state.followers.get(tp)
            if follower is None or follower.leader is None:
                continue
            if follower.is_ready(now_ms):
                if not self._is_held(follower, now_ms):
                    by_kind[follower.state, follower.leader].append(follower)
            elif follower.outstanding is None and follower.retry_at_ms > now_ms:
                self._backing_off[tp] = None
        # Before the fetch that counts: an election after losses compares these epochs, and a log that was counted in
        # one and cannot show it would lose against a fork that lacks committed records (M66, TR45).
        for (kind, _), followers in by_kind.items():
            if kind is FetchState.FETCHING:
                self._reconcile(f for f in followers if f.agrees_before_fetching)
        self._state.save_reconciled(out)
        for (kind, leader), followers in by_kind.items():
            self._send(kind, leader, followers, now_ms, out)

    def _is_held(self, follower: FollowerReplica, now_ms: int) -> bool:
        """Whether this replica is being added or has come back, and its bytes have to wait (C80)."""
        rate = self._rate_of(follower)
        is_held = (
            rate is not None
            and follower.state is FetchState.FETCHING
            and follower.lags
            and self._throttle.holds(follower.log.tp, rate, now_ms)
        )
        return follower.held.note(is_held, now_ms) if follower.image.adding else is_held

    def _rate_of(self, follower: FollowerReplica) -> int | None:
        image, node_id = follower.image, self._state.node_id
        if node_id in image.isr:
            return None
        if node_id in image.adding:
            return rate_of(image, node_id, image.isr)
        return self._state.timings.catch_up_bytes_per_s or None

    def _release(self, now_ms: int) -> None:
        for tp in self._throttle.released(now_ms):
            self.consider(tp)

    @property
    def due_ms(self) -> int:
        """When a partition that waits for its rate may be fetched."""
        return self._throttle.due_ms

    def _reconcile(self, followers: Iterable[FollowerReplica]) -> None:
        for follower in followers:
            self._state.reconcile(follower.log.tp, follower.leader_epoch)

    def _send(
        self, kind: FetchState, leader: NodeId, followers: list[FollowerReplica], now_ms: int, out: list[effects.Effect]
    ) -> None:
        correlation_id = self._state.next_correlation_id()
        for follower in followers:
            follower.outstanding = correlation_id
            follower.asked_at_ms = now_ms
        if kind is FetchState.FETCHING:
            out.append(effects.SendFetch(leader, correlation_id, self._fetch_request(followers)))
        elif kind is FetchState.TRUNCATING:
            questions = tuple(
                messages.EpochEndQuestion(f.log.tp, f.log.epochs.latest_epoch, f.leader_epoch) for f in followers
            )
            out.append(effects.SendEpochEnds(leader, correlation_id, questions))
        elif kind is FetchState.RESTARTING:
            for follower in followers:
                self._ask_producers(leader, follower, out)
        else:
            both = tuple(
                messages.OffsetQuestion(f.log.tp, which, f.leader_epoch)
                for f in followers
                for which in (messages.LATEST, messages.EARLIEST)
            )
            out.append(effects.SendListOffsets(leader, correlation_id, both))

    def _ask_producers(self, leader: NodeId, follower: FollowerReplica, out: list[effects.Effect]) -> None:
        # One question for each partition: an answer may be large, and few replicas begin again at a time.
        correlation_id = follower.outstanding = self._state.next_correlation_id()
        question = messages.ProducerSnapshotQuestion(follower.log.tp, follower.leader_epoch)
        out.append(effects.SendProducerSnapshot(leader, correlation_id, question))

    def _fetch_request(self, followers: list[FollowerReplica]) -> messages.FetchRequest:
        timings = self._state.timings
        return messages.FetchRequest(
            partitions=tuple(self._fetch_partition(f) for f in followers),
            replica=self._state.identity,
            max_wait_ms=timings.replica_fetch_wait_max_ms,
            min_bytes=timings.replica_fetch_min_bytes,
            max_bytes=timings.replica_fetch_response_max_bytes,
        )

    def _fetch_partition(self, follower: FollowerReplica) -> messages.FetchPartition:
        log = follower.log
        last_fetched = log.epochs.latest_epoch if self._checked else None
        max_bytes = self._state.timings.replica_fetch_max_bytes
        epoch, start, barrier = follower.leader_epoch, log.log_start_offset, follower.barrier_seen
        return messages.FetchPartition(log.tp, log.leo, epoch, last_fetched, start, max_bytes, barrier)

    def release(self, follower: FollowerReplica, out: list[effects.Effect]) -> None:
        """This partition no longer follows that leader: its stream need not hold a fetch for it."""
        if follower.outstanding is not None and follower.leader is not None:
            if follower.state is FetchState.FETCHING:
                out.append(effects.SendForget(follower.leader, (follower.log.tp,)))
            follower.outstanding = None
        self.candidates.pop(follower.log.tp, None)
        self._backing_off.pop(follower.log.tp, None)

    def fetched(self, event: events.FetchAnswered, out: list[effects.Effect]) -> list[TopicPartition]:
        """Hand out a fetch answer; each partition counts only if this is the question it has under way. Returns the
        partitions whose HW moved."""
        moved: list[TopicPartition] = []
        asked = [(a, self._asker(a.tp, event.correlation_id, FetchState.FETCHING)) for a in event.partitions]
        # An answer without divergence confirms that the logs agree; made durable before the first append.
        self._reconcile(f for answer, f in asked if f is not None and answer.says_that_logs_agree)
        self._state.save_reconciled(out)
        for answer, follower in asked:
            if follower is None:
                continue
            if follower.on_fetched(answer, event.now_ms, out):
                moved.append(answer.tp)
            if answer.batches and (rate := self._rate_of(follower)) is not None:
                self._throttle.passed(rate, sum(batch.size_bytes for batch in answer.batches), event.now_ms)
            self._answered(follower)
        self._release(event.now_ms)
        return moved

    def fetch_failed(self, event: events.FetchFailed) -> None:
        """No answer; a broken stream fails every question that was under way on it."""
        for tp, follower in self._state.followers.items():
            concerns = (
                follower.outstanding is not None
                if event.correlation_id is None
                else follower.outstanding == event.correlation_id
            )
            if concerns and follower.leader == event.leader and follower.state is FetchState.FETCHING:
                follower.on_no_answer(event.now_ms)
                self.consider(tp)

    def epoch_ends(self, event: events.EpochEndsAnswered, out: list[effects.Effect]) -> None:
        """Hand out answers to OffsetForLeaderEpoch."""
        for answer in event.answers:
            follower = self._asker(answer.tp, event.correlation_id, FetchState.TRUNCATING)
            if follower is not None:
                follower.on_epoch_end(answer, event.now_ms, out)
                self._answered(follower)

    def offsets(self, event: events.OffsetsAnswered, out: list[effects.Effect]) -> None:
        """Hand out answers to ListOffsets: for each partition the latest, then the earliest."""
        for latest, earliest in zip(event.answers[::2], event.answers[1::2], strict=False):
            follower = self._asker(latest.tp, event.correlation_id, FetchState.OUT_OF_RANGE)
            if follower is not None:
                follower.on_offsets(latest, earliest, event.now_ms, out)
                self._answered(follower)

    def producers(self, event: events.ProducerSnapshotAnswered, out: list[effects.Effect]) -> None:
        """Hand out an answer to FetchProducerSnapshot."""
        follower = self._asker(event.answer.tp, event.correlation_id, FetchState.RESTARTING)
        if follower is not None:
            follower.on_producer_snapshot(event.answer, event.now_ms, out)
            self._answered(follower)

    def _answered(self, follower: FollowerReplica) -> None:
        self.consider(follower.log.tp)
        if follower.refused_cut_to is not None:
            self._state.unreported[follower.log.tp] = None

    def question_failed(
        self, event: events.EpochEndsFailed | events.OffsetsFailed | events.ProducerSnapshotFailed
    ) -> None:
        """A question other than a fetch had no answer: ask again later, cut nothing."""
        for tp, follower in self._state.followers.items():
            if follower.outstanding == event.correlation_id:
                follower.on_no_answer(event.now_ms)
                self.consider(tp)

    def _asker(self, tp: TopicPartition, correlation_id: int, state: FetchState) -> FollowerReplica | None:
        follower = self._state.followers.get(tp)
        if follower is None or follower.outstanding != correlation_id or follower.state is not state:
            return None
        return follower

    @property
    def is_backing_off(self) -> bool:
        """Whether a partition waits before it is fetched again."""
        return bool(self._backing_off)

    def ticked(self, now_ms: int) -> None:
        """Partitions that backed off, or waited for their rate, long enough may be fetched again."""
        self._release(now_ms)
        for tp in [tp for tp in self._backing_off if self._is_over(tp, now_ms)]:
            del self._backing_off[tp]
            self.consider(tp)

    def _is_over(self, tp: TopicPartition, now_ms: int) -> bool:
        follower = self._state.followers.get(tp)
        return follower is None or follower.retry_at_ms <= now_ms

    def ask_again(self, now_ms: int) -> None:
        """Give up a question that was neither answered nor failed; the next one replaces it."""
        for tp, follower in self._state.followers.items():
            if follower.outstanding is not None and now_ms - follower.asked_at_ms >= ASK_AGAIN_AFTER_MS:
                follower.outstanding = None
                self.consider(tp)
