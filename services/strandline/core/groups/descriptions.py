"""What people are shown of groups (G11)."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.core.coordinator.machine import Decision
from strandline.core.groups.assignment import DEFAULT_ASSIGNOR
from strandline.core.groups.deletion import unknown_group
from strandline.core.groups.group import Group
from strandline.core.groups.membership_messages import (
    DescribedMember,
    DescribeGroup,
    GroupDescribed,
    GroupsListed,
    ListedGroup,
    ListGroups,
)
from strandline.core.groups.timers import Timers

_PROTOCOL, _TYPE = "consumer", "Consumer"


def list_groups(groups: Iterable[Group], request: ListGroups) -> Decision:
    """The groups of this partition that match the filters, by name."""
    states = {state.lower() for state in request.states}
    types = {kind.lower() for kind in request.types}
    found = sorted(
        ListedGroup(group.group_id, _PROTOCOL, group.state, _TYPE)
        for group in groups
        if (not states or group.state.lower() in states) and (not types or _TYPE.lower() in types)
    )
    return Decision(answer=GroupsListed(groups=tuple(found)))


def describe(group: Group, request: DescribeGroup, timers: Timers, now_ms: int) -> Decision:
    """One group with all its members."""
    if group.is_gone:
        return Decision(answer=unknown_group(request.group_id), scope=request.group_id)
    answer = GroupDescribed(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.target.assignor if group.target else DEFAULT_ASSIGNOR,
        members=tuple(_member(group, member_id, timers, now_ms) for member_id in sorted(group.members)),
    )
    return Decision(answer=answer, scope=request.group_id)


def _member(group: Group, member_id: str, timers: Timers, now_ms: int) -> DescribedMember:
    current = group.current[member_id]
    member = (group.group_id, member_id)
    heard_ms, committed_ms = timers.last_heartbeat_ms.get(member), timers.last_commit_ms.get(member)
    return DescribedMember(
        member_id=member_id,
        said=group.members[member_id],
        member_epoch=current.member_epoch,
        member_state=current.state,
        assignment=tuple(each.tp for each in current.assigned),
        revoking=tuple(each.tp for each in current.revoking),
        target_assignment=group.target_of(member_id),
        last_heartbeat_age_ms=None if heard_ms is None else now_ms - heard_ms,
        last_commit_age_ms=None if committed_ms is None else now_ms - committed_ms,
    )
