"""When an operator asks for more than may be deleted: for offsets above the high watermark.

Invariants: it is asked only while everything below the HW was read, so that a leader which obeys its HW deletes nothing
that somebody still waits for; and it is drawn apart, so that a seed keeps the plan that it has without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.core.log.leader import LeaderReplica
from strandline.core.types import TopicPartition
from strandline.sim.draws import Draw, Purpose
from strandline.sim.shape import Fault

if TYPE_CHECKING:
    from strandline.sim.process import Process
    from strandline.sim.world import World

_PER_MILLE = 500
"""How many of the deletions are followed by one that asks for too much."""
_LOOK_EVERY_US = 7_000
_LOOKS = 60


class GreedyDeletion:
    """Waits for a moment in which there are records above the HW and none below it that was not read."""

    def __init__(self, world: World, unless_healed: Callable[[Callable[[], object]], None]) -> None:
        self._world = world
        self._unless_healed = unless_healed

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
        read = min((consumer.position for consumer in world.consumers if consumer.tp == tp), default=0)
        if process is None or leader is None or not leader.log.hw <= read < leader.log.leo:
            return None
        return process, leader
