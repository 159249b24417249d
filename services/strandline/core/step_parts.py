"""Decides how many partitions one step changes because nodes came or went, and what later steps go on with (C67).

A node that leads thousands of partitions would otherwise hold every heartbeat and every other request up for as long
as all of its elections take. Its fencing, or that it shuts down, is durable with the first part.

Invariant: what is left over can be found in the state alone: a partition whose ISR has a member that is fenced or
shuts down, or that has no leader. So a reign that ends in between loses nothing: the next one finds it, or elects when
it hears the replicas (C37).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence

from strandline.core.controller_state import ClusterState
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId, TopicPartition

_PARTS_OF_A_TOPIC = 4
"""A change of a topic is sent to the nodes whole, so a large topic is worth a larger part: it is sent a few times."""

_COST_OF_AN_ELECTION = 3
"""In partitions that only change their ISR: nodes begin another role then, which costs them most of a step's time."""


def gone_nodes(state: ClusterState) -> frozenset[NodeId]:
    """The nodes that may be in no ISR: fenced, or shutting down."""
    return frozenset(n for n, record in state.nodes.items() if record.image.fenced or record.image.shutting_down)


class LeftOver:
    """The partitions that later steps have to look at, those that need an election first."""

    def __init__(self) -> None:
        # In order, with the first one taken cheaply.
        self._elections: OrderedDict[TopicPartition, None] = OrderedDict()
        self._others: OrderedDict[TopicPartition, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._elections or self._others)

    def add(self, partition: PartitionImage, *, is_elected: bool) -> None:
        """Look at this partition later."""
        (self._elections if is_elected else self._others)[partition.tp] = None

    def update(self, other: LeftOver) -> None:
        """Look at those, too."""
        self._elections.update(other._elections)
        self._others.update(other._others)

    def pop(self) -> TopicPartition:
        """The next one, which is looked at now."""
        tp, _ = (self._elections or self._others).popitem(last=False)
        return tp


def left_over(state: ClusterState) -> LeftOver:
    """The partitions that a step of an earlier reign was about to change."""
    gone = gone_nodes(state)
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
        """Those of ``left`` that this step changes, which are taken out of it."""
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
