"""Consumer groups in the simulator: seeds break nothing, removed rules are caught, and so are wrong histories."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.core.groups import commits, leaving, machine
from strandline.core.groups.owners import Owners
from strandline.core.types import TopicPartition
from strandline.sim.committed import Broken
from strandline.sim.group_members import GroupMember
from strandline.sim.groups import Groups
from strandline.sim.profiles import PROFILES
from strandline.sim.run import run_seed
from strandline.sim.shape import draw_shape
from strandline.sim.world import World

TP = TopicPartition("t", 0)


def _broken_within(seeds: int) -> str | None:
    found = (run_seed(seed, "members").violation for seed in range(seeds))
    return next((f"{broken.name}: {broken.sentence}" for broken in found if broken is not None), None)


@pytest.mark.timeout(120)
def test_seeds_of_groups_break_nothing() -> None:
    """I28 to I33, L11 and L12 hold in seeds in which coordinators change, members leave, and much is repeated."""
    counts: Counter[str] = Counter()
    for seed in range(300, 312):
        outcome = run_seed(seed, "members")
        assert outcome.violation is None, (seed, outcome.violation)
        counts.update(outcome.counts)

    assert counts["groups: committed"] > 200
    assert counts["groups: revoked"] > 20
    assert counts["groups: request twice"] > 20
    assert counts["elections"] > 100


@pytest.mark.timeout(120)
def test_what_is_given_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """R51: I28 breaks at the row that gives a partition which another holds."""
    monkeypatch.setattr(Owners, "is_free_for", lambda self, tp, member_id: True)

    assert "I28" in (_broken_within(6) or "")


@pytest.mark.timeout(120)
def test_a_commit_of_a_stranger_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """R53: I29 breaks at the commit of a member that does not hold the partition any more."""
    monkeypatch.setattr(commits, "may_commit", lambda *given: True)

    assert "I29" in (_broken_within(12) or "")


@pytest.mark.timeout(120)
def test_two_that_read_one_partition_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """R85: I32 breaks when a member that was removed for its slowness reads on."""
    monkeypatch.setattr(machine, "fence", lambda changes, member_id: leaving.remove(changes, member_id))

    assert "I32" in (_broken_within(24) or "")


@pytest.fixture
def groups() -> Groups:
    """The groups of a world that does not run."""
    found = World(draw_shape(0, PROFILES["members"])).groups
    assert found is not None
    return found


def _member(groups: Groups, number: int) -> GroupMember:
    return GroupMember(groups, number, TP, "g")


def test_a_member_that_reads_after_another_was_given_the_partition(groups: Groups) -> None:
    """I32: reading by the newer right is fine, by the older one again it is not."""
    first, second = groups.new_right(), groups.new_right()
    groups.gives(_member(groups, 1), TP, first, 0, 5)
    groups.gives(_member(groups, 2), TP, second, 5, 9)

    with pytest.raises(Broken, match="I32"):
        groups.gives(_member(groups, 1), TP, first, 5, 6)


def test_a_fetched_offset_that_is_older_than_an_acknowledged_one(groups: Groups) -> None:
    """I30: the answer is the acknowledged commit or a later one; what is acknowledged after the question is free."""
    groups.orders = {"a": 1, "b": 2, "c": 3}
    groups.acknowledged["g", TP] = [(100, 2, "b")]
    groups.fetched("g", TP, "b", 150)
    groups.fetched("g", TP, "c", 150)
    groups.fetched("g", TP, "a", 99)

    for serial in ("a", ""):
        with pytest.raises(Broken, match="I30"):
            groups.fetched("g", TP, serial, 150)


def test_a_record_below_the_commit_that_nobody_was_given(groups: Groups) -> None:
    """I33: ranges of several members that leave no gap are fine, a gap is named."""
    for right, (begin, end) in enumerate([(0, 5), (3, 9), (12, 20)], 1):
        groups.gives(_member(groups, right), TP, right, begin, end)
    groups._check_given("g", TP, 9)

    with pytest.raises(Broken, match="record 9 was given to nobody"):
        groups._check_given("g", TP, 10)
