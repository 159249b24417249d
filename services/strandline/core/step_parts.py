"""Decides how many partitions one step changes because nodes came or went, and what later steps go on with (C67).

A node that leads thousands of partitions would otherwise hold every heartbeat and every other request up for as long
as all of its elections take. Its fencing, or that it shuts down, is durable with the first part.

Invariant: what is left over can be found in the state alone: a partition whose ISR has a member that is fenced or
shuts down, or that has no leader. So a reign that ends in between loses nothing: the next one finds it, or elects when
it hears the replicas (C37).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from strandline.core.controller_state import ClusterState
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId, TopicPartition

_PARTS_OF_A_TOPIC = 4
"""A change of a topic is sent to the nodes whole, so a large topic is worth a larger part: it is sent a few times."""


def gone_nodes(state: ClusterState) -> frozenset[NodeId]:
    """The nodes that may be in no ISR: fenced, or shutting down."""
    return frozenset(n for n, record in state.nodes.items() if record.image.fenced or record.image.shutting_down)


def left_over(state: ClusterState) -> list[TopicPartition]:
    """The partitions that a step of an earlier reign was about to change."""
    gone = gone_nodes(state)
    return [partition.tp for partition in state.partitions() if not gone.isdisjoint(partition.isr)]


class StepRoom:
    """How many partitions one step may still change, and those that it leaves over."""

    def __init__(self, at_most: int | None, changed: Collection[TopicPartition]) -> None:
        """``at_most``: None for a step that changes as many as there are; ``changed`` grows with the step."""
        self._at_most = at_most
        self._changed = changed
        self.left_over: dict[TopicPartition, None] = {}

    def take(
        self,
        partitions: Sequence[PartitionImage],
        partitions_of: Callable[[PartitionImage], int],
        *,
        is_first: Callable[[PartitionImage], bool] = lambda _: False,
    ) -> Iterator[PartitionImage]:
        """The partitions that this step changes; if there are too many, those that are first come first.

        ``partitions_of``: how many the topic of a partition has.
        """
        ordered: Iterable[PartitionImage] = partitions
        at_most = len(partitions) + len(self._changed)
        if self._at_most is not None and at_most > self._at_most:
            one_of_each_topic = {each.tp.topic_id: each for each in partitions}.values()
            largest = max(map(partitions_of, one_of_each_topic), default=0)
            at_most = max(self._at_most, largest // _PARTS_OF_A_TOPIC)
            ordered = sorted(partitions, key=lambda each: not is_first(each))
        for partition in ordered:
            if len(self._changed) < at_most:
                yield partition
            else:
                self.left_over[partition.tp] = None
