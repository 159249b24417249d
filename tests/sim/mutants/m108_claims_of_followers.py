"""108, 109: the position that a follower claims."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.errors import Refusal
from strandline.core.log.leader import LeaderReplica
from strandline.core.messages import FetchPartition, PartitionImage
from strandline.core.types import NodeId

_TESTS = ("tests/core/test_leader_fetch.py",)


def _believes(real: Real, self: LeaderReplica, fetch: FetchPartition, node_id: NodeId) -> Refusal | None:
    return None


def _forgets(real: Real, self: LeaderReplica, image: PartitionImage, now_ms: int) -> None:
    before = set(self.progress)
    real(self, image, now_ms)
    if before - set(self.progress):
        real.differs()
    self._claim_limits.clear()
    for node_id in set(self.progress) - before:
        self.progress[node_id].claim_limit = self.log.leo


MUTANTS = (
    Mutant(
        number="108",
        name="whatever a follower claims is counted",
        broken="A fetch in a follower's name acknowledges records that were never sent to it.",
        source="M70",
        tests=_TESTS,
        swaps=(Swap(LeaderReplica, "check_claim", _believes),),
    ),
    Mutant(
        number="109",
        name="claim limit forgotten with the follower",
        broken="A follower that left the partition and came back within the epoch may claim what it was never sent.",
        source="M70",
        tests=_TESTS,
        swaps=(Swap(LeaderReplica, "_take_followers", _forgets, pure=False),),
    ),
)
