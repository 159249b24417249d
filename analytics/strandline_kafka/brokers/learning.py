"""Learns before anything is written: joins brokers' logs to the metadata log, measures clocks, and infers causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from strandline.core.state_events import ClockSample
from strandline.core.types import NodeId, TopicPartition
from strandline_kafka.brokers import line_facts
from strandline_kafka.brokers.broker_clocks import BrokerClock, clock_of
from strandline_kafka.brokers.broker_events import LAG_TIME
from strandline_kafka.brokers.broker_logs import BrokerLog
from strandline_kafka.brokers.joining import Joined, join
from strandline_kafka.inferred.evidence import Evidence, RemovedReplica
from strandline_kafka.inferred.judging import inferred
from strandline_kafka.metadata.events import HistoryEvent
from strandline_kafka.metadata.skeleton import Removal, Skeleton, WantedByLogs

MIN_ISR, SESSION_TIMEOUT, HEARTBEAT = "min.insync.replicas", "broker.session.timeout.ms", "broker.heartbeat.interval.ms"
_TIMED_OUT_WITHIN_MS = 5_000
"""The line of a fence and its record are one step of the same process."""


@dataclass(slots=True)
class Learnt:
    """The knowledge of an import in addition to the metadata log."""

    skeleton: Skeleton
    logs: Sequence[BrokerLog] = ()
    joined: dict[int, Joined] = field(default_factory=dict)
    """The decisions of each broker's lines."""
    clocks: dict[int, BrokerClock] = field(default_factory=dict)
    inferred: dict[int, str] = field(default_factory=dict)
    """``ext.inferred`` by the offset of the record that it concerns."""
    settings: dict[str, int] = field(default_factory=dict)
    """Settings on which all brokers that report them agree."""
    versions: tuple[str, ...] = ()
    timed_out: dict[int, list[int]] = field(default_factory=dict)
    """When the active controller found a broker's session over, ms, by broker."""
    started: frozenset[tuple[TopicPartition, int]] = frozenset()
    """Partition and leader epoch of each epoch start that a line shows."""
    samples: list[tuple[int, HistoryEvent]] = field(default_factory=list)
    """The measurements of clocks, in order, each with its start in us."""

    def has_timed_out(self, broker_id: int, at_ms: int) -> bool:
        """Whether the controller's log shows that a fence was caused by a session time-out."""
        return any(abs(at_ms - each) <= _TIMED_OUT_WITHIN_MS for each in self.timed_out.get(broker_id, ()))


def learn(skeleton: Skeleton, logs: Sequence[BrokerLog], lag_time_ms: int | None) -> Learnt:
    """Join the brokers' logs to the metadata log.

    Args:
        lag_time_ms: replica.lag.time.max.ms, if it was given; else it may be in the brokers' logs.
    """
    found = Learnt(skeleton, logs, {log.node_id: join(log.node_id, log.facts, skeleton) for log in logs})
    found.clocks = {log.node_id: clock_of(log.facts, found.joined[log.node_id]) for log in logs}
    found.started = frozenset(_started(found))
    found.settings = _settings(logs)
    facts = [one.fact for log in logs for one in log.facts]
    found.versions = tuple(sorted({fact.version for fact in facts if isinstance(fact, line_facts.KafkaVersion)}))
    for log in logs:
        for one in log.facts:
            if isinstance(one.fact, line_facts.SessionTimedOut):
                # The line is from the process whose clock the records have, so only the zone is subtracted.
                found.timed_out.setdefault(one.fact.subject, []).append(found.clocks[log.node_id].own_ms(one.at_ms))
    found.samples = sorted(_samples(found.clocks), key=lambda sample: sample[0])
    found.inferred = inferred(_scene(found, lag_time_ms))
    return found


def wanted_of(logs: Iterable[BrokerLog]) -> WantedByLogs:
    """The decisions and epochs that the lines need."""
    facts = [one.fact for log in logs for one in log.facts]
    return WantedByLogs(
        frozenset(
            (fact.topic, fact.partition, fact.partition_epoch)
            for fact in facts
            if isinstance(fact, line_facts.IsrUpdated | line_facts.LeaderStarted | line_facts.FollowerStarted)
        ),
        frozenset((fact.topic, fact.partition) for fact in facts if isinstance(fact, line_facts.ShrinkProposed)),
    )


def _started(found: Learnt) -> Iterator[tuple[TopicPartition, int]]:
    for log in found.logs:
        for place, decision in found.joined[log.node_id].decisions.items():
            fact = log.facts[place].fact
            if isinstance(fact, line_facts.LeaderStarted):
                yield decision.after.tp, fact.leader_epoch


def _settings(logs: Iterable[BrokerLog]) -> dict[str, int]:
    values: dict[str, set[int]] = {}
    for log in logs:
        for _, fact, *_ in log.facts:
            if isinstance(fact, line_facts.Setting):
                values.setdefault(fact.name, set()).add(fact.value)
    return {name: value for name, (value, *others) in values.items() if not others}


def _samples(clocks: dict[int, BrokerClock]) -> Iterator[tuple[int, HistoryEvent]]:
    for node_id, clock in sorted(clocks.items()):
        for span in clock.spans:
            yield span.from_ms * 1_000, HistoryEvent(None, ClockSample(NodeId(node_id), span.offset_us, span.err_us))


def _scene(found: Learnt, lag_time_ms: int | None) -> Evidence:
    skeleton, settings = found.skeleton, found.settings
    defaults = Evidence(removals=())
    return Evidence(
        removals=[_seen(found, removal) for removal in skeleton.removals],
        returns=skeleton.returns,
        fences=skeleton.fences,
        shutdowns=skeleton.shutdowns,
        registrations=skeleton.registrations,
        silences=skeleton.silences,
        lag_time_ms=settings.get(LAG_TIME) if lag_time_ms is None else lag_time_ms,
        session_timeout_ms=settings.get(SESSION_TIMEOUT, defaults.session_timeout_ms),
        heartbeat_ms=settings.get(HEARTBEAT, defaults.heartbeat_ms),
    )


def _seen(found: Learnt, removal: Removal) -> RemovedReplica:
    """A removal as seen in the line that proposed it."""
    log = next((log for log in found.logs if log.node_id == removal.leader), None)
    place = None if log is None else found.joined[log.node_id].proposals.get(removal.meta_offset)
    if log is None or place is None:
        return RemovedReplica(removal, None, None)
    asked = log.facts[place]
    assert isinstance(asked.fact, line_facts.ShrinkProposed), "a removal is proposed by such a line"
    moments = (one.last_caught_up_ms for one in asked.fact.removed if one.replica_id == removal.replica)
    own_ms = next(moments, None)
    caught_up_ms = None if own_ms is None else own_ms - found.clocks[log.node_id].shift_ms(own_ms)
    return RemovedReplica(removal, caught_up_ms, f"node {removal.leader} {asked.place}")
