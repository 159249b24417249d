"""Consumer groups in the simulator: seeds break nothing, and removed rules are caught."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.core.groups import commits, heartbeats, machine
from strandline.core.groups.group import Owners
from strandline.core.types import TopicPartition
from strandline_sim.clients.group_members import GroupMember, Reading
from strandline_sim.runs.run import run_seed


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
    monkeypatch.setattr(machine, "fence", lambda changes, member_id: heartbeats.remove(changes, member_id))

    assert "I32" in (_broken_within(24) or "")


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
    monkeypatch.setattr(GroupMember, "_known_epoch", lambda self: None)
    broken = run_seed(991, "members").violation

    assert broken is not None
    assert broken.name == "I30"
