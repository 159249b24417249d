"""Changes of a cluster while it runs: nodes that join, records and topics that are deleted.

How a follower is struck in the moment in which its leader proposes it for the ISR.

By chance alone that hardly ever happens: a follower has to fall out of an ISR while it lives, to return, and to be
fenced, ordered to stop or restarted between the proposal and its arrival. Here it is cut off from its leader for
longer than the lag time, and struck when it is proposed again, while the proposal is late (TR10, INELIGIBLE_REPLICA).

Invariant: what happens to machines and links is what other faults do as well; only the moment is chosen.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.core.log.leader import LeaderReplica
from strandline.core.messages import AlterPartitionRequest
from strandline.core.types import NodeId, TopicPartition
from strandline_sim.runs.shape import Fault
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.process import Process

# ---- deletion
# When an operator asks for more than may be deleted: for offsets above the high watermark.
#
# Invariants: it is asked only while everything below the HW was read, so that a leader which obeys its HW deletes
# nothing that somebody still waits for; and it is drawn apart, so that a seed keeps the plan that it has without it.

_PER_MILLE = 500
"""How many of the deletions are followed by one that asks for too much."""
_LOOK_EVERY_US = 7_000
_LOOKS = 60


class GreedyDeletion:
    """Waits for a moment in which there are records above the HW and none below it that was not read."""

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
"""How long a follower is cut off: longer than the lag time of the simulated nodes."""

WAIT_US = 2_000_000
"""How long after the cut the fault waits for a proposal."""

LATE_US = (150_000, 350_000)
"""How late the proposal is: long enough to start or to stop a process, shorter than the proposer waits."""


class JoinerFault:
    """The faults of this kind that wait for their moment. ``unless_healed`` runs an action if faults still happen."""

    def __init__(self, world: Cluster, unless_healed: Callable[[Callable[[], object]], None]) -> None:
        self._world = world
        self._unless_healed = unless_healed
        self._waiting: list[Fault] = []

    def begin(self, fault: Fault) -> bool:
        """Cut a member of an ISR off from its leader for a while, and wait for it to come back."""
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
        """Nobody is struck any more."""
        self._waiting.clear()

    def proposed(self, request: AlterPartitionRequest) -> int:
        """A proposal is being sent. Returns by how much it is late in microseconds, 0 for not at all."""
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
