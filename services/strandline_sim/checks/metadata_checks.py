"""Whether the controller's committed decisions are allowed: I7, I14, I15, I40, and what they are counted as.

Invariant: only what is durable is a decision; what a reign thought and lost in a crash never was one.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.core.control.state import ClusterState
from strandline.core.log.effects import Emit
from strandline.core.messages import PartitionImage
from strandline.core.state_events import ControllerDecision
from strandline.core.types import NodeId, TopicPartition
from strandline_sim.checks.committed import Broken
from strandline_sim.world.environment import Environment


class MetadataChecks:
    """Q of every partition, as the controller made it durable."""

    def __init__(self, world: Environment) -> None:
        self._world = world
        self.partitions: dict[TopicPartition, PartitionImage] = {}
        self.directories: dict[NodeId, str] = {}
        # The newest registration of each node.
        self.node_epochs: dict[NodeId, int] = {}
        self._controller_epoch = 0
        self._is_new_line = False

    def begin_anew(self) -> None:
        """The next state was put together from what nodes have stored: above all that they know, and no successor."""
        self._is_new_line = True
        self._controller_epoch = 0
        self.node_epochs.clear()

    def take(self, state: ClusterState) -> list[TopicPartition]:
        """A state became durable. Returns the partitions that changed.

        Raises:
            Broken: it is no successor of the one before.
        """
        if state.header.controller_epoch < self._controller_epoch:
            raise Broken("I14", f"the controller epoch went back to {state.header.controller_epoch}")
        self._controller_epoch = state.header.controller_epoch
        for node_id, record in state.nodes.items():
            if record.image.node_epoch < self.node_epochs.get(node_id, 0):
                raise Broken("I14", f"the node epoch of {node_id} went back to {record.image.node_epoch}")
            if record.directory_id != self.directories.get(node_id, record.directory_id):
                self._excluded(state.partitions(), node_id)
            self.node_epochs[node_id] = record.image.node_epoch
            self.directories[node_id] = record.directory_id
        changed = [image.tp for image in state.partitions() if self._took(image)]
        self._is_new_line = False
        return changed

    def excluded(self, node_id: NodeId) -> None:
        """I15: a node that registers on a disk that may lack records is in no ISR, in no ELR, and leads nothing."""
        self._excluded(self.partitions.values(), node_id)

    def _excluded(self, partitions: Iterable[PartitionImage], node_id: NodeId) -> None:
        for image in partitions:
            if node_id in image.isr or node_id in image.elr or image.leader == node_id:
                raise Broken("I15", f"node {node_id} has a disk that may lack records and its place in {image}")

    def _took(self, image: PartitionImage) -> bool:
        before = self.partitions.get(image.tp)
        if before is image or before == image:
            return False
        self.partitions[image.tp] = image
        if image.leader is not None and (image.leader not in image.isr or not set(image.isr) <= set(image.replicas)):
            raise Broken("I7", f"leader {image.leader} of ISR {image.isr} of {image.replicas}")
        if image.leader is not None and image.leader in image.unproven:
            raise Broken("I40", f"node {image.leader} leads and nobody has seen its log: {image}")
        if before is not None and not self._is_new_line:
            self._succeeds(before, image)
        self._count(before, image)
        return True

    def _succeeds(self, before: PartitionImage, after: PartitionImage) -> None:
        if after.leader_epoch < before.leader_epoch or after.partition_epoch <= before.partition_epoch:
            raise Broken("I14", f"epochs went back: {before} then {after}")
        if after.leader != before.leader and after.leader_epoch == before.leader_epoch:
            raise Broken("I1", f"another leader in the same epoch: {before} then {after}")
        if after.leader is not None and after.leader_epoch > before.leader_epoch:
            clean = {*before.isr, *before.elr}
            if after.last_unclean_leader_epoch == before.last_unclean_leader_epoch and after.leader not in clean:
                raise Broken("I7", f"node {after.leader} was elected from outside {sorted(clean)}")

    def _count(self, before: PartitionImage | None, after: PartitionImage) -> None:
        coverage = self._world.coverage
        isr, elr = ",".join(map(str, after.isr)), ",".join(map(str, after.elr))
        epochs = f"e={after.leader_epoch} pe={after.partition_epoch} m={after.min_isr}"
        text = f"p{after.tp.partition} leader {after.leader} {epochs} isr={{{isr}}} elr={{{elr}}}"
        self._world.note("ctl", text)
        if before is None:
            return
        if after.leader_epoch > before.leader_epoch:
            coverage.saw("elections" if after.leader is not None else "partition offline")
            if after.leader in before.unproven:
                coverage.saw("election by reports")
            elif after.leader in before.elr:
                coverage.saw("election from the ELR")
        if set(after.isr) - set(before.isr):
            coverage.saw("isr grown")
        if set(before.isr) - set(after.isr):
            coverage.saw("isr shrunk")

    def reported(self, emit: Emit) -> None:
        """Count what the controller reported."""
        if isinstance(emit.event, ControllerDecision):
            self._world.coverage.saw(f"controller: {emit.event.decision}")
