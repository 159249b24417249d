"""The exhaustive search finds what the historic rules lose, and nothing under the current rules."""

from __future__ import annotations

import pytest

from strandline_sim.searches.exhaust import VARIANTS, Bounds, Property, search
from strandline_sim.searches.exhaust.space import Space
from strandline_sim.searches.exhaust.variants import MODELS
from strandline_sim.searches.exhaust.words import tell

BY_NAME = {model.name: model for model in MODELS}


@pytest.mark.parametrize("rules", ["leader-epoch", "fetch"])
def test_the_safe_rules_hold_with_two_replicas(rules: str) -> None:
    """Two replicas, one record, leader epochs 0 to 2: every reachable state keeps every property."""
    result = search(VARIANTS[rules], Bounds(replicas=2, records=1, max_leader_epoch=2))

    assert result.exhausted
    assert result.shortest is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_default_rules_hold_with_three_replicas() -> None:
    """Three replicas, one record, one election after the first: every reachable state keeps every property."""
    result = search(VARIANTS["leader-epoch"], Bounds(3, 1, 1, slow_isr=False))

    assert result.exhausted
    assert result.shortest is None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("high-watermark", {"WeakIsr": 9, "StrongIsr": 9, "divergence in one epoch": 10, "committed record lost": 12}),
        ("kip-101", {"divergence in one epoch": 9, "WeakIsr": 10, "StrongIsr": 10, "committed record lost": 12}),
        ("kip-279", {"StrongIsr": 10}),
        ("first-try", {"StrongIsr": 12}),
    ],
)
def test_a_historic_rule_breaks_as_published(name: str, lengths: dict[str, int]) -> None:
    """The published violation is found; where its length differs, docs/RELIABILITY.md says why."""
    model = BY_NAME[name]

    result = search(VARIANTS[model.variant], model.bounds, model.published)

    assert {str(broken): found.length for broken, found in result.found.items()} == lengths
    assert model.is_as_published({Property(broken): found.length for broken, found in result.found.items()})


def test_the_names_of_replicas_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every name searched instead of one for all, the same states are reached, and broken after as many steps."""
    bounds = Bounds(replicas=3, records=1, max_leader_epoch=2, slow_isr=False)
    merged = search(VARIANTS["kip-101"], bounds, [Property.LOST], max_states=500)
    renamed = merged.model.space.representative
    level, reached = {merged.model.space.start()}, set[tuple[int, ...]]()
    for _ in range(merged.depth + 1):
        reached |= {renamed(state) for state in level}
        level = {after for state in level for _, after in merged.model.space.successors(state)}

    assert len(reached) == merged.states
    assert merged.states > 500


def test_a_trace_is_reported_with_names_that_stay() -> None:
    """Merging by names does not mix them in the trace: the steps lead from the start to what is broken."""
    model = BY_NAME["high-watermark"]
    result = search(VARIANTS[model.variant], model.bounds, [Property.STRONG_ISR])
    found = result.found[Property.STRONG_ISR]
    space: Space = result.model.space

    for step, before, after in zip(found.steps, found.states, found.states[1:], strict=False):
        assert (step, after) in space.successors(before)
    assert tell(found, space)[-1].startswith("broken: StrongIsr. ISR {A,B}; A leads e0, HW 1, [m0/e0]")


def test_an_assertion_of_the_core_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core whose epoch cache omits a new epoch breaks I0 as soon as its leader writes."""
    monkeypatch.setattr("strandline.core.log.truncation.EpochCache.assign", lambda *_: False)

    result = search(VARIANTS["leader-epoch"], Bounds(2, 1, 0), [Property.ASSERTION])

    assert result.shortest is not None
    assert "I0" in result.shortest.note
