"""Decides what waits because a new reign has not heard from the nodes yet (C37).

Invariants: while a live replica of a partition has not spoken in this reign, nobody is elected for that partition. Its
position may show that the store forgot a transaction, and the forgotten one may have taken the very candidate out of
the ISR. A node is waited for until its session ends; one that a step fences is not waited for in that step.
No administrator's change is made and no linearizable read is answered before a node has shown its position, or a whole
session has passed: both would be decided from a store that may be older than the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strandline.core.control import messages
from strandline.core.errors import ControllerHint, ErrorCode, Refusal
from strandline.core.messages import Heartbeat, PartitionImage, RegisterNode
from strandline.core.types import NodeEpoch, NodeId

CHANGES = (
    messages.CreateTopics,
    messages.DeleteTopics,
    messages.AlterTopicConfigs,
    messages.CreatePartitions,
    messages.ElectLeaders,
    messages.ShutdownNode,
    messages.UnregisterNode,
    messages.AlterPartitionReassignments,
    messages.DrainNode,
)
"""What an administrator asks for."""


class Doubt:
    """The nodes that a reign has not heard yet. Nobody is in doubt before it begins."""

    def __init__(self) -> None:
        self._unheard: set[NodeId] = set()
        self._witnesses: frozenset[NodeId] = frozenset()
        self._first_node_epoch = NodeEpoch(0)
        self._is_doubted = False

    def begin(self, unfenced: Iterable[NodeId], *, first_node_epoch: NodeEpoch, is_first: bool = False) -> None:
        """A reign begins: none of the nodes with a session has spoken in it.

        ``first_node_epoch`` is the lowest that this reign can give; ``is_first``: the store is new.
        """
        self._unheard = set(unfenced)
        self._witnesses = frozenset(self._unheard)
        self._first_node_epoch = first_node_epoch
        self._is_doubted = not is_first

    def heard(self, node_id: NodeId) -> bool:
        """A node spoke, and the store knows its position, or it is fenced. Returns whether it was waited for."""
        was_waited_for = node_id in self._unheard
        self._unheard.discard(node_id)
        return was_waited_for

    def witnessed(self, request: RegisterNode | Heartbeat) -> None:
        """The store holds what this request shows that its node was sent before the reign.

        An emptied directory shows nothing. A node that was fenced may have missed what the others were sent; it counts
        only where the store knows no other.
        """
        if isinstance(request, RegisterNode):
            shows = request.position is not None
        else:
            shows = request.node_epoch < self._first_node_epoch
        if shows and (not self._witnesses or request.node_id in self._witnesses):
            self._is_doubted = False

    def end(self) -> None:
        """A whole session has passed: every live node could have spoken."""
        self._is_doubted = False

    def refusal(self, request: messages.ControllerRequest) -> Refusal | None:
        """Why this request has to wait; None if it has not."""
        is_read = isinstance(request, messages.GetMetadata) and request.linearizable
        if not self._is_doubted or not (is_read or isinstance(request, CHANGES)):
            return None
        return Refusal(
            ErrorCode.NOT_CONTROLLER,
            "this controller began to decide a moment ago and no node has reported to it yet, so its store may be "
            "older than the cluster; it answers as soon as a node has reported, or after one session",
            remedy="ask again; nothing was done",
            hint=ControllerHint("UNHEARD"),
        )

    def waits_for(self, partition: PartitionImage, is_unfenced: Callable[[NodeId], bool]) -> tuple[NodeId, ...]:
        """The live replicas that an election of this partition has to wait for."""
        if not self._unheard:
            return ()
        return tuple(n for n in partition.replicas if n in self._unheard and is_unfenced(n))
