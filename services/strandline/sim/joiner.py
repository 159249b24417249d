"""How a follower is struck in the moment in which its leader proposes it for the ISR.

By chance alone that hardly ever happens: a follower has to fall out of an ISR while it lives, to return, and to be
fenced, ordered to stop or restarted between the proposal and its arrival. Here it is cut off from its leader for
longer than the lag time, and struck when it is proposed again, while the proposal is late (TR10, INELIGIBLE_REPLICA).

Invariant: what happens to machines and links is what other faults do as well; only the moment is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.core.messages import AlterPartitionRequest
from strandline.core.types import NodeId
from strandline.sim.draws import Draw, Purpose
from strandline.sim.shape import Fault

if TYPE_CHECKING:
    from strandline.sim.world import World

CUT_US = (750_000, 1_250_000)
"""How long a follower is cut off: longer than the lag time of the simulated nodes."""

WAIT_US = 2_000_000
"""How long after the cut the fault waits for a proposal."""

LATE_US = (150_000, 350_000)
"""How late the proposal is: long enough to start or to stop a process, shorter than the proposer waits."""


class JoinerFault:
    """The faults of this kind that wait for their moment. ``unless_healed`` runs an action if faults still happen."""

    def __init__(self, world: World, unless_healed: Callable[[Callable[[], object]], None]) -> None:
        self._world = world
        self._unless_healed = unless_healed
        self._waiting: list[Fault] = []

    def begin(self, fault: Fault) -> bool:
        """Cut a member of an ISR off from its leader for a while, and wait for it to come back."""
        world = self._world
        images = list(world.checks.metadata.partitions.values())
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
            image = self._world.checks.metadata.partitions.get(proposal.tp)
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
