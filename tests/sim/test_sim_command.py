"""`strandline sim run` and `replay`: their output, and the exit code for scripts."""

from __future__ import annotations

from collections import Counter

import pytest
from typer.testing import CliRunner

from strandline_sim.commands import sim
from strandline_sim.runs.campaign import Campaign
from strandline_sim.runs.run import Outcome, Violation

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
    life = lines[next(i for i, line in enumerate(lines) if line.startswith("life of offset 0")) :]

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
