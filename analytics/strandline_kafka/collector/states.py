"""Selects the states of partitions to report: whenever a look shows another state, and at each hour (A24).

What happens between two looks is unknown, so there are snapshots and no changes: two changes look like one or none.
The only exception is a deleted topic, whose last state would otherwise seem to continue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from strandline.core.state_events import ConfigChange, Number, StateEvent, StateSnapshot
from strandline.core.types import NodeId, PartitionEpoch, TopicPartition
from strandline_kafka.collector.cluster import UNKNOWN_TOPIC, ClusterSample, PartitionSample
from strandline_kafka.collector.looks import NOT_GIVEN

Elrs = Mapping[TopicPartition, frozenset[NodeId]]


class ReportedState(NamedTuple):
    """All reported values of one partition."""

    partition: PartitionSample
    elr: frozenset[NodeId]
    min_isr: int | None


class Reported(NamedTuple):
    """One event, and the name of its topic."""

    tp: TopicPartition
    topic: str
    event: StateEvent


def can_have_elr(partition: PartitionSample, min_isr: int | None) -> bool:
    """Whether a partition may have eligible leader replicas: its ISR is below the minimum (KIP-966)."""
    return len(partition.isr) < (len(partition.replicas) if min_isr is None else min_isr)


class States:
    """The states that were reported last."""

    def __init__(self) -> None:
        self._reported: dict[TopicPartition, ReportedState] = {}

    def changed(self, cluster: ClusterSample, elrs: Elrs, min_isr: Mapping[str, int]) -> Iterator[Reported]:
        """The states that differ from the reported ones.

        Args:
            elrs: the ELRs of the partitions that have any.
            min_isr: by topic, as far as it is known.
        """
        for tp in self._reported.keys() - cluster.partitions.keys():
            gone = self._reported[tp].partition
            if cluster.refused.get(gone.topic, UNKNOWN_TOPIC) == UNKNOWN_TOPIC:
                del self._reported[tp]
                yield Reported(tp, gone.topic, ConfigChange(topic_deleted=True, replicas=gone.replicas))
        for tp, partition in cluster.partitions.items():
            state = ReportedState(partition, elrs.get(tp, frozenset()), min_isr.get(partition.topic))
            if _differs(self._reported.get(tp), state):
                self._reported[tp] = state
                yield _snapshot(state)

    def all(self) -> Iterator[Reported]:
        """All states as last reported."""
        return map(_snapshot, self._reported.values())


def _differs(before: ReportedState | None, after: ReportedState) -> bool:
    if before is None or (before.elr, before.min_isr) != (after.elr, after.min_isr):
        return True
    old, new = before.partition, after.partition
    seen = (old.leader, old.leader_epoch, old.replicas, old.isr)
    return seen != (new.leader, new.leader_epoch, new.replicas, new.isr)


def _snapshot(state: ReportedState) -> Reported:
    partition = state.partition
    event = StateSnapshot(
        new_leader=partition.leader,
        new_isr=tuple(sorted(partition.isr)),
        elr=tuple(sorted(state.elr)),
        min_isr=Number(NOT_GIVEN if state.min_isr is None else state.min_isr),
        replicas=partition.replicas,
        leader_epoch=partition.leader_epoch,
        partition_epoch=PartitionEpoch(NOT_GIVEN),
    )
    return Reported(partition.tp, partition.topic, event)


# ---- pace
# Sets the period between looks at a cluster, so that looking stays cheap for its brokers (A25).
#
# The period doubles while an answer takes longer than half of it, and halves again, down to the requested one, as soon
# as every answer would fit into half of the shorter period.

LEAST_MS = 500
MOST_MS = 60_000
PARTITIONS_AT_LEAST = 1_000
"""Up to this many partitions the period is `LEAST_MS`; beyond that it grows in proportion, so that the partitions per
second, and with them the work of a broker, do not grow."""


def usual_period_ms(partitions: int) -> int:
    """The period if none is requested."""
    return min(MOST_MS, max(LEAST_MS, LEAST_MS * partitions // PARTITIONS_AT_LEAST))


class Pace:
    """The period from one look to the next."""

    def __init__(self, wanted_ms: int) -> None:
        self._wanted_ms = wanted_ms
        self.period_ms = wanted_ms

    def after(self, longest_ms: float) -> None:
        """Set the period after a look, by the duration of its slowest answer."""
        if longest_ms > self.period_ms / 2:
            self.period_ms = max(self.period_ms, min(2 * self.period_ms, MOST_MS))
        elif self.period_ms > self._wanted_ms and longest_ms <= self.period_ms / 4:
            self.period_ms = max(self._wanted_ms, self.period_ms // 2)
