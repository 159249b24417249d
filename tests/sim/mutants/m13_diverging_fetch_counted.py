"""13: a diverged follower's fetch is counted."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.messages import FetchPartition, FetchRequest, FetchResult
from strandline.core.serving.fetch import Counted, FetchServing


def _counts_it(
    real: Real,
    serving: FetchServing,
    part: FetchPartition,
    request: FetchRequest,
    at_follower: bool,
    now_ms: int,
    counted: list[Counted],
) -> FetchResult:
    result: FetchResult = real(serving, part, request, at_follower, now_ms, counted)
    replica = request.replica
    leader = serving._state.leaders.get(part.tp)
    if result.diverging is not None and replica is not None and leader is not None:
        real.differs()
        counted.append(Counted(leader, replica.node_id, leader.observe_fetch(part, replica, now_ms)))
    return result


MUTANTS = (
    Mutant(
        number="13",
        name="diverging fetch counted",
        broken="A fetch that is answered with a divergence moves the remote log end of its sender all the same.",
        source="KAFKA-13141; TR12",
        scenario="tr12_diverging_fetch",
        swaps=(Swap(FetchServing, "_receive", _counts_it, pure=False),),
    ),
)
