"""Facts of a broker's logs as state events of that broker, in the names and meanings of `export/schema.py` (A.4, A.5b).

The emitter is the broker; its incarnation is its broker epoch, and its times are its own clock's, since 1970. A line
says what the metadata log does not: positions at a removal and at the start of an epoch, when a member was caught up,
cuts of logs. Numbers of requests are in no line: a proposal is numbered by its place in the log.

Invariant: a fact that no topic, or no decision, can be found for is counted and left out. What a line does not say is
null, and nothing holds beyond its line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.core.state_events import (
    AlterPartition,
    ConfigChange,
    EpochStart,
    IsrChange,
    Member,
    Moment,
    Number,
    StateEvent,
    Truncation,
    decided_isr_change,
)
from strandline.core.types import LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicPartition
from strandline.kafka.history.broker_clocks import BrokerClock
from strandline.kafka.history.broker_logs import Logged
from strandline.kafka.history.causes import LEADER
from strandline.kafka.history.events import NOT_RECORDED, UNKNOWN_OFFSET, HistoryEvent
from strandline.kafka.history.line_facts import (
    BrokerRegistered,
    CutAsked,
    CutBelowHw,
    CutDone,
    CutWithoutEffect,
    FollowerStarted,
    IsrUpdated,
    LeaderStarted,
    LogLoaded,
    Setting,
    ShrinkProposed,
)
from strandline.kafka.history.skeleton import Decision, Removal, Skeleton

LAG_TIME = "replica.lag.time.max.ms"
SOURCE = "source"
"""In ``ext``: the file and the line that say it."""
_FAR_MS = 3_600_000
"""A line and its decision are not further apart, or the name means another topic."""

PROPOSED_WITHIN_MS = 60_000
"""A controller answers within a request timeout, or the proposal is made again."""
_SLACK_MS = 60_000
"""A line may follow the end of its topic, and stand before its beginning by the error of a clock."""

Place = tuple[str, int]


class Placed(NamedTuple):
    """One event of a broker: when by its own clock, and which of its processes."""

    at_us: int
    incarnation: int
    reported: HistoryEvent


@dataclass(slots=True)
class _Replica:
    """What the lines so far said of one partition at this broker."""

    partition_epoch: int | None = None
    leader_epoch: int = 0
    leo: int | None = None
    asked: tuple[int, int, ShrinkProposed] | None = None
    """The removal that was proposed last: its number, when as written, and the line."""
    reason: str = NOT_RECORDED
    below: CutBelowHw | None = None


@dataclass(slots=True)
class BrokerStory:
    """Tells the facts of one broker as events."""

    node_id: int
    clock: BrokerClock
    skeleton: Skeleton
    removals: Mapping[Place, Sequence[Removal]] = field(default_factory=dict)
    """By topic and partition."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Facts that nothing could be joined to, by kind."""
    _replicas: dict[Place, _Replica] = field(default_factory=dict)
    _incarnation: int | None = None
    _lag_time_ms: int | None = None
    _proposals: int = 0
    _answered: frozenset[str] = frozenset()
    """Where the proposals stand that a line of a take-over answers."""

    def events(self, facts: Sequence[Logged]) -> Iterator[Placed]:
        """The events of all facts, in order."""
        self._answered = frozenset(_answered(facts))
        for one in facts:
            written_ms = one.at_ms
            at_us = self.clock.own_ms(written_ms) * 1_000
            for tp, event in self._of(one):
                reported = HistoryEvent(tp, event, {SOURCE: one.place}, None if tp is None else self._name(one))
                yield Placed(at_us, self._incarnation_at(written_ms), reported)

    def _name(self, one: Logged) -> str | None:
        return getattr(one.fact, "topic", None)

    def _incarnation_at(self, written_ms: int) -> int:
        if self._incarnation is not None:
            return self._incarnation
        # The log begins within a process whose registration stands in the metadata log.
        own = [one for one in self.skeleton.registrations if one.node == self.node_id]
        before = [one.broker_epoch for one in own if one.at_ms <= self.clock.true_ms(written_ms)]
        return before[-1] if before else own[0].broker_epoch if own else 0

    def _of(self, one: Logged) -> Iterator[tuple[TopicPartition | None, StateEvent]]:
        match one.fact:
            case BrokerRegistered(_, broker_epoch):
                self._incarnation = broker_epoch
                if self._lag_time_ms is not None:
                    yield None, ConfigChange(lag_time_max_ms=self._lag_time_ms)
            case Setting(name, value):
                self._lag_time_ms = value if name == LAG_TIME else self._lag_time_ms
            case ShrinkProposed():
                yield from self._proposed(one, one.fact)
            case IsrUpdated():
                yield from self._updated(one, one.fact)
            case LeaderStarted():
                yield from self._leads(one, one.fact)
            case FollowerStarted(topic, partition, _, leader_epoch, leo, partition_epoch):
                replica = self._replica(topic, partition)
                replica.leader_epoch, replica.leo, replica.partition_epoch = leader_epoch, leo, partition_epoch
            case LogLoaded(topic, partition, leo):
                self._replicas[topic, partition] = _Replica(leo=leo)
            case CutAsked(topic, partition, _, reason):
                self._replica(topic, partition).reason = reason
            case CutBelowHw(topic, partition):
                self._replica(topic, partition).below = one.fact
            case CutWithoutEffect(topic, partition):
                self._forget_cut(self._replica(topic, partition))
            case CutDone():
                yield from self._cut(one, one.fact)
            case _:
                return

    def _proposed(self, one: Logged, fact: ShrinkProposed) -> Iterator[tuple[TopicPartition | None, StateEvent]]:
        replica = self._replica(fact.topic, fact.partition)
        self._proposals += 1
        replica.asked = (self._proposals, one.at_ms, fact)
        tp = self._tp_at(one, fact.topic, fact.partition)
        if tp is None or replica.partition_epoch is None:
            # How many changes of the ISR there were before the log begins is not known; the take-over will say it.
            return
        yield tp, self._alteration(replica, "proposed", fact.new_isr, None)
        if one.place not in self._answered and (removal := self._removal(one, fact)) is not None:
            # It was granted, and the broker learnt that from the metadata log first: no line says so.
            yield tp, _echo(removal, fact)

    def _updated(self, one: Logged, fact: IsrUpdated) -> Iterator[tuple[TopicPartition | None, StateEvent]]:
        replica = self._replica(fact.topic, fact.partition)
        asked, replica.asked = replica.asked, None
        decision = self._decision(one, fact.topic, fact.partition, fact.partition_epoch)
        if decision is None or decision.before is None:
            self.left_out["ISR updated"] += 1
            replica.partition_epoch = fact.partition_epoch
            return
        tp, shrink = decision.after.tp, None
        replica.leader_epoch = int(decision.before.leader_epoch)
        if asked is not None and {*asked[2].new_isr} == {*fact.isr}:
            shrink = asked[2]
            replica.partition_epoch = fact.partition_epoch - 1
            latency_us = (one.at_ms - asked[1]) * 1_000
            yield tp, self._alteration(replica, "result", fact.isr, latency_us, asked[0])
        replica.partition_epoch = fact.partition_epoch
        replica.leader_epoch = int(decision.after.leader_epoch)
        yield tp, _echo(decision, shrink)

    def _removal(self, one: Logged, fact: ShrinkProposed) -> Removal | None:
        """The removal that the metadata log has of a proposal, soon after it."""
        true_ms = self.clock.true_ms(one.at_ms)
        own = self.removals.get((fact.topic, fact.partition), ())
        near = (
            each
            for each in own
            if each.leader == self.node_id
            and {*each.new_isr} == {*fact.new_isr}
            and abs(each.at_ms - true_ms) <= PROPOSED_WITHIN_MS
        )
        return min(near, key=lambda each: abs(each.at_ms - true_ms), default=None)

    def _alteration(
        self, replica: _Replica, phase: str, isr: Sequence[int], latency_us: int | None, number: int | None = None
    ) -> AlterPartition:
        epoch = PartitionEpoch(replica.partition_epoch or 0)
        return AlterPartition(
            request_id=self._proposals if number is None else number,
            phase=phase,
            expected_partition_epoch=epoch,
            proposed_isr=tuple(map(NodeId, isr)),
            # A line of a take-over is written after success alone.
            error_code=Number(0),
            latency_us=latency_us,
            leader_epoch=LeaderEpoch(replica.leader_epoch),
            partition_epoch=epoch,
        )

    def _leads(self, one: Logged, fact: LeaderStarted) -> Iterator[tuple[TopicPartition | None, StateEvent]]:
        replica = self._replica(fact.topic, fact.partition)
        replica.leader_epoch, replica.partition_epoch = fact.leader_epoch, fact.partition_epoch
        replica.leo = None
        tp = self._tp(one, fact.topic, fact.partition, fact.partition_epoch)
        if tp is None:
            self.left_out["Leader starts"] += 1
            return
        yield (
            tp,
            EpochStart(
                start_offset=Offset(fact.start_offset),
                hw=Offset(fact.hw),
                new_isr=tuple(map(NodeId, fact.isr)),
                leader_epoch=LeaderEpoch(fact.leader_epoch),
                partition_epoch=PartitionEpoch(fact.partition_epoch),
            ),
        )

    def _cut(self, one: Logged, fact: CutDone) -> Iterator[tuple[TopicPartition | None, StateEvent]]:
        replica = self._replica(fact.topic, fact.partition)
        below = replica.below if replica.below is not None and replica.below.to_leo == fact.to_leo else None
        from_leo = replica.leo if replica.leo is not None and replica.leo >= fact.to_leo else None
        reason = replica.reason
        self._forget_cut(replica)
        tp = self._tp_at(one, fact.topic, fact.partition)
        if tp is None:
            self.left_out["Truncating"] += 1
            return
        yield (
            tp,
            Truncation(
                from_leo=Offset(UNKNOWN_OFFSET if from_leo is None else from_leo),
                to_leo=Offset(fact.to_leo),
                hw_before=None if below is None else Offset(below.hw),
                # A follower warns whenever it cuts below its own HW.
                committed_cut=0 if below is None else below.hw - fact.to_leo,
                reason=reason,
                leader_epoch=LeaderEpoch(replica.leader_epoch),
            ),
        )

    def _forget_cut(self, replica: _Replica) -> None:
        # The log grows from here on, so that where it ended is not known any more.
        replica.leo, replica.reason, replica.below = None, NOT_RECORDED, None

    def _replica(self, topic: str, partition: int) -> _Replica:
        return self._replicas.setdefault((topic, partition), _Replica())

    def _decision(self, one: Logged, topic: str, partition: int, partition_epoch: int) -> Decision | None:
        """The decision of a partition epoch that is nearest in time: a name may have meant several topics."""
        true_ms = self.clock.true_ms(one.at_ms)
        found = self.skeleton.decisions.get((topic, partition, partition_epoch), ())
        near = [each for each in found if abs(each.at_ms - true_ms) <= _FAR_MS or len(found) == 1]
        return min(near, key=lambda each: abs(each.at_ms - true_ms), default=None)

    def _tp(self, one: Logged, topic: str, partition: int, partition_epoch: int) -> TopicPartition | None:
        decision = self._decision(one, topic, partition, partition_epoch)
        return self._tp_at(one, topic, partition) if decision is None else decision.after.tp

    def _tp_at(self, one: Logged, topic: str, partition: int) -> TopicPartition | None:
        true_ms = self.clock.true_ms(one.at_ms)
        lives = self.skeleton.topics.get(topic, ())
        alive = [life for life in lives if life.from_ms - _SLACK_MS <= true_ms <= life.to_ms + _SLACK_MS]
        return TopicPartition(alive[-1].topic_id, partition) if alive else None


def by_place(removals: Iterable[Removal]) -> dict[Place, list[Removal]]:
    """Removals by topic and partition."""
    found: dict[Place, list[Removal]] = {}
    for one in removals:
        found.setdefault((one.topic, one.tp.partition), []).append(one)
    return found


def _answered(facts: Iterable[Logged]) -> Iterator[str]:
    waiting: dict[Place, tuple[str, ShrinkProposed]] = {}
    for _, fact, place in facts:
        if isinstance(fact, ShrinkProposed):
            waiting[fact.topic, fact.partition] = (place, fact)
        elif isinstance(fact, IsrUpdated):
            asked = waiting.pop((fact.topic, fact.partition), None)
            if asked is not None and {*asked[1].new_isr} == {*fact.isr}:
                yield asked[0]


def _echo(change: Decision | Removal, shrink: ShrinkProposed | None) -> IsrChange:
    """The leader's own word of a change: the controller's, and the positions that the leader saw."""
    if isinstance(change, Removal):
        old_isr, new_isr, elr = change.old_isr, change.new_isr, change.elr
        epochs, cause, initiator = (change.leader_epoch, change.partition_epoch), "lag", LEADER
    else:
        assert change.before is not None, "a creation is no change"
        after, why = change.after, change.why
        old_isr, new_isr, elr = change.before.isr, after.isr, after.elr
        epochs = (after.leader_epoch, after.partition_epoch)
        cause, initiator = (NOT_RECORDED, LEADER) if why is None else (why.cause or NOT_RECORDED, why.initiator)
    reported = decided_isr_change(old_isr, new_isr, elr, cause, initiator, *epochs, None)
    if shrink is None:
        return reported
    return reported._replace(
        removed=tuple(_member(one.replica_id, shrink) for one in reported.removed),
        hw=None if shrink.hw is None else Offset(shrink.hw),
        leader_leo=None if shrink.leo is None else Offset(shrink.leo),
    )


def _member(node: NodeId, shrink: ShrinkProposed) -> Member:
    one = next((each for each in shrink.removed if each.replica_id == node), None)
    if one is None:
        return Member(node)
    return Member(
        node,
        leo=None if one.leo is None else Offset(one.leo),
        last_caught_up_ms=None if one.last_caught_up_ms is None else Moment(one.last_caught_up_ms),
    )
