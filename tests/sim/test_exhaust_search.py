"""The exhaustive search finds what the rules of history lose, and nothing under the rules of today."""

from __future__ import annotations

import pytest

from strandline.sim.exhaust import VARIANTS, Bounds, Property, search


@pytest.mark.parametrize("rules", ["leader-epoch", "fetch"])
def test_the_safe_rules_hold_with_two_replicas(rules: str) -> None:
    """Two replicas, one record, leader epochs 0 to 2: every reachable state keeps every property."""
    result = search(VARIANTS[rules], Bounds(replicas=2, records=1, max_leader_epoch=2))

    assert result.exhausted
    assert result.violation is None


def test_truncating_to_the_high_watermark_breaks_the_isr() -> None:
    """Before 0.11 a follower in sync cut a record that its leader had exposed."""
    bounds = Bounds(replicas=2, records=1, max_leader_epoch=2)

    result = search(VARIANTS["high-watermark"], bounds, [Property.STRONG_ISR])

    assert result.violation is not None
    assert result.violation.length == 9
