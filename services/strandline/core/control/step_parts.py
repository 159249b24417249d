"""Limits how many partitions one step changes because nodes came or went; later steps continue with the rest (C67b).

A node that leads thousands of partitions would otherwise block every heartbeat and every other request for as long as
all its elections take. Its fencing or shutdown is durable with the first part.

Invariant: what is left over can be found in the state alone: a partition whose ISR has a member that is fenced or
shuts down, or that has no leader. So a reign that ends in between loses nothing: the next one finds it, or elects when
it hears the replicas (C37).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from strandline.core.control.state import ClusterState
from strandline.core.log.effects import Emit
from strandline.core.messages import PartitionImage, ReplicaLogInfo
from strandline.core.state_events import Number, StateSnapshot
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, TopicPartition

_PARTS_OF_A_TOPIC = 4
"""A change is sent with its whole topic, so a large topic gets larger parts in order to be sent only a few times."""

_COST_OF_AN_ELECTION = 3
"""In partitions that only change their ISR: after an election nodes change roles, which is most of the cost."""


class LeftOver:
    """The partitions that later steps have to look at, those that need an election first."""

    def __init__(self) -> None:
        # A dict as an ordered set, from which the first element is cheap to take.
        self._elections: OrderedDict[TopicPartition, None] = OrderedDict()
        self._others: OrderedDict[TopicPartition, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._elections or self._others)

    def add(self, partition: PartitionImage, *, is_elected: bool) -> None:
        """Leave this partition over."""
        (self._elections if is_elected else self._others)[partition.tp] = None

    def update(self, other: LeftOver) -> None:
        """Leave these partitions over."""
        self._elections.update(other._elections)
        self._others.update(other._others)

    def pop(self) -> TopicPartition:
        """Remove and return the next one."""
        tp, _ = (self._elections or self._others).popitem(last=False)
        return tp


def left_over(state: ClusterState) -> LeftOver:
    """The partitions that a step of an earlier reign was about to change."""
    # The nodes that may be in no ISR.
    gone = {n for n, record in state.nodes.items() if record.image.fenced or record.image.shutting_down}
    found = LeftOver()
    for partition in state.partitions():
        if not gone.isdisjoint(partition.isr):
            found.add(partition, is_elected=partition.leader in gone)
    return found


class StepRoom:
    """How many partitions one step may still change, and those that it leaves over."""

    def __init__(self, at_most: int | None, changed: Collection[TopicPartition]) -> None:
        """``at_most``: None for a step that changes as many as there are; ``changed`` grows with the step."""
        self._at_most = at_most
        self._changed = changed
        self._surcharge = 0
        self.left_over = LeftOver()

    def take(
        self,
        partitions: Sequence[PartitionImage],
        partitions_of: Callable[[PartitionImage], int],
        is_elected: Callable[[PartitionImage], bool],
    ) -> Iterator[PartitionImage]:
        """The partitions that this step changes; if there are too many, those that need an election come first.

        ``partitions_of``: how many the topic of a partition has.
        """
        at_most = self._at_most
        if at_most is None or self._used + sum(map(_cost, map(is_elected, partitions))) <= at_most:
            yield from partitions
            return
        for partition in sorted(partitions, key=lambda each: not is_elected(each)):
            elected = is_elected(partition)
            if self.is_left(partition, partitions_of):
                yield from self._spending(partition, elected)
            else:
                self.left_over.add(partition, is_elected=elected)

    def go_on(
        self,
        left: LeftOver,
        partition_at: Callable[[TopicPartition], PartitionImage | None],
        partitions_of: Callable[[PartitionImage], int],
        is_elected: Callable[[PartitionImage], bool],
    ) -> Iterator[PartitionImage]:
        """Remove and return those of ``left`` that this step changes."""
        while left:
            partition = partition_at(left.pop())
            if partition is None:
                continue
            elected = is_elected(partition)
            if not self.is_left(partition, partitions_of):
                self.left_over.add(partition, is_elected=elected)
                return
            yield from self._spending(partition, elected)

    def is_left(self, partition: PartitionImage, partitions_of: Callable[[PartitionImage], int]) -> bool:
        """Whether this step may change the partition as well."""
        if self._at_most is None or self._used < self._at_most:
            return True
        return self._used < partitions_of(partition) // _PARTS_OF_A_TOPIC

    def _spending(self, partition: PartitionImage, is_elected: bool) -> Iterator[PartitionImage]:
        before = len(self._changed)
        yield partition
        if len(self._changed) > before:
            self._surcharge += _cost(is_elected) - 1

    @property
    def _used(self) -> int:
        return len(self._changed) + self._surcharge


def _cost(is_elected: bool) -> int:
    return _COST_OF_AN_ELECTION if is_elected else 1


# ---- replica_reports
# Decides which reports of logs count in an election, and how long a partition without a leader waits for more (M65).
#
# Invariant: a report counts for one partition in one leader epoch, from the node's current process alone. While a
# partition has no leader in that epoch no node appends to its logs or cuts them, so what was reported stays true.
# Volatile: a new reign forgets reports, and every node reports again to a controller epoch that it did not know.


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
        """Store a report; returns whether it counts: whether the partition waits in the epoch that it names."""
        wait = self._waits.get(info.tp)
        if wait is None or wait.leader_epoch != info.leader_epoch:
            return False
        wait.reports[node_id] = (node_epoch, info)
        return True

    def of(self, partition: PartitionImage) -> dict[NodeId, tuple[NodeEpoch, ReplicaLogInfo]]:
        """What was reported in the partition's current leader epoch, with the process that reported it."""
        wait = self._waits.get(partition.tp)
        if wait is None or wait.leader_epoch != partition.leader_epoch:
            return {}
        return wait.reports

    def waiting(self) -> dict[TopicPartition, int]:
        """Every partition without a leader whose wait is not over, with the time since which it waits."""
        return {tp: wait.since_ms for tp, wait in self._waits.items() if not wait.is_over}

    def end_wait(self, tp: TopicPartition) -> None:
        """Stop waiting for further reports."""
        self._waits[tp].is_over = True

    def is_over(self, partition: PartitionImage) -> bool:
        """Whether this partition's wait for reports has ended."""
        wait = self._waits.get(partition.tp)
        return wait is not None and wait.leader_epoch == partition.leader_epoch and wait.is_over


# ---- snapshots
# The full state of one partition as the controller keeps it, as an event.


def partition_snapshot(image: PartitionImage, *, meta_offset: int) -> Emit:
    """What the controller keeps of one partition."""
    return Emit(image.tp, committed_snapshot(image)._replace(meta_offset=meta_offset))


def committed_snapshot(image: PartitionImage) -> StateSnapshot:
    """What was committed of a partition."""
    return StateSnapshot(
        new_leader=image.leader,
        new_isr=image.isr,
        elr=image.elr,
        min_isr=Number(image.min_isr),
        replicas=image.replicas,
        leader_epoch=image.leader_epoch,
        partition_epoch=image.partition_epoch,
        original_replicas=image.original,
        adding_replicas=image.adding,
    )
