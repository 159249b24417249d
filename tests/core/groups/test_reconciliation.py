"""`next_state`, with the rows of Kafka's CurrentAssignmentBuilderTest."""

from __future__ import annotations

import pytest
from groups_alone import Parts, held, parts, tps

from strandline.core.groups.records import CurrentValue, MemberState
from strandline.core.groups.targets import next_state
from strandline.core.types import TopicPartition

HAS = {"t1": [1, 2, 3], "t2": [4, 5, 6]}


def _at(epoch: int, partitions: Parts) -> CurrentValue:
    return CurrentValue(epoch, epoch - 1, MemberState.STABLE, held(epoch, partitions))


def _next(
    current: CurrentValue, epoch: int, target: Parts, owned: Parts | None = None, taken: Parts | None = None
) -> CurrentValue:
    others = set(tps(taken or {}))

    def is_free(tp: TopicPartition) -> bool:
        return tp not in others

    return next_state(current, epoch, tps(target), None if owned is None else tps(owned), is_free)


def _shown(value: CurrentValue) -> tuple[int, str, Parts, Parts]:
    assigned, revoking = (parts(*(each.tp for each in rows)) for rows in (value.assigned, value.revoking))
    return value.member_epoch, value.state.name, assigned, revoking


def test_t74_equal_target() -> None:
    """T74: the same partitions in a new epoch: the member is stable there."""
    assert _shown(_next(_at(10, HAS), 11, HAS)) == (11, "STABLE", HAS, {})


def test_t74_free_partitions_come_at_once() -> None:
    """T74: free partitions of two topics come at once, each with the epoch in which it came."""
    more = {"t1": [1, 2, 3, 4], "t2": [4, 5, 6, 7]}
    reached = _next(_at(10, HAS), 11, more)

    assert _shown(reached) == (11, "STABLE", more, {})
    assert {each.tp.partition: each.epoch for each in reached.assigned if each.tp.topic_id == "t1-id"} == {
        1: 10,
        2: 10,
        3: 10,
        4: 11,
    }


def test_t74_partitions_of_others_are_waited_for() -> None:
    """T74: partitions that others hold: the epoch is reached, the set is the old one, UNRELEASED."""
    more = {"t1": [1, 2, 3, 4], "t2": [4, 5, 6, 7]}

    reached = _next(_at(10, HAS), 11, more, taken={"t1": [4], "t2": [7]})

    assert _shown(reached) == (11, "UNRELEASED", HAS, {})
    assert _next(reached, 11, more, taken={"t1": [4], "t2": [7]}) is reached


def test_t74_what_must_be_revoked_keeps_the_epoch() -> None:
    """T74: a member that must give something up stays in its epoch, asked for just that."""
    reached = _next(_at(10, HAS), 11, {"t1": [2, 3, 4], "t2": [5, 6, 7]})

    assert _shown(reached) == (10, "UNREVOKED", {"t1": [2, 3], "t2": [5, 6]}, {"t1": [1], "t2": [4]})


@pytest.mark.parametrize("owned", [None, {"t1": [1, 2, 3], "t2": [5, 6]}, {"t1": [2, 3], "t2": [4, 5, 6]}])
def test_t74_nothing_changes_before_all_is_given_up(owned: Parts | None) -> None:
    """T74: without a report, or with one that still has a partition to revoke, not even a newer target counts."""
    asked = _next(_at(10, HAS), 11, {"t1": [2, 3, 4], "t2": [5, 6, 7]})

    assert _next(asked, 12, {"t1": [1], "t2": [4]}, owned) is asked


def test_t74_the_newer_target_counts_once_all_is_given_up() -> None:
    """T74: {2,3;5,6} is a report that gives up {1;4}: the member goes on, towards the newest target."""
    asked = _next(_at(10, HAS), 11, {"t1": [2, 3, 4], "t2": [5, 6, 7]})

    assert _shown(_next(asked, 12, {"t1": [2, 3, 5], "t2": [5, 6]}, {"t1": [2, 3], "t2": [5, 6]})) == (
        12,
        "STABLE",
        {"t1": [2, 3, 5], "t2": [5, 6]},
        {},
    )


def test_t75_nothing_to_revoke_is_held() -> None:
    """T75: a report of nothing at all: what must be revoked is not held, so the member moves on."""
    reached = _next(_at(10, HAS), 11, {"t1": [1, 2, 3], "t2": [4, 5, 7]}, owned={}, taken={"t2": [7]})

    assert _shown(reached) == (11, "UNRELEASED", {"t1": [1, 2, 3], "t2": [4, 5]}, {})
