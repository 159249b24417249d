"""Examines one mutant: all layers, the cheapest first, each within its bound.

Invariant: a mutant whose rule was never called proves nothing, so that is an error of the mutant and not a survival.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mutants import scenario_layer, search_layer, unit_test_layer
from mutants.mutant import Layer, Mutant, Real, Verdict
from mutants.scenario_layer import Story

from strandline_sim.runs.run import run_seed

# ---- seed layer
# The layer of the seeded simulator: seeds from 0 on until one breaks, within a bound, to kill a mutant.
#
# Invariant: a mutant is killed only by what `strandline sim run` would report as broken: a safety property at any
# event,
# a liveness promise after healing, or an anomaly in what clients saw.


def judge(profiles: tuple[str, ...], *, seeds: int, seconds: float) -> Verdict:
    """Run up to ``seeds`` seeds, in all profiles by turns, for at most ``seconds`` of this process's own time."""
    began_s = time.process_time()
    tried = 0
    for seed in range(seeds):
        for profile in profiles:
            tried += 1
            violation = run_seed(seed, profile).violation
            took_s = time.process_time() - began_s
            if violation is not None:
                return Verdict(
                    layer=Layer.SEEDS,
                    killed_by=violation.name,
                    where=f"seed {seed} of {profile}",
                    why=violation.sentence,
                    tried=tried,
                    seconds=took_s,
                )
            if took_s > seconds:
                return Verdict(layer=Layer.SEEDS, tried=tried, seconds=took_s)
    return Verdict(layer=Layer.SEEDS, tried=tried, seconds=time.process_time() - began_s)


# ---- examination


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits for each mutant."""

    all_scenarios: bool = True
    """Whether every scenario is played, or only the one that the mutant names."""
    seeds: int = 400
    seed_s: float = 120.0
    search_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bite:
    """How often a swapped rule was called, and how often the wrong one acted differently from the right one."""

    rule: str
    asked: int
    differed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The results for one mutant."""

    number: str
    verdicts: tuple[Verdict, ...]
    bites: tuple[Bite, ...]
    trouble: str = ""
    """Why it could not be examined to its end: an error that is no invariant's, or a loop without an end."""

    @property
    def is_bitten(self) -> bool:
        """Whether every swapped rule was called at least once."""
        return all(bite.asked for bite in self.bites)

    @property
    def kills(self) -> tuple[Verdict, ...]:
        """The layers that caught it, the cheapest first."""
        return tuple(verdict for verdict in self.verdicts if verdict.is_kill)

    def of(self, layer: Layer) -> Verdict | None:
        """The result of one layer; None if it was not run."""
        return next((verdict for verdict in self.verdicts if verdict.layer is layer), None)


def examine(mutant: Mutant, bounds: Bounds, layers: Iterable[Layer] = tuple(Layer)) -> Examined:
    """Run the layers on a mutant."""
    asked = [layer for layer in layers if layer in mutant.layers and (layer is not Layer.TESTS or mutant.tests)]
    stories = _stories(mutant, bounds) if Layer.SCENARIOS in asked else []
    with mutant.applied() as rules:
        verdicts = tuple(_judge(layer, mutant, bounds, stories) for layer in asked)
        bites = tuple(_bite(rule) for rule in rules)
    return Examined(number=mutant.number, verdicts=verdicts, bites=bites)


def _stories(mutant: Mutant, bounds: Bounds) -> list[Story]:
    """The scenarios to play, the one that the mutant names first."""
    own = scenario_layer.story(mutant.scenario) if mutant.scenario else None
    rest = scenario_layer.stories() if bounds.all_scenarios or own is None else ()
    return [*([own] if own else []), *(reported for reported in rest if reported is not own)]


def _judge(layer: Layer, mutant: Mutant, bounds: Bounds, stories: list[Story]) -> Verdict:
    match layer:
        case Layer.TESTS:
            return unit_test_layer.judge(mutant.tests)
        case Layer.SCENARIOS:
            return scenario_layer.judge(stories)
        case Layer.SEEDS:
            return judge(mutant.profiles, seeds=bounds.seeds, seconds=bounds.seed_s)
        case Layer.SEARCH:
            return search_layer.judge(seconds=bounds.search_s)


def _bite(rule: Real) -> Bite:
    return Bite(rule=rule.name, asked=rule.asked, differed=rule.differed)


def about(bounds: Bounds, day: str) -> dict[str, Any]:
    """The sentences that are needed to read the figures."""
    return {
        "date": day,
        "python": platform.python_version(),
        "all_scenarios": bounds.all_scenarios,
        "seeds_at_most": bounds.seeds,
        "processor_seconds_of_seeds_at_most": bounds.seed_s,
        "processor_seconds_of_search_at_most": bounds.search_s,
    }
