"""Which heartbeats are accepted: their fields, their sender, and their epoch (G19, T70, T103)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.groups.assignors import ASSIGNORS
from strandline.core.groups.group import Group
from strandline.core.groups.messages import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerGroupHeartbeat, GroupSettings
from strandline.core.groups.records import CurrentValue, MemberState
from strandline.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """The place in the group that a heartbeat is for."""

    is_new: bool = False
    """It joins as a new member."""
    replaces: str | None = None
    """The static member that left and that it replaces."""


_OWN = GroupPlace()
"""A member keeps its place."""


def invalid(field: str, rule: str) -> Refusal:
    """INVALID_REQUEST for one field."""
    return Refusal(ErrorCode.INVALID_REQUEST, f"{field} {rule}", field=field, rule=rule)


def refusal_of_fields(request: ConsumerGroupHeartbeat, settings: GroupSettings) -> Refusal | None:
    """Why the fields of this heartbeat are invalid; None if they are valid."""
    if not request.group_id.strip():
        return invalid("group_id", "must not be empty or blank; name the group")
    if not request.member_id:
        return invalid("member_id", "must not be empty; choose a UUID and keep it")
    if request.instance_id == "":
        return invalid("instance_id", "must not be empty; leave it out for a member without one")
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        return invalid("member_epoch", "must be -2, -1, 0 or the epoch of the last answer")
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return invalid("instance_id", "must be given with member_epoch -2; leave with -1 without one")
    if request.member_epoch == JOIN_EPOCH and (refusal := _refusal_of_join(request)) is not None:
        return refusal
    return _refusal_of_choices(request, settings)


def _refusal_of_join(request: ConsumerGroupHeartbeat) -> Refusal | None:
    if request.rebalance_timeout_ms is None:
        return invalid("rebalance_timeout_ms", "must be given with member_epoch 0")
    if request.topic_partitions is None or request.topic_partitions:
        return invalid("topic_partitions", "must be given and empty with member_epoch 0: a join holds nothing")
    if not request.subscribed_topic_names and not request.subscribed_topic_regex:
        return invalid("subscribed_topic_names", "or subscribed_topic_regex must be given with member_epoch 0")
    return None


def _refusal_of_choices(request: ConsumerGroupHeartbeat, settings: GroupSettings) -> Refusal | None:
    session_ms, rebalance_ms = request.session_timeout_ms, request.rebalance_timeout_ms
    least, most = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if session_ms is not None and not least <= session_ms <= most:
        return invalid("session_timeout_ms", f"is {session_ms} and must be from {least} to {most}")
    if rebalance_ms is not None and rebalance_ms <= 0:
        return invalid("rebalance_timeout_ms", f"is {rebalance_ms} and must be above 0")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        names = ", ".join(sorted(ASSIGNORS))
        message = f"server_assignor {request.server_assignor!r} does not exist; use one of: {names}"
        return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, message, field="server_assignor")
    return None


def place_of(group: Group, request: ConsumerGroupHeartbeat, settings: GroupSettings) -> GroupPlace | Refusal:
    """The place in the group that a heartbeat other than a leaving one is for."""
    if request.member_epoch == JOIN_EPOCH:
        return _place_to_join(group, request, settings)
    refusal = refusal_of_sender(group, request.member_id, request.instance_id)
    if refusal is not None:
        return refusal
    return _refusal_of_epoch(group.current[request.member_id], request) or _OWN


def _place_to_join(group: Group, request: ConsumerGroupHeartbeat, settings: GroupSettings) -> GroupPlace | Refusal:
    member_id, instance_id = request.member_id, request.instance_id
    holder = group.instances.get(instance_id) if instance_id is not None else None
    if holder is not None and holder != member_id:
        # Only a place that was left is free. Otherwise a second process that was started by mistake would take the
        # partitions that the first one reads.
        if group.current[holder].state is MemberState.AWAY:
            return GroupPlace(replaces=holder)
        message = f"instance_id {instance_id!r} is in use by member {holder}; wait until it has left or expired"
        return Refusal(ErrorCode.UNRELEASED_INSTANCE_ID, message, field="instance_id")
    said = group.members.get(member_id)
    if said is not None and said.instance_id != instance_id:
        return invalid("instance_id", "of a member cannot change; leave, and join with another member_id")
    if said is None and len(group.members) >= settings.max_members:
        message = f"the group has {len(group.members)} members, which is the most it may have; run fewer"
        return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    return GroupPlace(is_new=said is None)


def refusal_of_sender(group: Group, member_id: str, instance_id: str | None) -> Refusal | None:
    """Why the sender is not a member; None if it is one."""
    if instance_id is not None and (holder := group.instances.get(instance_id)) not in (None, member_id):
        message = f"instance_id {instance_id!r} belongs to member {holder} now; stop this one"
        return Refusal(ErrorCode.FENCED_INSTANCE_ID, message, field="instance_id")
    said = group.members.get(member_id)
    if said is None and group.is_fenced(member_id):
        message = f"member {member_id} did not give up its partitions in time; drop them and join with epoch 0"
        return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, message)
    if said is None or (instance_id is not None and said.instance_id != instance_id):
        message = f"group {group.group_id!r} has no member {member_id}; join with member_epoch 0"
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message, field="member_id")
    return None


def _refusal_of_epoch(current: CurrentValue, request: ConsumerGroupHeartbeat) -> Refusal | None:
    given, owned = request.member_epoch, request.topic_partitions
    if current.state is MemberState.AWAY:
        return _fenced(f"the member left with -2; join with member_epoch 0, not {given}")
    if given == current.member_epoch:
        stranger = _first_not_in(owned or (), {each.tp for each in current.held}) if owned else None
        return _fenced(f"topic_partitions has {stranger}, which the member was never given") if stranger else None
    assigned = {each.tp for each in current.assigned}
    if given == current.previous_epoch and owned is not None and _first_not_in(owned, assigned) is None:
        # The answer with the raised epoch was lost.
        return None
    return _fenced(f"member_epoch is {given} and the member's is {current.member_epoch}")


def _fenced(message: str) -> Refusal:
    return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"{message}; drop all partitions and join with epoch 0")


def _first_not_in(owned: Collection[TopicPartition], held: Collection[TopicPartition]) -> TopicPartition | None:
    return next((tp for tp in owned if tp not in held), None)
