"""Seeds of every profile: nothing is broken by the current rules, and removed or historic rules are caught."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.core.messages import ProposedIsr
from strandline.core.types import LeaderEpoch, PartitionEpoch, TopicPartition
from strandline_sim.checks.checks import check_own
from strandline_sim.checks.committed import Broken
from strandline_sim.clients.group_members import GroupMember, Reading
from strandline_sim.runs.run import Campaign, Outcome, outcomes, run_seed, run_world
from strandline_sim.runs.shape import AIMED_KINDS, LOSSES, PROFILES, Fault, Shape, draw_shape
from strandline_sim.world.world import World

FIRST_SEED = 100_000


def counts_of(seeds: range, profile: str) -> Counter[str]:
    """What happened in these seeds, none of which may break anything."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_seed(seed, profile)
        assert (seed, outcome.violation) == (seed, None)
        counts.update(outcome.counts)
    return counts


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_seeds_of_the_swarm_break_nothing(seeds: int) -> None:
    """Seeds of the swarm hold every invariant and recover."""
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
    assert run_seed(seed, "page-cache").violation is None


@pytest.mark.timeout(60)
def test_a_record_deleted_before_its_sender_heard_of_it_is_not_written_again() -> None:
    """M61: swarm seed 880, where a replica that had restarted above a batch led when the batch was sent again."""
    outcome = run_seed(880, "swarm")

    assert outcome.violation is None
    assert outcome.counts["log restarted"] > 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [285, 440, 798])
def test_a_throttle_is_lifted_although_a_later_order_was_refused(seed: int) -> None:
    """L10: the end of the faults lifts the rate of the move that runs, whatever was ordered after it or just before."""
    assert run_seed(seed, "moves").violation is None


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

    assert run_seed(13970, "swarm").violation is None


@pytest.mark.timeout(120)
def test_committed_offsets_survive_whatever_happens() -> None:
    """I30, I31, L12: thirty runs with coordinators on the nodes, and both their loads and their sweeps are reached."""
    counts = counts_of(range(30), "groups")

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


# Consumer groups in the simulator: seeds break nothing, and removed rules are caught.


def _broken_within(seeds: int) -> str | None:
    found = (run_seed(seed, "members").violation for seed in range(seeds))
    return next((f"{broken.name}: {broken.sentence}" for broken in found if broken is not None), None)


@pytest.mark.timeout(120)
def test_seeds_of_groups_break_nothing() -> None:
    """I28 to I33, L11 and L12 hold in seeds in which coordinators change, members leave, and much is repeated."""
    counts = counts_of(range(300, 312), "members")

    assert counts["groups: committed"] > 200
    assert counts["groups: revoked"] > 20
    assert counts["groups: request twice"] > 20
    assert counts["elections"] > 100


@pytest.mark.timeout(120)
def test_a_record_that_members_skip_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I33 breaks at the end when a member goes past a record now and then and commits behind it."""
    read_one = GroupMember._read_one

    def skipping(member: GroupMember, tp: TopicPartition, reading: Reading) -> None:
        if reading.position is not None and reading.position % 7 == 3:
            reading.position += 1
        read_one(member, tp, reading)

    monkeypatch.setattr(GroupMember, "_read_one", skipping)

    assert "I33" in (_broken_within(3) or "")


@pytest.mark.timeout(120)
def test_a_member_that_reads_after_its_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I32 breaks at the end when members read on for as long as they send no heartbeat."""
    read = GroupMember._read

    def for_ever(member: GroupMember, life: int) -> None:
        stalled_us, member._stalled_us, member._lease_us = member._stalled_us, 0, 1 << 60
        read(member, life)
        member._stalled_us = stalled_us

    monkeypatch.setattr(GroupMember, "_read", for_ever)

    assert "I32" in (_broken_within(24) or "")


@pytest.mark.timeout(120)
def test_a_late_copy_that_counts_at_a_later_coordinator_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I30 breaks when members name no coordinator epoch: a copy replaces what was committed after it (TR41)."""
    elections = [(second, back, pick) for second in range(8) for pick in range(12) for back in (0, 1)]
    plan = tuple(
        Fault(
            at_us=500_000 + second * 1_000_000 + back * 200_000,
            kind="churn",
            pick=pick + ((1 - back) << 3),
            other=0,
            duration_us=0,
        )
        for second, back, pick in elections
    )
    shape = replace(draw_shape(21, PROFILES["members"]), lost_per_mille=60, sticky=True, plan=plan)
    honest = run_world(World(shape)).violation
    monkeypatch.setattr(GroupMember, "_known_epoch", lambda self: None)
    broken = run_world(World(shape)).violation

    assert honest is None
    assert broken is not None
    assert broken.name == "I30"


# Transactions in the simulator: seeds break nothing, and removed rules are caught.


@pytest.mark.timeout(120)
def test_seeds_of_transactions_break_nothing() -> None:
    """I36 to I38, L12 and L13 hold in seeds in which processes die and fence each other, and much is late."""
    counts = counts_of(range(300, 304), "transactions")

    assert counts["transactions: ended committed"] > 20
    assert counts["transactions: ended aborted"] > 20
    assert counts["transactions: aborted records passed over"] > 20
    assert counts["transactions: fenced"] > 0


@pytest.mark.timeout(60)
def test_a_seed_of_copiers_breaks_nothing() -> None:
    """I39 holds where processes that consume, transform and produce are fenced and aborted."""
    outcome = run_seed(11, "transactions")

    assert outcome.violation is None
    assert outcome.counts["transactions: offset staged"] > 1
    assert outcome.counts["transactions: read on at a committed offset"] > 5


# A follower that gets a fault while its leader proposes it for the ISR.


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
    counts = sum((outcome.counts for outcome in outcomes), Counter())

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


# What must hold within one process: every violation is found and named.


TP = TopicPartition("id", 0)


def _process(*, leads: int | None = None, proposed: int | None = None, saved: int = 0, leo: int = 5) -> Any:
    """A process that leads in one epoch, waits for a proposal of another, and has saved a high watermark."""
    leader = SimpleNamespace(image=SimpleNamespace(leader_epoch=LeaderEpoch(leads or 0)))
    state = SimpleNamespace(leaders={} if leads is None else {TP: leader}, logs={TP: SimpleNamespace(leo=leo)})
    proposal = ProposedIsr(TP, LeaderEpoch(proposed or 0), PartitionEpoch(1), ())
    core = SimpleNamespace(state=state, proposals={} if proposed is None else {TP: proposal})
    return SimpleNamespace(core=core, node_id=1, saved={TP: saved})


def test_what_is_right_is_not_complained_of() -> None:
    """A proposal of the epoch in which its node leads, and a saved high watermark at the log's end."""
    check_own(_process(leads=3, proposed=3, saved=5))
    check_own(_process(saved=5))


@pytest.mark.parametrize("leads", [None, 4], ids=["deposed", "leads again"])
def test_a_proposal_of_an_earlier_epoch_is_found(leads: int | None) -> None:
    """A proposal of an earlier epoch is found whether its node still leads or not."""
    with pytest.raises(Broken, match="I14: a proposal of epoch 3 waits for p0 on node 1"):
        check_own(_process(leads=leads, proposed=3))


def test_a_saved_high_watermark_above_the_log_is_found() -> None:
    """The finding has both numbers; a log that is no longer open is not checked."""
    with pytest.raises(Broken, match="I0: node 1 saved HW 6, its log ends at 5"):
        check_own(_process(saved=6))
    process = _process(saved=6)
    process.core.state.logs.clear()
    check_own(process)
