"""The controller of a scenario: its production core, plus manual decisions.

Invariant: what is done by hand (a leader placed, an ISR set) goes through the core's own transactions, so it bumps
the epochs, and is published and reported like any decision of the controller.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.core.control.alter_partition import Attempts, alter_partitions
from strandline.core.control.controller import ControllerCore
from strandline.core.control.election import Elected, ElectionType
from strandline.core.control.events import ControllerEffect
from strandline.core.control.leadership import fence, install
from strandline.core.messages import AlterPartitionAnswer, AlterPartitionRequest, AsOf, MetadataImage, PartitionImage
from strandline.core.types import NodeId, TopicPartition
from strandline_sim.scenario.nodes import TP


class StagedController(ControllerCore):
    """The production core; every method that is not inherited is a manual decision."""

    def place_leader(self, tp: TopicPartition, node_id: NodeId, *, unclean: bool) -> list[ControllerEffect]:
        """Elect exactly this node: from ISR or ELR, or unclean."""
        draft = self._draft()
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        install(draft, self._partition(tp), Elected(node_id, kind), "scenario")
        return self._commit(draft)

    def drop_leader(self, tp: TopicPartition) -> list[ControllerEffect]:
        """Leave the partition without a leader, in a new epoch."""
        draft = self._draft()
        draft.put_partition(replace(self._partition(tp), leader=None), cause="scenario", new_reign=True)
        return self._commit(draft)

    def put_isr(self, tp: TopicPartition, isr: tuple[NodeId, ...], elr: tuple[NodeId, ...]) -> list[ControllerEffect]:
        """Set the committed ISR and ELR, as earlier AlterPartitions may have left them."""
        draft = self._draft()
        draft.put_partition(replace(self._partition(tp), isr=isr, elr=elr), cause="scenario")
        return self._commit(draft)

    def alter_by_hand(self, request: AlterPartitionRequest) -> tuple[list[ControllerEffect], AlterPartitionAnswer]:
        """Decide a proposal that no node sent, with every check except that of the attempt's number."""
        draft = self._draft()
        answer = alter_partitions(draft, Attempts(), request)
        return self._commit(draft, settles=False), answer

    def fence_now(self, node_id: NodeId) -> list[ControllerEffect]:
        """End a node's session."""
        draft = self._draft()
        self._sessions.end(node_id)
        fence(draft, [node_id], "scenario", {})
        return self._commit(draft)

    def _partition(self, tp: TopicPartition) -> PartitionImage:
        found = self.state.partition(tp)
        assert found is not None, f"{tp} was created before"
        return found


# ---- believing
# The client's view of the cluster in a scenario: the newest metadata that any node served it (C63).
#
# Invariant: which of two states is older is the rule of the real client, `core.messages.AsOf`; nothing else is decided
# here. The client follows no hint and sends no request by itself.


class Belief:
    """The newest state that was served to the client."""

    def __init__(self) -> None:
        self._newest = AsOf(-1, -1)
        self._partition: PartitionImage | None = None

    @property
    def leader(self) -> NodeId | None:
        """The node to which the client sends its records; None while it knows no leader."""
        return self._partition.leader if self._partition is not None else None

    def take(self, image: MetadataImage) -> bool:
        """Believe a state that a node holds, unless a newer one was seen. Returns whether it is believed."""
        reign = image.reign
        as_of = AsOf(image.controller_epoch, image.metadata_offset, reign.reign_id if reign is not None else "")
        if as_of.is_before(self._newest):
            return False
        self._newest = as_of
        partitions = (partition for topic in image.topics for partition in topic.partitions)
        self._partition = next((partition for partition in partitions if partition.tp == TP), None)
        return True
