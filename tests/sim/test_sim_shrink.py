"""A failing seed becomes a small run, and that run becomes a scenario that fails by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline_sim.commands.sim import app
from strandline_sim.runs.profiles import PROFILES
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import Shape, draw_shape
from strandline_sim.runs.shrink import Shrinker, ddmin
from strandline_sim.scenario.language import ScenarioFailed
from strandline_sim.scenario.run import run_file, run_text
from strandline_sim.world.world import World

SEED, PROFILE = 0, "high-watermark"


def tries(limit: int) -> Callable[[], float]:
    """A clock that only counts how often it is read."""
    numbers: Iterator[int] = count()
    return lambda: float(min(next(numbers), limit))


def failing() -> Shape:
    """A run that loses records by a historic rule."""
    return draw_shape(SEED, PROFILES[PROFILE])


def test_what_is_not_needed_goes() -> None:
    """Delta debugging finds the two items that matter, in their order, at any position."""
    asked: list[list[int]] = []

    def holds(items: list[int]) -> bool:
        asked.append(items)
        return {3, 17} <= set(items)

    assert ddmin(range(40), holds) == [3, 17]
    assert len(asked) < 200


def test_a_smaller_run_breaks_the_same() -> None:
    """Fewer faults and clients, one partition, three nodes, a plain network; and the run describes itself so."""
    before = run_world(World(failing())).violation
    shrunk = Shrinker(failing(), seconds=60, clock=tries(100)).shrink()
    after = run_world(World(shrunk.shape)).violation

    assert before is not None and after is not None
    assert after == shrunk.outcome.violation
    assert after.name == before.name
    assert len(shrunk.shape.plan) <= 2 < len(failing().plan)
    assert (shrunk.shape.partitions, shrunk.shape.nodes) == (1, 3)
    assert len(shrunk.shape.without) > 0


def test_a_run_with_one_fault_less_draws_the_same_for_the_rest() -> None:
    """Up to the fault that is left out both runs are identical, event by event."""
    shape = draw_shape(11, PROFILES["swarm"])
    last = replace(shape, plan=shape.plan[:-1])
    until_us = shape.plan[-1].at_us

    def events_until(which: Shape) -> int:
        world = World(which)
        with world.loop.running():
            world.start()
            world.timeline.run_until(until_us)
            world.close()
        return world.events

    assert events_until(shape) == events_until(last) > 0


@pytest.mark.timeout(300)
def test_a_failing_seed_becomes_a_scenario_that_fails_alone(tmp_path: Path) -> None:
    """The written file plays and shows the loss; under the current rule it plays as well, and nothing is lost."""
    file = tmp_path / "found.scenario"
    ran = CliRunner().invoke(app, ["shrink", str(SEED), "--profile", PROFILE, "--time", "40s", "--out", str(file)])
    text = file.read_text()
    run_file(file)
    safe = text.replace("truncation=high-watermark", "truncation=leader-epoch")

    assert ran.exit_code == 0, ran.output
    assert "expect-invariant I11 broken" in text
    assert len(text.splitlines()) < 60
    with pytest.raises(ScenarioFailed, match="I11"):
        run_text(safe, "safe", compare=False)
    run_text(safe.replace("expect-invariant I11 broken", "expect-invariant all hold"), "safe", compare=False)


def test_a_seed_that_breaks_nothing_is_not_made_small() -> None:
    """There is nothing to search for, and the exit code shows it."""
    ran = CliRunner().invoke(app, ["shrink", "0", "--profile", "calm"])

    assert ran.exit_code == 1
    assert "breaks nothing" in ran.output
