"""Decides which elections wait because a new reign has not heard from every node yet (C37).

Invariant: while a live replica of a partition has not spoken in this reign, nobody is elected for that partition. Its
position may show that the store forgot a transaction, and the forgotten one may have taken the very candidate out of
the ISR. A node is waited for until its session ends; one that a step fences is not waited for in that step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId


class Doubt:
    """The nodes that a reign has not heard yet. Nobody is in doubt before it begins."""

    def __init__(self) -> None:
        self._unheard: set[NodeId] = set()

    def begin(self, unfenced: Iterable[NodeId]) -> None:
        """A reign begins: none of the nodes with a session has spoken in it."""
        self._unheard = set(unfenced)

    def heard(self, node_id: NodeId) -> bool:
        """A node spoke, and the store knows its position, or it is fenced. Returns whether it was waited for."""
        was_waited_for = node_id in self._unheard
        self._unheard.discard(node_id)
        return was_waited_for

    def waits_for(self, partition: PartitionImage, is_unfenced: Callable[[NodeId], bool]) -> tuple[NodeId, ...]:
        """The live replicas that an election of this partition has to wait for."""
        if not self._unheard:
            return ()
        return tuple(n for n in partition.replicas if n in self._unheard and is_unfenced(n))
