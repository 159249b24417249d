"""Decides which reports of logs count in an election, and how long a partition without a leader waits for more (M65).

Invariant: a report counts for one partition in one leader epoch, from the node's current process alone. While a
partition has no leader in that epoch nobody appends to its logs or cuts them, so what was reported stays true.
Volatile: a new reign forgets reports, and every node reports again to a controller epoch that it did not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from strandline.core.messages import PartitionImage, ReplicaLogInfo
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, TopicPartition


@dataclass(slots=True)
class _Wait:
    leader_epoch: LeaderEpoch
    since_ms: int
    is_over: bool = False
    reports: dict[NodeId, tuple[NodeEpoch, ReplicaLogInfo]] = field(default_factory=dict)


class ReplicaReports:
    """The partitions that have no leader, since when, and what was reported of their logs."""

    def __init__(self) -> None:
        self._waits: dict[TopicPartition, _Wait] = {}

    def follow(self, partitions: Iterable[PartitionImage], now_ms: int) -> None:
        """Take over what was just decided: partitions that lost their leader begin to wait, others stop."""
        for partition in partitions:
            wait = self._waits.get(partition.tp)
            if partition.leader is not None:
                self._waits.pop(partition.tp, None)
            elif wait is None or wait.leader_epoch != partition.leader_epoch:
                self._waits[partition.tp] = _Wait(partition.leader_epoch, now_ms)

    def forget_topic(self, topic_id: str) -> None:
        """The topic was deleted."""
        for tp in [tp for tp in self._waits if tp.topic_id == topic_id]:
            del self._waits[tp]

    def keep(self, info: ReplicaLogInfo, node_id: NodeId, node_epoch: NodeEpoch) -> bool:
        """Remember a report; returns whether it counts: the partition waits in the very epoch that it names."""
        wait = self._waits.get(info.tp)
        if wait is None or wait.leader_epoch != info.leader_epoch:
            return False
        wait.reports[node_id] = (node_epoch, info)
        return True

    def of(self, partition: PartitionImage) -> dict[NodeId, tuple[NodeEpoch, ReplicaLogInfo]]:
        """What was reported in the partition's present leader epoch, with the process that reported it."""
        wait = self._waits.get(partition.tp)
        if wait is None or wait.leader_epoch != partition.leader_epoch:
            return {}
        return wait.reports

    def waiting(self) -> dict[TopicPartition, int]:
        """Every partition without a leader whose wait is not over, with the time since which it waits."""
        return {tp: wait.since_ms for tp, wait in self._waits.items() if not wait.is_over}

    def end_wait(self, tp: TopicPartition) -> None:
        """No further report is waited for."""
        self._waits[tp].is_over = True

    def is_over(self, partition: PartitionImage) -> bool:
        """Whether this partition's wait for reports came to its end."""
        wait = self._waits.get(partition.tp)
        return wait is not None and wait.leader_epoch == partition.leader_epoch and wait.is_over
