"""When a group gets a new target, and the rows that it is (G4, G16)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.core.coordinator.machine import TopicDirectory
from strandline.core.groups.assignment import AssignmentInput, ComputedTarget, chosen_assignor
from strandline.core.groups.changes import Changes
from strandline.core.groups.group import Group
from strandline.core.groups.records import MemberValue, TargetEpochKey, TargetEpochValue, TargetKey, TargetValue
from strandline.core.groups.subscribers import Subscriber
from strandline.core.groups.subscriptions import Subscriptions, entries_of


@dataclass(frozen=True, slots=True)
class TargetTaken:
    """Note of a decision that computes a target or hands that to a worker: when the next may begin."""

    group_id: str
    epoch: int
    is_work: bool = False


def needs_target(group: Group) -> bool:
    """Whether the newest complete target is not the one for the group's epoch."""
    return bool(group.members) and (group.epoch > group.target_epoch or group.is_torn)


def input_for(
    group: Group, epoch: int, members: Mapping[str, MemberValue], subscriptions: Subscriptions, topics: TopicDirectory
) -> AssignmentInput:
    """What the target of ``epoch`` follows from, when ``members`` are the group's."""
    # Most members of a group have one subscription.
    resolved: dict[tuple[tuple[str, ...], str | None], frozenset[str]] = {}
    subscribers = []
    for member_id, said in members.items():
        subscription = (said.topic_names, said.topic_regex)
        if subscription not in resolved:
            resolved[subscription] = subscriptions.topics_of(said, topics)
        name = said.instance_id or member_id
        subscribers.append(Subscriber(name, member_id, said.rack_id, resolved[subscription]))
    topic_ids = frozenset[str]().union(*resolved.values())
    return AssignmentInput(
        group_id=group.group_id,
        group_epoch=epoch,
        assignor=chosen_assignor(said.assignor for said in members.values()),
        subscribers=tuple(sorted(subscribers)),
        topics=entries_of(topic_ids, topics),
        previous={member_id: group.target_of(member_id) for member_id in members},
        topics_digest=subscriptions.digest(members.values(), topics),
    )


def write(changes: Changes, computed: ComputedTarget) -> None:
    """The rows of a target: those that differ, then the epoch that makes them count."""
    group = changes.group
    for member_id, partitions in computed.target.items():
        row = group.targets.get(member_id)
        if row is None or row.partitions != partitions or row.epoch > group.target_epoch:
            key = TargetKey(group.group_id, member_id)
            changes.put(key, TargetValue(computed.group_epoch, partitions))
    value = TargetEpochValue(computed.group_epoch, computed.assignor, computed.topics_digest)
    changes.put(TargetEpochKey(group.group_id), value)
