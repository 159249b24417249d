"""What members cost the coordinator: a heartbeat that changes nothing does not depend on how many there are."""

from __future__ import annotations

import time

from groups_alone import GroupsAlone, Topics

from strandline.core.groups.messages import GroupSettings


def _joined(members: int, partitions: int) -> GroupsAlone:
    """A stable group."""
    alone = GroupsAlone(Topics(foo=partitions), GroupSettings())
    alone.invariants.decided = lambda request, batches: None  # type: ignore[method-assign]
    for number in range(members):
        alone.join(f"m{number:05}", "foo")
    alone.tick(200)
    alone.compute()
    for _ in range(3):
        for number in range(members):
            member = f"m{number:05}"
            alone.beat(member, owned=alone.has(member))
    assert alone.group.state == "Stable"
    return alone


def _seconds(alone: GroupsAlone, beats: int) -> float:
    members = sorted(alone.group.members)
    began_s = time.process_time()
    for number in range(beats):
        alone.beat(members[number % len(members)])
    return time.process_time() - began_s


def test_a_heartbeat_costs_the_same_in_a_large_group() -> None:
    """50 times as many members and partitions: a heartbeat that changes nothing writes nothing and costs at most three
    times as much."""
    small, large = _joined(20, 20), _joined(1_000, 1_000)
    before = len(large.log)

    ratio = min(_seconds(large, 2_000) for _ in range(3)) / min(_seconds(small, 2_000) for _ in range(3))

    assert ratio < 3
    assert len(large.log) == before


def test_joins_of_a_large_group_share_targets() -> None:
    """1,000 members that join within one interval lead to two targets: the first member's, and one for all."""
    alone = _joined(1_000, 1_000)
    epochs = {record.value.epoch for record in alone.log if type(record.key).__name__ == "TargetEpochKey"}

    assert epochs == {1, 1_000}
    assert {len(row.assigned) for row in alone.group.current.values()} == {1}
