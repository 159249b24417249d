"""Decides when a data node reports the state of its partitions: changes at once, everything else in samples.

A partition that changes is sampled at most every `sample_min_ms`, an idle one at least every `sample_max_ms`, and each
one just before and just after its ISR changes, its epoch starts, or a stall of its HW ends. With ``sample_min_ms`` 0
only transitions are reported.

Invariant: a report never affects a decision; every call here could be left out without any other effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from strandline.core.log.effects import Effect, Emit
from strandline.core.log.follower import FollowerReplica
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.observer import NodeObserver
from strandline.core.log.state import NodeState
from strandline.core.messages import FetchResult
from strandline.core.state_events import EpochStart, HwAdvance, IsrChange
from strandline.core.types import NodeId, Offset, TopicPartition
from strandline.observe import samples
from strandline.observe.lso_holders import LsoHolders

STALL_MS = 1_000
"""An HW that has not moved for this long, with records above it, has stalled; the end of the stall is sampled."""
_REMEMBERED_APPENDS = 4_096
_LOOKS_PER_TICK = 8
"""The least number of partitions examined in a tick; more if they would not get their turn otherwise."""


class _Led:
    """What was reported of one led partition, and what waits to be reported."""

    __slots__ = ("advances", "appends", "fetches", "isr", "look", "risen_ms", "sampled_ms")

    def __init__(self, leader: LeaderReplica, now_ms: int) -> None:
        self.isr = leader.isr.committed
        self.advances = samples.HwAdvances()
        self.fetches = samples.FetchCounts(now_ms)
        # Log end after each append whose records may lie above the HW, with its time.
        self.appends: deque[tuple[Offset, int]] = deque()
        self.risen_ms = now_ms
        self.look: tuple[object, ...] = ()
        self.sampled_ms = now_ms


class Reporting(NodeObserver):
    """Makes one node's reports about its partitions. It reads ``state`` and changes nothing in it."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._min_ms = state.timings.sample_min_ms
        self._max_ms = state.timings.sample_max_ms
        self._samples = self._min_ms > 0
        self._led: dict[TopicPartition, _Led] = {}
        self._lso = LsoHolders(state.timings.transaction_max_timeout_ms)
        self._local: dict[TopicPartition, tuple[int, Offset, Offset]] = {}
        # For followers that a throttle held back: when that was last reported, and the total time until then.
        self._held: dict[TopicPartition, tuple[int, int]] = {}
        self._waiting: dict[TopicPartition, None] = {}
        # The partitions to examine next, with the time; every partition of this node is here once.
        self._looks: deque[tuple[int, TopicPartition]] = deque()
        self._queued: set[TopicPartition] = set()
        self._last_sample_id = 0
        self._last_tick_ms = 0

    def leads(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        """Report that leadership began."""
        self._led[leader.log.tp] = _Led(leader, now_ms)
        start = EpochStart(leader.log.leo, leader.log.hw, leader.image.isr, *samples.leader_epochs(leader))
        out.append(Emit(leader.log.tp, start))
        self._lso.leads(leader, now_ms)
        self._enqueue(leader.log.tp, now_ms)
        self._sample(leader, now_ms, out)

    def follows(self, tp: TopicPartition, now_ms: int) -> None:
        """Note that this node follows or observes a partition."""
        self._enqueue(tp, now_ms)

    def leaves(self, leader: LeaderReplica, out: list[Effect]) -> None:
        """Report what is left when leadership ends."""
        self._lso.leaves(leader, out)
        led = self._led.pop(leader.log.tp, None)
        if led is not None:
            self._tell(leader, led.advances.rest(), out)

    def appended(self, leader: LeaderReplica, now_ms: int) -> None:
        """Note that records were appended up to the log end."""
        transactions = leader.log.producers.transactions
        if transactions.open or transactions.ended:
            self._lso.appended(leader, now_ms)
        led = self._led.get(leader.log.tp) if self._samples else None
        if led is not None and len(led.appends) < _REMEMBERED_APPENDS:
            led.appends.append((leader.log.leo, now_ms))

    def hw_rose(
        self, leader: LeaderReplica, old: Offset, cause: str, blockers: Iterable[NodeId], now_ms: int, out: list[Effect]
    ) -> None:
        """Report that the HW rose from ``old``; ``blockers`` had held it back."""
        if self._lso.watched:
            self._lso.hw_rose(leader, now_ms, out)
        led = self._led.get(leader.log.tp) if self._samples else None
        if led is None:
            return
        stood_ms, led.risen_ms = now_ms - led.risen_ms, now_ms
        stalled = bool(led.appends) and led.appends[0][1] <= now_ms - STALL_MS and stood_ms >= STALL_MS
        if stalled:
            self._sample(leader, now_ms, out, hw=old)
        while led.appends and led.appends[0][0] <= leader.log.hw:
            led.appends.popleft()
        for advance in led.advances.rose(old, leader.log.hw, cause, blockers, now_ms):
            self._tell(leader, advance, out)
        if led.advances.is_open:
            self._waiting[leader.log.tp] = None
        if stalled:
            self._sample(leader, now_ms, out)

    def _tell(self, leader: LeaderReplica, advance: samples.Advance | None, out: list[Effect]) -> None:
        if advance is not None:
            out.append(Emit(leader.log.tp, HwAdvance(*advance, *samples.leader_epochs(leader))))

    def isr_changed(self, leader: LeaderReplica, now_ms: int, out: list[Effect], *, initiator: str) -> None:
        """Report a change of the committed ISR, with what only this leader knows of those that left or joined."""
        led = self._led.get(leader.log.tp)
        new = leader.isr.committed
        if led is None or set(led.isr) == set(new):
            return
        old, led.isr = led.isr, new
        self._tell(leader, led.advances.rest(), out)
        self._sample(leader, now_ms, out, isr=old)
        removed, added = [n for n in old if n not in new], [n for n in new if n not in old]
        leader_epoch, partition_epoch = samples.leader_epochs(leader)
        echo = IsrChange(
            old_isr=old,
            new_isr=new,
            removed=tuple(samples.member(leader, n) for n in removed),
            added=tuple(samples.member(leader, n) for n in added),
            cause=self._cause(removed) if initiator == "controller" else "lag" if removed else "catch_up",
            initiator=initiator,
            hw=leader.log.hw,
            leader_leo=leader.log.leo,
            elr=leader.image.elr,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
        )
        out.append(Emit(leader.log.tp, echo))
        self._sample(leader, now_ms, out)

    def _cause(self, removed: Collection[NodeId]) -> str | None:
        """The cause as far as a leader knows; the controller's event is authoritative."""
        nodes = [self._state.nodes.get(node_id) for node_id in removed]
        if any(node is not None and node.shutting_down for node in nodes):
            return "controlled_shutdown"
        return "node_fenced" if any(node is None or node.fenced for node in nodes) else None

    def fetched(self, leader: LeaderReplica, replica: NodeId, now_ms: int) -> None:
        """Count a replica's fetch."""
        led = self._led.get(leader.log.tp) if self._samples else None
        if led is not None:
            led.fetches.fetched(replica, now_ms)

    def refused(self, replica: NodeId, results: Iterable[FetchResult]) -> None:
        """Count the refused partitions of a replica's fetch."""
        if not self._samples:
            return
        for result in results:
            led = self._led.get(result.tp)
            if result.refusal is not None and led is not None:
                led.fetches.refused(replica, result.refusal.code)

    def served(self, leader: LeaderReplica, replica: NodeId, end: Offset) -> None:
        """Count the bytes sent to a replica, up to ``end``."""
        led = self._led.get(leader.log.tp) if self._samples else None
        start = leader.progress[replica].remote_leo
        if led is not None and start is not None:
            before, after = leader.log.sizes.bytes_before(start), leader.log.sizes.bytes_before(end)
            if before is not None and after is not None:
                led.fetches.sent(replica, max(0, after - before))

    def ticked(self, now_ms: int, out: list[Effect]) -> None:
        """Make the reports that are due."""
        self._lso.ticked(now_ms, out)
        if not self._samples:
            return
        for tp in tuple(self._waiting):
            leader, led = self._state.leaders.get(tp), self._led.get(tp)
            if leader is not None and led is not None:
                self._tell(leader, led.advances.due(now_ms), out)
            if led is None or not led.advances.is_open:
                del self._waiting[tp]
        self._look_around(now_ms, out)

    def _look_around(self, now_ms: int, out: list[Effect]) -> None:
        """Examine the partitions that are due, spread over the ticks so that no tick takes long."""
        gap_ms, self._last_tick_ms = now_ms - self._last_tick_ms, now_ms
        share = -(-len(self._looks) * min(gap_ms, self._min_ms) // self._min_ms)
        for _ in range(max(_LOOKS_PER_TICK, share)):
            if not self._looks or self._looks[0][0] > now_ms:
                return
            _, tp = self._looks.popleft()
            self._queued.discard(tp)
            if self._look(tp, now_ms, out):
                self._enqueue(tp, now_ms)

    def _enqueue(self, tp: TopicPartition, now_ms: int) -> None:
        if self._samples and tp not in self._queued:
            self._queued.add(tp)
            self._looks.append((now_ms + self._min_ms, tp))

    def _look(self, tp: TopicPartition, now_ms: int, out: list[Effect]) -> bool:
        """Sample a partition if it changed or its last sample is old. Return whether this node still has it."""
        leader, led = self._state.leaders.get(tp), self._led.get(tp)
        if leader is not None and led is not None:
            if led.look != samples.look_of(leader) or now_ms - led.sampled_ms >= self._max_ms:
                self._sample(leader, now_ms, out)
            if now_ms - led.fetches.since_ms >= samples.COUNT_MS:
                out += [Emit(tp, stats) for stats in led.fetches.take(leader, now_ms)]
            return True
        return self._look_at_follower(tp, now_ms, out)

    def _look_at_follower(self, tp: TopicPartition, now_ms: int, out: list[Effect]) -> bool:
        follower = self._state.followers.get(tp)
        if follower is None:
            self._local.pop(tp, None)
            self._held.pop(tp, None)
            return False
        reported_ms, leo, hw = self._local.get(tp, (now_ms - self._max_ms, Offset(0), Offset(0)))
        if (leo, hw) != (follower.log.leo, follower.log.hw) or now_ms - reported_ms >= self._max_ms:
            self._local[tp] = (now_ms, follower.log.leo, follower.log.hw)
            out.append(samples.local_sample(follower, self._max_ms))
        self._report_throttle(follower, now_ms, out)
        return True

    def _report_throttle(self, follower: FollowerReplica, now_ms: int, out: list[Effect]) -> None:
        total_ms = follower.held.total_ms(now_ms)
        reported_ms, before_ms = self._held.get(follower.log.tp, (now_ms - samples.COUNT_MS, 0))
        # A new leader epoch counts from 0.
        since_ms = total_ms - before_ms if total_ms >= before_ms else total_ms
        if since_ms and now_ms - reported_ms >= samples.COUNT_MS:
            self._held[follower.log.tp] = (now_ms, total_ms)
            out.append(samples.throttled(follower, self._state.node_id, since_ms))

    def _sample(
        self,
        leader: LeaderReplica,
        now_ms: int,
        out: list[Effect],
        *,
        hw: Offset | None = None,
        isr: Collection[NodeId] | None = None,
    ) -> None:
        led = self._led[leader.log.tp]
        if not self._samples:
            return
        self._last_sample_id += 1
        led.look, led.sampled_ms = samples.look_of(leader), now_ms
        hw = leader.log.hw if hw is None else hw
        out += samples.replica_samples(
            leader,
            self._state.nodes,
            sample_id=self._last_sample_id,
            interval_ms=self._max_ms,
            hw=hw,
            isr=leader.isr.committed if isr is None else isr,
            next_append_ms=next((at_ms for end, at_ms in led.appends if end > hw), None),
        )
