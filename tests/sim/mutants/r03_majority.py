"""R3: a majority instead of the in-sync replicas."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.leader import LeaderReplica
from strandline.core.types import Offset


def _raise_by_majority(real: Real, leader: LeaderReplica, now_ms: int) -> bool:
    if len(leader.isr.committed) < leader.image.min_isr:
        return False
    others = [node_id for node_id in leader.image.replicas if node_id != leader.node_id]
    known = {node_id: leader.progress[node_id].remote_leo or Offset(0) for node_id in others}
    by_majority = sorted([leader.log.vote, *known.values()], reverse=True)[len(leader.image.replicas) // 2]
    if any(known[node_id] < by_majority for node_id in others if node_id in leader.isr.maximal):
        real.differs()
    return leader.log.raise_hw(by_majority)


MUTANTS = (
    Mutant(
        number="R3",
        name="majority of replicas",
        broken="The high watermark follows the majority of the assigned replicas, whether or not they are in the ISR.",
        source="Raft's commit rule under Kafka's elections; M6",
        scenario="tr09_pending_removal",
        swaps=(Swap(LeaderReplica, "maybe_raise_hw", _raise_by_majority, pure=False),),
    ),
)
