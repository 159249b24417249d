"""Seeds of every profile: nothing is broken by the current rules, and the historic rules are caught."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline_sim.runs.campaign import Campaign, outcomes
from strandline_sim.runs.run import run_seed

FIRST_SEED = 100_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_seeds_of_the_swarm_break_nothing(seeds: int) -> None:
    """So many seeds hold every invariant and recover."""
    campaign = Campaign("swarm")
    for outcome in outcomes(range(FIRST_SEED, FIRST_SEED + seeds), "swarm", 1):
        campaign.take(outcome)

    assert [(each.seed, each.violation) for each in campaign.broken] == []
    assert campaign.counts["committed"] > 100 * campaign.seeds
    assert campaign.counts["elections"] > 2 * campaign.seeds


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(4))
def test_page_cache_loses_nothing_but_availability(seed: int) -> None:
    """Acknowledged from the page cache: a partition may end offline, and is reported so; no invariant is broken."""
    outcome = run_seed(seed, "page-cache")

    assert outcome.violation is None


@pytest.mark.timeout(60)
def test_a_record_deleted_before_its_sender_heard_of_it_is_not_written_again() -> None:
    """M61: swarm seed 880, where a replica that had restarted above a batch led when the batch was sent again."""
    outcome = run_seed(880, "swarm")

    assert outcome.violation is None
    assert outcome.counts["log restarted"] > 0


@pytest.mark.timeout(60)
def test_a_loss_is_reported_once() -> None:
    """M58: swarm seed 4312, where a node that had reported a loss left the ISRs of its other partitions again."""
    outcome = run_seed(4312, "swarm")

    assert outcome.violation is None
    assert outcome.counts["unclean start"] > 0


@pytest.mark.timeout(60)
def test_a_disk_that_lost_records_counts_in_every_partition() -> None:
    """A5: swarm seed 13970, where a node had lost records of one partition, left the ISR of another as well, and the
    other member's directory was put back."""
    outcome = run_seed(13970, "swarm")

    assert outcome.violation is None


@pytest.mark.timeout(120)
def test_committed_offsets_survive_whatever_happens() -> None:
    """I30, I31, L12: thirty runs with coordinators on the nodes, and both their loads and their sweeps are reached."""
    counts: Counter[str] = Counter()
    for seed in range(30):
        outcome = run_seed(seed, "groups")
        counts.update(outcome.counts)
        assert (seed, outcome.violation) == (seed, None)

    assert counts["group commit done"] > 2_000
    assert counts["group offset read"] > 2_000
    assert counts["log start moved"] > 100
    assert counts["group refused: COORDINATOR_LOAD_IN_PROGRESS"] > 0


@pytest.mark.timeout(60)
def test_without_faults_everything_works() -> None:
    """A calm run keeps committing, shrinks no ISR, elects only preferred leaders, and truncates only there."""
    counts: Counter[str] = Counter()
    cuts_by_elections: dict[int, int] = {}
    for seed in range(3):
        outcome = run_seed(seed, "calm")
        counts.update(outcome.counts)
        elections = outcome.counts["elections"]
        cuts_by_elections[elections] = cuts_by_elections.get(elections, 0) + outcome.counts["truncation"]
        assert outcome.violation is None

    assert cuts_by_elections[0] == 0
    assert counts["committed"] > 1000
    assert counts["isr shrunk"] == counts["partition offline"] == 0
    assert counts["elections"] <= 6


@pytest.mark.timeout(60)
def test_a_rule_of_history_is_caught() -> None:
    """Truncating to the high watermark removes committed records within a few seeds (R1)."""
    broken = [run_seed(seed, "high-watermark").violation for seed in range(12)]

    assert {violation.name for violation in broken if violation is not None} & {"I5", "I8", "I11"}


def test_a_campaign_without_what_it_promises_has_not_passed() -> None:
    """A profile's promises are checked as soon as there are enough seeds."""
    campaign = Campaign("calm")
    small = campaign.missing
    campaign.seeds = 1_000

    assert small == []
    assert campaign.missing == ["committed"]
    assert not campaign.passed


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [2, 5])
def test_a_store_from_a_backup_is_noticed_and_recovered(seed: int) -> None:
    """TR18: nothing is assigned twice, and after `recover` the cluster resumes without a loss."""
    outcome = run_seed(seed, "rollback")

    assert outcome.violation is None
    assert outcome.counts["controller recovered"] > 0
