"""Operator actions while other faults happen: moving replicas, cancelling moves, draining nodes.

Invariant: every target is one that the controller may accept; the controller decides if it does, and when moves end.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.core.control.messages import AlterPartitionReassignments, DrainNode, ReassignPartition, TopicRef
from strandline.core.types import NodeId, TopicPartition
from strandline_sim.control.controllers import Controllers
from strandline_sim.runs.shape import Fault
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.draws import Draw, Purpose

_FACTORS = (1, 2, 3, 3, 3, 4)
_RATES = (None, None, 10_000)
"""Bytes per second; about what clients write into a partition."""
_DECIDED_US = 2_000_000


class MoveFaults:
    """The kinds of fault that change which nodes hold a partition."""

    def __init__(
        self,
        world: Cluster,
        controller: Controllers,
        later: Callable[[Fault, Callable[[], object]], None],
    ) -> None:
        """``later`` runs an action when the fault's time is over."""
        self._world = world
        self._controller = controller
        self._later = later
        self.kinds = {"reassign": self._reassign, "cancel_move": self._cancel, "drain": self._drain}

    def heal(self) -> None:
        """End all draining; moves go on to their end (L10), without a throttle."""
        self._lift_rates()
        # Once more, for earlier orders that are not decided yet.
        self._world.timeline.after(_DECIDED_US, self._lift_rates)
        if "drain" in self._world.shape.kinds:
            for node_id in self._world.electable:
                self._set_draining(node_id, draining=False)

    def _lift_rates(self) -> None:
        for image in self._world.metadata.partitions.values():
            if image.throttle_bytes_per_s is not None:
                # Equal to the latest that was taken, so it only lifts the rate; later orders may have been refused.
                self._order(image.tp, image.queued_target or image.target)

    def _reassign(self, fault: Fault) -> bool:
        draw = Draw(self._world.shape.seed, Purpose.FAULT, fault.at_us)
        nodes = self._world.electable
        target = draw.sample(nodes, min(len(nodes), draw.choose(_FACTORS)))
        return self._alter(fault, tuple(target), force=False, rate=draw.choose(_RATES))

    def _cancel(self, fault: Fault) -> bool:
        return self._alter(fault, None, force=bool(fault.other & 1))

    def _alter(self, fault: Fault, target: tuple[NodeId, ...] | None, *, force: bool, rate: int | None = None) -> bool:
        tp = self._world.tps[fault.pick % len(self._world.tps)]
        self._world.note("--", f"move p{tp.partition} to {list(target)}" if target else f"cancel the move of {tp}")
        self._order(tp, target, force=force, rate=rate)
        return True

    def _order(
        self, tp: TopicPartition, target: tuple[NodeId, ...] | None, *, force: bool = False, rate: int | None = None
    ) -> None:
        wanted = ReassignPartition(TopicRef(topic_id=tp.topic_id), tp.partition, target)
        order = AlterPartitionReassignments(partitions=(wanted,), force=force, throttle_bytes_per_s=rate)
        self._controller.order(order)

    def _drain(self, fault: Fault) -> bool:
        nodes = self._world.electable
        node_id = nodes[fault.pick % len(nodes)]
        self._set_draining(node_id, draining=True)
        self._later(fault, lambda: self._set_draining(node_id, draining=False))
        return True

    def _set_draining(self, node_id: NodeId, *, draining: bool) -> None:
        self._world.note("--", f"{'drain' if draining else 'undrain'} n{node_id}")
        self._controller.order(DrainNode(node_id=node_id, draining=draining))
