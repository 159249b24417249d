"""One seed is one run in any process; it is replayed, exported, and shrunk to a scenario."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.core.control.state import SKIP
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.reading import clusters, find_files, read_rows
from strandline.export.rows import Row
from strandline.export.schema import CONTROLLER_NODE_ID
from strandline.export.verify import Completeness, verify
from strandline_sim.commands import sim
from strandline_sim.commands.sim import app
from strandline_sim.runs.run import Campaign, Outcome, Violation, run_world
from strandline_sim.runs.shape import PROFILES, Shape, draw_shape
from strandline_sim.runs.shrink import Shrinker, ddmin
from strandline_sim.runs.trace import Digest, ExportingTrace, Trace
from strandline_sim.scenario.language import ScenarioFailed
from strandline_sim.scenario.run import run_file, run_text
from strandline_sim.world.world import World

SEEDS = (3, 17, 28)
DECISIONS = ("ISR_CHANGE", "LEADER_CHANGE", "CONFIG_CHANGE", "REASSIGNMENT")

_SCRIPT = """
from strandline_sim.runs.shape import PROFILES
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import draw_shape
from strandline_sim.runs.trace import Digest
from strandline_sim.world.world import World
for seed in {seeds}:
    digest = Digest()
    run_world(World(draw_shape(seed, PROFILES["swarm"]), recorder=digest))
    print(digest.hexdigest())
"""


def digest_of(seed: int) -> str:
    """The digest of every effect of one run."""
    digest = Digest()
    run_world(World(draw_shape(seed, PROFILES["swarm"]), recorder=digest))
    return digest.hexdigest()


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_another_process_with_another_hash_seed_does_the_same(hash_seed: str) -> None:
    """Every effect of every core is the same under another PYTHONHASHSEED."""
    environment = dict(os.environ, PYTHONHASHSEED=hash_seed)
    command = [sys.executable, "-c", _SCRIPT.format(seeds=SEEDS)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)

    assert ran.stdout.split() == [digest_of(seed) for seed in SEEDS]


def test_looking_on_changes_nothing() -> None:
    """A traced run is identical to an untraced one."""
    plain = run_world(World(draw_shape(5, PROFILES["swarm"])))
    trace = Trace(everything=True)
    traced = run_world(World(draw_shape(5, PROFILES["swarm"]), recorder=trace))

    assert trace.lines
    assert (traced.events, traced.simulated_us, traced.counts) == (plain.events, plain.simulated_us, plain.counts)


@pytest.mark.parametrize(("profile", "seed"), [("moves", 2), ("moves", 10), ("moves", 14), ("swarm", 1)])
def test_every_partition_epoch_is_reported(tmp_path: Path, profile: str, seed: int) -> None:
    """In a run with restarts and moves no decision of the controller about a partition is without an event."""
    trace = ExportingTrace(tmp_path, ExportFormat.JSONL)
    world = World(draw_shape(seed, PROFILES[profile]), recorder=trace)
    trace.watch(world)
    run_world(world)
    trace.close()
    reported: dict[object, set[int]] = {}
    for row in _rows(tmp_path):
        if row["event_type"] in DECISIONS and row["node_id"] == CONTROLLER_NODE_ID and row.get("topic_id"):
            reported.setdefault((row["topic_id"], row["partition"]), set()).add(row["partition_epoch"] % SKIP)
    assert reported
    for epochs in reported.values():
        assert epochs == set(range(min(epochs), max(epochs) + 1))


# `strandline sim run` and `replay`: their output, and the exit code for scripts.


RUNNER = CliRunner()


@pytest.mark.timeout(120)
def test_a_campaign_that_broke_nothing() -> None:
    """A campaign without a finding ends with exit code 0, how often each thing happened, and the sums."""
    ran = RUNNER.invoke(sim.app, ["run", "--seeds", "0..2", "--profile", "calm"])

    assert ran.exit_code == 0
    assert "committed records" in ran.output
    assert "2 seeds" in ran.output


@pytest.mark.timeout(120)
def test_a_campaign_that_found_something() -> None:
    """A campaign with a finding ends with exit code 1, the seed, and the commands that replay and shrink it."""
    ran = RUNNER.invoke(sim.app, ["run", "--seeds", "0..1", "--profile", "high-watermark", "--no-table"])

    assert ran.exit_code == 1
    assert "seed 0: I11" in ran.output
    assert "strandline sim replay 0 --profile high-watermark" in ran.output
    assert "strandline sim shrink 0 --profile high-watermark" in ran.output


def test_a_promise_that_was_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing broken but a promised event never happened: exit code 1, with that event."""
    campaign = Campaign("calm")
    for seed in range(50):
        campaign.take(Outcome(seed=seed, profile="calm", events=1, simulated_us=1, committed=0, counts=Counter()))
    monkeypatch.setattr(sim, "_run", lambda *_: (campaign, 1.0))
    ran = RUNNER.invoke(sim.app, ["run", "--seeds", "0..50", "--profile", "calm", "--no-table"])

    assert ran.exit_code == 1
    assert "never happened" in ran.output and "committed" in ran.output


@pytest.mark.timeout(120)
def test_a_replay_shows_lanes_and_the_life_of_what_was_lost() -> None:
    """Lanes for nodes and controller, the violation with its number, and the history of the offset it concerns."""
    ran = RUNNER.invoke(sim.app, ["replay", "0", "--profile", "high-watermark"])
    lines = ran.output.splitlines()
    lanes = {line.split()[1] for line in lines if line.startswith("t=")}
    life = lines[next(i for i, line in enumerate(lines) if line.startswith("life of offset ")) :]

    assert ran.exit_code == 1
    assert {"ctl", "--"} <= lanes and any(lane.endswith("*") for lane in lanes)
    assert any(line.startswith("!! I11") for line in lines)
    assert any("appended" in line for line in life) and any("TRUNCATES" in line for line in life)


def test_a_wrong_profile_is_answered_with_those_there_are() -> None:
    """A wrong profile ends with exit code 2 and the list of profiles."""
    ran = RUNNER.invoke(sim.app, ["run", "--seeds", "0..1", "--profile", "storm"])

    assert ran.exit_code == 2
    assert "swarm" in ran.output and "minority" in ran.output


def test_what_is_broken_is_kept_with_its_seed() -> None:
    """A campaign does not pass merely because its seeds broke nothing."""
    broken = Violation(name="I5", sentence="", at_us=1)
    campaign = Campaign("calm")
    campaign.take(Outcome(seed=1, profile="calm", events=1, simulated_us=1, committed=1))
    passed_before = campaign.passed
    campaign.take(Outcome(seed=2, profile="calm", events=1, simulated_us=1, committed=1, violation=broken))

    assert (passed_before, campaign.passed) == (True, False)
    assert [each.seed for each in campaign.broken] == [2]


# A replayed seed writes the same state events as a cluster of services would, and takes the same course.


SEED = 3


def _run(trace: Trace) -> Outcome:
    world = World(draw_shape(SEED, PROFILES["calm"]), recorder=trace)
    trace.watch(world)
    outcome = run_world(world)
    trace.close()
    return outcome


def _rows(root: Path) -> list[Row]:
    destination = LocalDirectory(root)
    (cluster_id,) = clusters(destination)
    return [
        row
        for file in find_files(destination, cluster_id)
        for row in read_rows(file.path, destination.get(f"{cluster_id}/v1/{file.path}"))
    ]


def test_an_exported_seed_takes_the_same_course(tmp_path: Path) -> None:
    """Observation changes nothing: same events, same committed records, same time; and the export is complete."""
    plain = _run(Trace())
    exported = _run(ExportingTrace(tmp_path, ExportFormat.JSONL))
    found = verify(LocalDirectory(tmp_path), clusters(LocalDirectory(tmp_path))[0])
    rows = _rows(tmp_path)

    assert (plain.events, plain.committed, plain.simulated_us) == (
        exported.events,
        exported.committed,
        exported.simulated_us,
    )
    assert {one.completeness for one in found.incarnations} == {Completeness.COMPLETE}
    assert {"REPLICA_SAMPLE", "LOCAL_SAMPLE", "HW_ADVANCE", "EPOCH_START", "LEADER_CHANGE", "NODE_SESSION"} <= {
        row["event_type"] for row in rows
    }
    assert [row for row in rows if row.get("topic") is None and row.get("topic_id") is not None] == []
    samples = [row for row in rows if row["event_type"] == "REPLICA_SAMPLE" and row["in_isr"] and "leo" in row]
    assert samples
    assert [row for row in samples if row["hw"] > row["leo"]] == [], "a member of the ISR has what is committed"


# A failing seed becomes a small run, and that run becomes a scenario that fails by itself.


FAILING_SEED, PROFILE = 0, "high-watermark"


def tries(limit: int) -> Callable[[], float]:
    """A clock that only counts how often it is read."""
    numbers: Iterator[int] = count()
    return lambda: float(min(next(numbers), limit))


def failing() -> Shape:
    """A run that loses records by a historic rule."""
    return draw_shape(FAILING_SEED, PROFILES[PROFILE])


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
    ran = CliRunner().invoke(
        app, ["shrink", str(FAILING_SEED), "--profile", PROFILE, "--time", "40s", "--out", str(file)]
    )
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
