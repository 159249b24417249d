"""How a member comes from what it has to what it is to have (G17), as Kafka's CurrentAssignmentBuilder does it.

Invariant I28: a partition is given only once nobody else holds it, and a member passes to the target's epoch only
once it has given up what it must.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from strandline.core.groups.records import AssignedPartition, CurrentValue, MemberState
from strandline.core.types import TopicPartition


def next_state(
    current: CurrentValue,
    target_epoch: int,
    target: Collection[TopicPartition],
    owned: Collection[TopicPartition] | None,
    is_free: Callable[[TopicPartition], bool],
) -> CurrentValue:
    """The member's next row; ``current`` itself if nothing changes.

    Args:
        current: its row: stable, unrevoked or unreleased.
        target_epoch: the epoch of the group's newest complete target.
        target: the member's partitions in it.
        owned: the partitions that the member reports to hold; None: it reported nothing, which gives nothing up.
        is_free: whether a partition can be given to this member, because no other holds it.
    """
    if current.state is MemberState.UNREVOKED:
        if _holds_any(owned, current.revoking):
            return current
    elif current.state is MemberState.STABLE and current.member_epoch == target_epoch:
        return current
    reached = _towards(current, target_epoch, target, owned, is_free)
    return current if reached == current else reached


def _holds_any(owned: Collection[TopicPartition] | None, partitions: Iterable[AssignedPartition]) -> bool:
    return owned is None or any(each.tp in owned for each in partitions)


def _towards(
    current: CurrentValue,
    target_epoch: int,
    target: Collection[TopicPartition],
    owned: Collection[TopicPartition] | None,
    is_free: Callable[[TopicPartition], bool],
) -> CurrentValue:
    wanted = frozenset(target)
    kept = [each for each in current.assigned if each.tp in wanted]
    revoking = tuple(each for each in current.assigned if each.tp not in wanted)
    if revoking and _holds_any(owned, revoking):
        return CurrentValue(current.member_epoch, current.previous_epoch, MemberState.UNREVOKED, tuple(kept), revoking)
    missing = wanted.difference(each.tp for each in kept)
    given = [AssignedPartition(tp, target_epoch) for tp in missing if is_free(tp)]
    state = MemberState.STABLE if len(given) == len(missing) else MemberState.UNRELEASED
    previous = current.previous_epoch if current.member_epoch == target_epoch else current.member_epoch
    return CurrentValue(target_epoch, previous, state, tuple(sorted(kept + given)))
