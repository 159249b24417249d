"""A follower that gets a fault while its leader proposes it for the ISR."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from strandline_sim.runs.profiles import AIMED_KINDS, LOSSES, PROFILES
from strandline_sim.runs.run import Outcome, run_world
from strandline_sim.runs.shape import Fault, Shape, draw_shape
from strandline_sim.world.world import World


def struck(seed: int, *others: int) -> Outcome:
    """A run with no fault except the joiner's, once for each value of ``other``."""
    plan = tuple(
        Fault(at_us=1_000_000 * (2 * number + 1), kind="joiner", pick=number << 3, other=other, duration_us=20_000)
        for number, other in enumerate(others)
    )
    return run_world(World(replace(draw_shape(seed, PROFILES["calm"]), plan=plan)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("other", "how"), [(0, "killed"), (1, "asked to stop")])
def test_who_is_struck_while_it_joins_is_refused(other: int, how: str) -> None:
    """The controller rejects a member that was killed or is shutting down, and the run ends with all replicas whole."""
    outcomes = [struck(seed, other, other + 2) for seed in range(4)]
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)

    assert [outcome.violation for outcome in outcomes] == [None] * 4
    assert counts["alter refused: INELIGIBLE_REPLICA"] > 0, how
    assert counts["isr grown"] > 0


def test_aimed_faults_leave_other_seeds_as_they_were() -> None:
    """A seed without aimed faults and losses is identical to one whose profile does not have them."""
    swarm, blind = PROFILES["swarm"], replace(PROFILES["swarm"], aimed=())
    apart = {*AIMED_KINDS, *LOSSES}

    def unaimed(shape: Shape) -> Shape:
        return replace(shape, profile=blind)

    pairs = [(draw_shape(seed, swarm), draw_shape(seed, blind)) for seed in range(40)]
    aimed = [one for one, _ in pairs if apart & set(one.kinds)]

    assert 0 < len(aimed) < len(pairs)
    assert {kind for one in aimed for kind in one.kinds} >= apart
    assert all(unaimed(one) == other for one, other in pairs if not apart & set(one.kinds))
