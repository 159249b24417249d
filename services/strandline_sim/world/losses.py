"""Which disks lose durable records, and how far A5 allows that: a tail, or the return of a whole directory.

Invariant (A5): of the members of a partition at most min ISR - 1 lack durable records at any time; so whatever is lost
for good is a finding. A loss is over when the node's next process is registered and a leader has counted that, or the
node is no member any more and min ISR others are in the ISR.
"""

from __future__ import annotations

from typing import Any

from strandline.core.messages import PartitionImage
from strandline.core.types import Durability, NodeId, TopicPartition
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.disk import Disk
from strandline_sim.world.draws import Draw
from strandline_sim.world.machine import Machine


class Losses:
    """What was lost in one world, and may be lost now."""

    def __init__(self, world: Cluster) -> None:
        self._world = world
        # Per partition, the nodes that lost something there, with their node epoch at that moment.
        self._lost: dict[TopicPartition, dict[NodeId, int]] = {}
        # The same with the leader epoch, for ever.
        self._lost_under: dict[TopicPartition, dict[NodeId, int]] = {}

    def lacks(self, tp: TopicPartition, node_id: NodeId) -> bool:
        """Whether a node lost records of a partition, and no leader has counted it since."""
        return node_id in self._lost.get(tp, {})

    def was_counted_before(self, tp: TopicPartition, node_id: NodeId, leader_epoch: int) -> bool:
        """Whether a leader of this epoch may have counted what a node lost since.

        Out of the ISR by now, the node may still be in the ISR that its leader knows.
        """
        image = self._world.metadata.partitions.get(tp)
        is_out = image is None or node_id not in image.isr
        return is_out and self._lost_under.get(tp, {}).get(node_id, -1) >= leader_epoch

    def may_lose(self, node_id: NodeId) -> bool:
        """Whether A5 allows this node's disk to lose something now, in every partition that it holds."""
        world = self._world
        if world.rules.durability is not Durability.FSYNC:
            # There a kill is a loss already, and unclean starts are noticed.
            return False
        held = [image for image in world.metadata.partitions.values() if node_id in image.replicas]
        return all(self._is_allowed(image, node_id) for image in held)

    def _is_allowed(self, image: PartitionImage, node_id: NodeId) -> bool:
        # Where an operator changes min ISR, the smallest one that the run may have is what counts.
        min_isr = 2 if "min_isr" in self._world.shape.kinds else image.min_isr
        lost = {*self._lost.get(image.tp, {}), node_id}
        return len(lost) <= min_isr - 1

    def committed(self, image: PartitionImage) -> None:
        """A partition's state became durable: losses may be over that no longer count."""
        lost = self._lost.get(image.tp)
        if not lost:
            return
        for node_id in [n for n, epoch in lost.items() if self._is_over(image, n, epoch)]:
            del lost[node_id]

    def _is_over(self, image: PartitionImage, node_id: NodeId, lost_in_epoch: int) -> bool:
        if self._world.metadata.node_epochs.get(node_id, 0) <= lost_in_epoch:
            # While nobody registered in its place, a leader that counted it before may still propose it.
            return False
        if node_id not in (*image.isr, *image.elr):
            return len(image.isr) >= image.min_isr
        return node_id not in image.unproven

    def lose_tails(self, machine: Machine[Any], draw: Draw) -> bool:
        """Every log of a machine that is down loses its end, from any batch on. Returns whether any record went."""
        lost = 0
        for log in machine.disk.logs.values():
            borders = [log.leo, *(start for start in log.starts if start >= log.log_start)]
            lost += log.lose_from(draw.choose(borders))
        if lost:
            # A directory that lost something anywhere is unclean as a whole: its node leaves every ISR and ELR.
            for tp in machine.disk.logs:
                self._note(tp, machine.node_id)
        self._world.coverage.saw("durable records lost", lost)
        machine.checks.disk_changed(machine.node_id)
        return lost > 0

    def restore(self, machine: Machine[Any], backup: Disk) -> bool:
        """The copy of a directory takes its place, on a machine that is down. Returns whether it was another state."""
        if backup.copy != machine.disk.copy:
            # The disk was replaced since: the copy is another directory's.
            return False
        if _is_of_an_earlier_process(machine.disk, backup):
            self._world.coverage.saw("restored an earlier process's directory")
        machine.disk = backup
        for tp in {*backup.logs, *self._world.tps}:
            self._note(tp, machine.node_id)
        machine.checks.disk_changed(machine.node_id)
        return True

    def wiped(self, node_id: NodeId) -> None:
        """A disk was replaced, of a node that is no member. It is a loss all the same: a proposal of its leader that is
        on its way may make it one."""
        for tp, image in self._world.metadata.partitions.items():
            if node_id in image.replicas:
                self._note(tp, node_id)

    def _note(self, tp: TopicPartition, node_id: NodeId) -> None:
        epoch = self._world.metadata.node_epochs.get(node_id, 0)
        self._lost.setdefault(tp, {})[node_id] = epoch
        image = self._world.metadata.partitions.get(tp)
        self._lost_under.setdefault(tp, {})[node_id] = -1 if image is None else image.leader_epoch


def _is_of_an_earlier_process(disk: Disk, backup: Disk) -> bool:
    return bool(disk.incarnations) and not set(disk.incarnations or ()) <= set(backup.incarnations or ())
