"""R85: partitions of a member that is too slow are free as soon as its rebalance time-out is over."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.groups import heartbeats
from strandline.core.groups.group import Changes


def _frees_at_once(real: Real, changes: Changes, member_id: str) -> None:
    real.differs()
    heartbeats.remove(changes, member_id)


MUTANTS = (
    Mutant(
        number="R85",
        name="free before the lease ends",
        broken="Another member is given partitions that a removed one still reads.",
        source="G21; Kafka's own behaviour",
        tests=("tests/sim/test_rebalances_search.py", "tests/core/groups/test_heartbeats.py"),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("members",),
        swaps=(Swap(heartbeats, "fence", _frees_at_once, pure=False),),
    ),
)
