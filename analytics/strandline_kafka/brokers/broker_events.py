"""Turns facts of a broker's logs into state events with the names and meanings of `export/schema.py` (A.4, A.5b).

The emitter is the broker; its incarnation is its broker epoch, and its times are its own clock's, since 1970. Lines
add what the metadata log lacks: positions at a removal and at the start of an epoch, when a member was caught up,
cuts of logs. No line has request numbers: a proposal is numbered by its place in the log.

Invariant: a fact without a topic or a decision is counted and left out. A value that is not in a line is null, and
no value is carried beyond its line.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.core import state_events
from strandline.core.types import LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicPartition
from strandline_kafka.brokers.broker_clocks import BrokerClock
from strandline_kafka.brokers.broker_logs import Logged
from strandline_kafka.brokers.joining import SLACK_MS, Joined
from strandline_kafka.brokers.line_facts import (
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
from strandline_kafka.brokers.text_files import LeftOut
from strandline_kafka.metadata.events import LEADER, NOT_RECORDED, UNKNOWN_OFFSET, HistoryEvent
from strandline_kafka.metadata.skeleton import Decision, Epochs, Removal, Skeleton

LAG_TIME = "replica.lag.time.max.ms"
SOURCE = "source"
"""The field of ``ext`` with the file and the line of the source."""

ReplicaFact = LeaderStarted | FollowerStarted | LogLoaded | CutAsked | CutBelowHw | CutWithoutEffect


class Placed(NamedTuple):
    """One event of a broker, with the time by its own clock, and its process."""

    at_us: int
    incarnation: int
    reported: HistoryEvent


@dataclass(slots=True)
class _Replica:
    """The state of one partition at this broker, by the lines so far."""

    leader_epoch: int = 0
    leo: int | None = None
    reason: str = NOT_RECORDED
    below: CutBelowHw | None = None

    def forget_cut(self) -> None:
        """Forget where the log ended, because it grows from here on."""
        self.leo, self.reason, self.below = None, NOT_RECORDED, None


@dataclass(slots=True)
class BrokerStory:
    """Turns the facts of one broker into events."""

    node_id: int
    clock: BrokerClock
    skeleton: Skeleton
    facts: Sequence[Logged]
    joined: Joined
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    """Facts that could not be joined to anything, by form."""
    _replicas: dict[TopicPartition, _Replica] = field(default_factory=dict)
    _incarnation: int | None = None
    _lag_time_ms: int | None = None
    _numbers: dict[int, int] = field(default_factory=dict)
    """Numbers of the proposals, by the indices of their lines."""
    _asked: dict[int, int] = field(default_factory=dict)
    """The proposal of each take-over, both by index."""

    def events(self) -> Iterator[Placed]:
        """The events of all facts, in order."""
        self._asked = {answer: asked for asked, answer in self.joined.answers.items()}
        for place, one in enumerate(self.facts):
            at_us = self.clock.own_ms(one.at_ms) * 1_000
            for tp, event in self._of(place, one):
                reported = HistoryEvent(tp, event, {SOURCE: one.place}, None if tp is None else self._name(one))
                yield Placed(at_us, self._incarnation_at(one.at_ms), reported)

    def _name(self, one: Logged) -> str | None:
        return getattr(one.fact, "topic", None)

    def _leave_out(self, form: str, one: Logged) -> None:
        self.left_out[form] = self.left_out.get(form, LeftOut(0, one.place)).with_more(1)

    def _incarnation_at(self, written_ms: int) -> int:
        if self._incarnation is not None:
            return self._incarnation
        # The log begins within a process whose registration is in the metadata log, or in its snapshot; without
        # either the lines are those before the first registration.
        own = [one for one in self.skeleton.registrations if one.node == self.node_id]
        before = [one.broker_epoch for one in own if one.at_ms <= self.clock.true_ms(written_ms)]
        first = self.skeleton.registered_before.get(self.node_id, own[0].broker_epoch if own else 0)
        return before[-1] if before else first

    def _of(self, place: int, one: Logged) -> Iterator[tuple[TopicPartition | None, state_events.StateEvent]]:
        match one.fact:
            case BrokerRegistered(_, broker_epoch):
                self._incarnation = broker_epoch
                if self._lag_time_ms is not None:
                    yield None, state_events.ConfigChange(lag_time_max_ms=self._lag_time_ms)
            case Setting(name, value):
                self._lag_time_ms = value if name == LAG_TIME else self._lag_time_ms
            case ShrinkProposed():
                yield from self._proposed(place, one, one.fact)
            case IsrUpdated():
                yield from self._updated(place, one, one.fact)
            case LeaderStarted() | FollowerStarted() | LogLoaded() | CutAsked() | CutBelowHw() | CutWithoutEffect():
                yield from self._of_replica(place, one, one.fact)
            case CutDone():
                yield from self._cut(one, one.fact)
            case _:
                return

    def _of_replica(
        self, place: int, one: Logged, fact: ReplicaFact
    ) -> Iterator[tuple[TopicPartition | None, state_events.StateEvent]]:
        """Take a line about a replica: it becomes an event, or part of the event of the next cut."""
        tp = self._tp(place, one, fact)
        if tp is None:
            if isinstance(fact, LeaderStarted):
                self._leave_out("Leader starts", one)
            return
        replica = self._replicas.setdefault(tp, _Replica())
        match fact:
            case LeaderStarted():
                replica.leader_epoch, replica.leo = fact.leader_epoch, None
                yield tp, _start(fact)
            case FollowerStarted():
                replica.leader_epoch, replica.leo = fact.leader_epoch, fact.leo
            case LogLoaded():
                self._replicas[tp] = _Replica(leo=fact.leo)
            case CutAsked():
                replica.reason = fact.reason
            case CutBelowHw():
                replica.below = fact
            case CutWithoutEffect():
                replica.forget_cut()

    def _proposed(
        self, place: int, one: Logged, fact: ShrinkProposed
    ) -> Iterator[tuple[TopicPartition | None, state_events.StateEvent]]:
        number = self._numbers[place] = len(self._numbers) + 1
        change: Decision | Removal | None = self.joined.granted.get(place)
        if place in self.joined.answers:
            change = self.joined.decisions[self.joined.answers[place]]
        tp = self._tp(place, one, fact) if change is None else _tp_of(change)
        epochs = None if tp is None else self._epochs(tp, self.clock.true_ms(one.at_ms), change)
        if tp is None or (epochs is None and change is None):
            self._leave_out("Shrinking ISR", one)
            return
        if epochs is not None:
            yield tp, _alteration("proposed", number, fact.new_isr, epochs, None)
        if isinstance(change, Removal):
            # It was granted, but the broker learnt that from the metadata log first, so no line shows it.
            yield tp, _echo(change, fact)

    def _updated(
        self, place: int, one: Logged, fact: IsrUpdated
    ) -> Iterator[tuple[TopicPartition | None, state_events.StateEvent]]:
        decision = self.joined.decisions.get(place)
        if decision is None or decision.before is None:
            self._leave_out("ISR updated", one)
            return
        tp, before, shrink = decision.after.tp, decision.before, None
        if (asked := self._asked.get(place)) is not None:
            proposal = self.facts[asked]
            shrink = proposal.fact if isinstance(proposal.fact, ShrinkProposed) else None
            epochs = Epochs(decision.at_ms, before.partition_epoch, before.leader_epoch)
            latency_us = (one.at_ms - proposal.at_ms) * 1_000
            yield tp, _alteration("result", self._numbers[asked], fact.isr, epochs, latency_us)
        self._replicas.setdefault(tp, _Replica()).leader_epoch = int(decision.after.leader_epoch)
        yield tp, _echo(decision, shrink)

    def _epochs(self, tp: TopicPartition, true_ms: int, change: Decision | Removal | None) -> Epochs | None:
        """The epochs at which a proposal was made: those before its result, else those of its time."""
        known = self.skeleton.epochs.get(tp, ())
        if change is None:
            behind = bisect_right(known, true_ms, key=lambda one: one.at_ms)
        else:
            epoch = change.partition_epoch if isinstance(change, Removal) else change.after.partition_epoch
            behind = bisect_left(known, epoch, key=lambda one: one.partition_epoch)
        return known[behind - 1] if behind else None

    def _cut(self, one: Logged, fact: CutDone) -> Iterator[tuple[TopicPartition | None, state_events.StateEvent]]:
        tp = self._tp_at(one, fact.topic, fact.partition)
        if tp is None:
            self._leave_out("Truncating", one)
            return
        replica = self._replicas.setdefault(tp, _Replica())
        below = replica.below if replica.below is not None and replica.below.to_leo == fact.to_leo else None
        from_leo = replica.leo if replica.leo is not None and replica.leo >= fact.to_leo else None
        yield (
            tp,
            state_events.Truncation(
                from_leo=Offset(UNKNOWN_OFFSET if from_leo is None else from_leo),
                to_leo=Offset(fact.to_leo),
                hw_before=None if below is None else Offset(below.hw),
                # A follower warns whenever it cuts below its own HW.
                committed_cut=0 if below is None else below.hw - fact.to_leo,
                reason=replica.reason,
                leader_epoch=LeaderEpoch(replica.leader_epoch),
            ),
        )
        replica.forget_cut()

    def _tp(self, place: int, one: Logged, fact: ReplicaFact | ShrinkProposed) -> TopicPartition | None:
        if (decision := self.joined.decisions.get(place)) is not None:
            return decision.after.tp
        topic_id = fact.topic_id if isinstance(fact, LeaderStarted) else self.joined.topic_ids.get(place)
        if topic_id is not None:
            is_known = any(life.topic_id == topic_id for life in self.skeleton.lives(fact.topic))
            return TopicPartition(topic_id, fact.partition) if is_known else None
        return self._tp_at(one, fact.topic, fact.partition)

    def _tp_at(self, one: Logged, topic: str, partition: int) -> TopicPartition | None:
        """The topic that a name meant when a line was written, allowing for a clock error in both directions."""
        true_ms = self.clock.true_ms(one.at_ms)
        apart = {
            life.topic_id: max(0, life.from_ms - true_ms, true_ms - life.to_ms) for life in self.skeleton.lives(topic)
        }
        topic_id = min(apart, key=apart.__getitem__, default=None)
        return None if topic_id is None or apart[topic_id] > SLACK_MS else TopicPartition(topic_id, partition)


def _tp_of(change: Decision | Removal) -> TopicPartition:
    return change.tp if isinstance(change, Removal) else change.after.tp


def _start(fact: LeaderStarted) -> state_events.EpochStart:
    return state_events.EpochStart(
        start_offset=Offset(fact.start_offset),
        hw=Offset(fact.hw),
        new_isr=tuple(map(NodeId, fact.isr)),
        leader_epoch=LeaderEpoch(fact.leader_epoch),
        partition_epoch=PartitionEpoch(fact.partition_epoch),
    )


def _alteration(
    phase: str, number: int, isr: Sequence[int], epochs: Epochs, latency_us: int | None
) -> state_events.AlterPartition:
    return state_events.AlterPartition(
        request_id=number,
        phase=phase,
        expected_partition_epoch=epochs.partition_epoch,
        proposed_isr=tuple(map(NodeId, isr)),
        # A line of a take-over is written only after success.
        error_code=state_events.Number(0),
        latency_us=latency_us,
        leader_epoch=epochs.leader_epoch,
        partition_epoch=epochs.partition_epoch,
    )


def _echo(change: Decision | Removal, shrink: ShrinkProposed | None) -> state_events.IsrChange:
    """The leader's own report of a change: the controller's decision, with the positions that the leader saw."""
    if isinstance(change, Removal):
        old_isr, new_isr, elr = change.old_isr, change.new_isr, change.elr
        epochs, cause, initiator = (change.leader_epoch, change.partition_epoch), "lag", LEADER
    else:
        assert change.before is not None, "a creation is not a change"
        after, why = change.after, change.why
        old_isr, new_isr, elr = change.before.isr, after.isr, after.elr
        epochs = (after.leader_epoch, after.partition_epoch)
        cause, initiator = (NOT_RECORDED, LEADER) if why is None else (why.cause or NOT_RECORDED, why.initiator)
    reported = state_events.decided_isr_change(old_isr, new_isr, elr, cause, initiator, *epochs, None)
    if shrink is None:
        return reported
    return reported._replace(
        removed=tuple(_member(one.replica_id, shrink) for one in reported.removed),
        hw=None if shrink.hw is None else Offset(shrink.hw),
        leader_leo=None if shrink.leo is None else Offset(shrink.leo),
    )


def _member(node: NodeId, shrink: ShrinkProposed) -> state_events.Member:
    one = next((each for each in shrink.removed if each.replica_id == node), None)
    if one is None:
        return state_events.Member(node)
    return state_events.Member(
        node,
        leo=None if one.leo is None else Offset(one.leo),
        last_caught_up_ms=None if one.last_caught_up_ms is None else state_events.Moment(one.last_caught_up_ms),
    )
