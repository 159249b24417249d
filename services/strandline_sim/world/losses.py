"""Lets disks lose durable records, as far as A5 allows: a tail, or the return of a whole directory.

Invariant (A5): of the members of a partition at most min ISR - 1 lack durable records at any time; so every
permanent loss is a finding. A loss is over when the node's next process is registered and a leader has counted that,
or the node is no member any more and min ISR others are in the ISR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.core.log.leader import LeaderReplica
from strandline.core.messages import AlterPartitionRequest, PartitionImage
from strandline.core.types import Durability, NodeId, TopicPartition
from strandline_sim.runs.shape import Fault
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.disk import Disk
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.machine import Machine
from strandline_sim.world.process import Process


class Losses:
    """The losses of one world, and what may be lost now."""

    def __init__(self, world: Cluster) -> None:
        self._world = world
        # Per partition, the nodes that lost records there, with their node epoch at that moment.
        self._lost: dict[TopicPartition, dict[NodeId, int]] = {}
        # The same with the leader epoch; entries are never removed.
        self._lost_under: dict[TopicPartition, dict[NodeId, int]] = {}

    def lacks(self, tp: TopicPartition, node_id: NodeId) -> bool:
        """Whether a node lost records of a partition, and no leader has counted it since."""
        return node_id in self._lost.get(tp, {})

    def was_counted_before(self, tp: TopicPartition, node_id: NodeId, leader_epoch: int) -> bool:
        """Whether a leader of this epoch may have counted what a node lost since.

        A node that has left the ISR may still be in the ISR that its leader knows.
        """
        image = self._world.metadata.partitions.get(tp)
        is_out = image is None or node_id not in image.isr
        return is_out and self._lost_under.get(tp, {}).get(node_id, -1) >= leader_epoch

    def may_lose(self, node_id: NodeId) -> bool:
        """Whether A5 allows this node's disk to lose records now, in every partition that it holds."""
        world = self._world
        if world.rules.durability is not Durability.FSYNC:
            # There a kill is already a loss, and unclean starts are noticed.
            return False
        held = [image for image in world.metadata.partitions.values() if node_id in image.replicas]
        return all(self._is_allowed(image, node_id) for image in held)

    def _is_allowed(self, image: PartitionImage, node_id: NodeId) -> bool:
        # Where an operator changes min ISR, the smallest one that the run may have is what counts.
        min_isr = 2 if "min_isr" in self._world.shape.kinds else image.min_isr
        return len({*self._lost.get(image.tp, {}), node_id}) <= min_isr - 1

    def committed(self, image: PartitionImage) -> None:
        """A partition's state became durable, which may end losses."""
        lost = self._lost.get(image.tp)
        if not lost:
            return
        for node_id in [n for n, epoch in lost.items() if self._is_over(image, n, epoch)]:
            del lost[node_id]

    def _is_over(self, image: PartitionImage, node_id: NodeId, lost_in_epoch: int) -> bool:
        if self._world.metadata.node_epochs.get(node_id, 0) <= lost_in_epoch:
            # Until the node registers again, a leader that counted it before may still propose it.
            return False
        if node_id not in (*image.isr, *image.elr):
            return len(image.isr) >= image.min_isr
        return node_id not in image.unproven

    def lose_tails(self, machine: Machine[Any], draw: Draw) -> bool:
        """Every log of a machine that is down loses its end, from any batch on. Returns whether any record was lost."""
        lost = 0
        for log in machine.disk.logs.values():
            borders = [log.leo, *(start for start in log.starts if start >= log.log_start)]
            lost += log.lose_from(draw.choose(borders))
        if lost:
            # A directory that lost records anywhere is unclean as a whole: its node leaves every ISR and ELR.
            for tp in machine.disk.logs:
                self._note(tp, machine.node_id)
        self._world.coverage.saw("durable records lost", lost)
        machine.checks.disk_changed(machine.node_id)
        return lost > 0

    def restore(self, machine: Machine[Any], backup: Disk) -> bool:
        """Replace the directory of a machine that is down by its copy. Returns whether its state differs."""
        if backup.copy != machine.disk.copy:
            # The disk has been replaced since: the copy belongs to another directory.
            return False
        if _is_of_an_earlier_process(machine.disk, backup):
            self._world.coverage.saw("restored an earlier process's directory")
        machine.disk = backup
        for tp in {*backup.logs, *self._world.tps}:
            self._note(tp, machine.node_id)
        machine.checks.disk_changed(machine.node_id)
        return True

    def wiped(self, node_id: NodeId) -> None:
        """The disk of a node that is no member was replaced. It counts as a loss: a proposal of its leader that is in
        transit may make the node a member."""
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


# ---- changes
# Changes of a cluster while it runs: nodes that join, records and topics that are deleted.
#
# Makes a follower fail at the moment in which its leader proposes it for the ISR.
#
# By chance alone that hardly ever happens: a follower has to fall out of an ISR while it lives, to return, and to be
# fenced, ordered to stop or restarted between the proposal and its arrival. Here it is cut off from its leader for
# longer than the lag time, and fails when it is proposed again, while the proposal is late (TR10, INELIGIBLE_REPLICA).
#
# Invariant: what happens to machines and links is what other faults do as well; only the moment is chosen.


# ---- deletion
# An operator who asks for more than may be deleted: for offsets above the high watermark.
#
# Invariants: the request comes only when everything below the HW was read, so that a leader which obeys its HW deletes
# nothing that a consumer still waits for; and it is drawn separately, so that a seed keeps the plan it has without it.

_PER_MILLE = 500
"""The share of deletions that are followed by one that asks for too much."""
_LOOK_EVERY_US = 7_000
_LOOKS = 60


class GreedyDeletion:
    """Waits until there are records above the HW and every record below it was read."""

    def __init__(
        self,
        world: Cluster,
        unless_healed: Callable[[Callable[[], object]], None],
        read_by_all: Callable[[TopicPartition], int],
    ) -> None:
        self._world = world
        self._unless_healed = unless_healed
        self._read_by_all = read_by_all

    def begin(self, fault: Fault, tp: TopicPartition) -> None:
        """Perhaps ask for too much, soon after ``fault``."""
        draw = Draw(self._world.shape.seed, Purpose.FAULT, fault.at_us)
        if draw.chance(_PER_MILLE):
            self._look(tp, draw.between(1, 4), _LOOKS)

    def _look(self, tp: TopicPartition, beyond: int, looks: int) -> None:
        found = self._leading(tp)
        if found is None:
            if looks:
                again = (tp, beyond, looks - 1)
                self._world.timeline.after(_LOOK_EVERY_US, self._unless_healed, lambda: self._look(*again))
            return
        process, leader = found
        self._world.coverage.saw("deletion above the HW")
        offset = min(leader.log.hw + beyond, leader.log.leo)
        self._world.note("--", f"delete records of p{tp.partition} below {offset}, which is above the HW")
        process.hand(process.delete_records, tp, offset)

    def _leading(self, tp: TopicPartition) -> tuple[Process, LeaderReplica] | None:
        world = self._world
        node_id = world.leader_of(tp)
        machine = world.machines[node_id] if node_id is not None else None
        process = machine.running if machine is not None and not machine.is_paused else None
        leader = process.core.state.leaders.get(tp) if process is not None else None
        read = self._read_by_all(tp)
        if process is None or leader is None or not leader.log.hw <= read < leader.log.leo:
            return None
        return process, leader


CUT_US = (750_000, 1_250_000)
"""Time for which a follower is cut off: longer than the lag time of the simulated nodes."""

WAIT_US = 2_000_000
"""Time after the cut for which the fault waits for a proposal."""

LATE_US = (150_000, 350_000)
"""Delay of the proposal: long enough to start or stop a process, shorter than the proposer waits."""


class JoinerFault:
    """The faults of this kind that wait for their moment. ``unless_healed`` runs an action if faults still happen."""

    def __init__(self, world: Cluster, unless_healed: Callable[[Callable[[], object]], None]) -> None:
        self._world = world
        self._unless_healed = unless_healed
        self._waiting: list[Fault] = []

    def begin(self, fault: Fault) -> bool:
        """Cut an ISR member off from its leader for a while, and wait for it to come back."""
        world = self._world
        images = list(world.metadata.partitions.values())
        image = images[fault.pick % len(images)]
        followers = [node_id for node_id in image.isr if node_id != image.leader]
        if image.leader is None or not followers:
            return False
        one, leader = int(followers[(fault.pick >> 3) % len(followers)]), int(image.leader)
        links = [(one, leader), (leader, one)]
        cut_us = CUT_US[0] + fault.other % (CUT_US[1] - CUT_US[0])
        world.note("--", f"cut n{one} from its leader n{leader} for {cut_us // 1000} ms, and strike the next to join")
        world.network.cut(links)
        self._waiting.append(fault)
        world.timeline.after(cut_us, self._unless_healed, lambda: world.network.heal(links))
        world.timeline.after(cut_us + WAIT_US, self._give_up, fault)
        return True

    def _give_up(self, fault: Fault) -> None:
        if fault in self._waiting:
            self._waiting.remove(fault)

    def heal(self) -> None:
        """Drop the faults that still wait for their moment."""
        self._waiting.clear()

    def proposed(self, request: AlterPartitionRequest) -> int:
        """A proposal is being sent. Returns its delay in microseconds."""
        joining = self._joining(request) if self._waiting else None
        if joining is None:
            return 0
        fault = self._waiting.pop(0)
        draw = Draw(self._world.shape.seed, Purpose.FAULT, fault.at_us)
        late_us = draw.between(*LATE_US)
        self._world.note("--", f"n{joining} is struck while it joins; the proposal is {late_us // 1000} ms late")
        strike = self._stop if fault.other & 1 else self._kill
        # Not within the step that proposes: a process that ends breaks the streams of others at once.
        self._world.timeline.after(draw.between(0, 30_000), self._unless_healed, lambda: strike(joining))
        return late_us

    def _joining(self, request: AlterPartitionRequest) -> NodeId | None:
        for proposal in request.partitions:
            image = self._world.metadata.partitions.get(proposal.tp)
            for member in proposal.new_isr:
                if image is not None and member.node_id not in image.isr:
                    return member.node_id
        return None

    def _kill(self, node_id: NodeId) -> None:
        machine = self._world.machines[node_id]
        machine.kill()
        machine.start()

    def _stop(self, node_id: NodeId) -> None:
        self._world.machines[node_id].stop()
