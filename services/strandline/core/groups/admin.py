"""Deletes groups and committed offsets when an operator requests it (G30)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from strandline.core.coordinator.machine import Batch, Context, Decision, Record
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.groups import messages
from strandline.core.groups.assignors import DEFAULT_ASSIGNOR
from strandline.core.groups.commits import StagingProducers
from strandline.core.groups.group import Changes, Group
from strandline.core.groups.records import ProducerFenceKey, StagedOffsetKey
from strandline.core.groups.targets import Subscriptions
from strandline.core.groups.timers import Timers
from strandline.core.types import TopicPartition


def delete_group(group: Group, request: messages.DeleteGroup, context: Context) -> Decision:
    """Delete a group whose members hold nothing, with all its offsets."""
    if not request.group_id.strip():
        message = "group_id must not be empty or blank; name the group"
        refusal = Refusal(ErrorCode.INVALID_GROUP_ID, message, field="group_id")
        return Decision(answer=refusal, scope=request.group_id)
    if group.is_gone:
        return Decision(answer=unknown_group(request.group_id), scope=request.group_id)
    if group.members or group.current:
        # A fenced member may read until its lease ends; a new group of the same name must not assign its partitions.
        who = f"{len(group.members)} members" if group.members else "a removed member whose session is not over"
        message = f"group {request.group_id!r} has {who}; stop its members first"
        return Decision(answer=Refusal(ErrorCode.NON_EMPTY_GROUP, message), scope=request.group_id)
    changes = Changes(group, context.unix_ms)
    delete_rows(changes)
    return Decision(
        batches=(changes.batch(),), answer=messages.GroupDeleted(group_id=request.group_id), scope=request.group_id
    )


def delete_rows(changes: Changes) -> None:
    """Delete every row of a group whose members hold nothing."""
    for tp, _ in changes.group.offset_rows():
        changes.delete_offset(tp)
    for key, _ in changes.group.staged_rows():
        changes.delete_staged(key)
    changes.delete_group()


def delete_offsets(
    group: Group, request: messages.OffsetDelete, context: Context, subscriptions: Subscriptions
) -> Decision:
    """Delete offsets of topics that no member subscribes to; deleting a missing offset is no error."""
    if group.is_gone:
        return Decision(answer=unknown_group(request.group_id), scope=request.group_id)
    subscribed = frozenset[str]().union(
        *(subscriptions.topics_of(said, context.topics) for said in group.members.values())
    )
    changes = Changes(group, context.unix_ms)
    results = []
    for tp in request.partitions:
        refusal = None
        if tp.topic_id in subscribed:
            message = f"members of group {request.group_id!r} subscribe to this topic; stop them first"
            refusal = Refusal(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, message, field="topics")
        else:
            delete_offsets_of(changes, tp)
        results.append(messages.DeletedOffset(tp, refusal))
    batch = changes.batch()
    return Decision(
        batches=(batch,) if batch else (),
        answer=messages.OffsetsDeleted(partitions=tuple(results)),
        scope=request.group_id,
    )


def delete_offsets_of(changes: Changes, tp: TopicPartition) -> None:
    """Delete what a group has committed for one partition, and what open transactions are to commit for it (G30)."""
    group = changes.group
    if tp.partition in group.offsets.get(tp.topic_id, {}):
        changes.delete_offset(tp)
    for producer_id in group.staged.get(tp, {}):
        changes.delete_staged(StagedOffsetKey(group.group_id, *tp, producer_id))


def unknown_group(group_id: str) -> Refusal:
    """GROUP_ID_NOT_FOUND."""
    message = f"there is no group {group_id!r}; list the groups that there are"
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, message, field="group_id")


# ---- descriptions
# Descriptions of groups for operators (G11).

_PROTOCOL, _TYPE = "consumer", "Consumer"


def list_groups(groups: Iterable[Group], request: messages.ListGroups) -> Decision:
    """The groups of this partition that match the filters, by name."""
    states = {state.lower() for state in request.states}
    types = {kind.lower() for kind in request.types}
    found = sorted(
        messages.ListedGroup(group.group_id, _PROTOCOL, group.state, _TYPE)
        for group in groups
        if (not states or group.state.lower() in states) and (not types or _TYPE.lower() in types)
    )
    return Decision(answer=messages.GroupsListed(groups=tuple(found)))


def describe(group: Group, request: messages.DescribeGroup, timers: Timers, now_ms: int) -> Decision:
    """One group with all its members."""
    if group.is_gone:
        return Decision(answer=unknown_group(request.group_id), scope=request.group_id)
    answer = messages.GroupDescribed(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.target.assignor if group.target else DEFAULT_ASSIGNOR,
        members=tuple(_member(group, member_id, timers, now_ms) for member_id in sorted(group.members)),
    )
    return Decision(answer=answer, scope=request.group_id)


def _member(group: Group, member_id: str, timers: Timers, now_ms: int) -> messages.DescribedMember:
    current = group.current[member_id]
    member = (group.group_id, member_id)
    heard_ms, committed_ms = timers.last_heartbeat_ms.get(member), timers.last_commit_ms.get(member)
    return messages.DescribedMember(
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


# ---- retention
# When committed offsets, groups, and fences of producers expire (G29, X16).


def expire(changes: Changes, subscribed: Collection[str], unix_ms: int, retention_ms: int) -> None:
    """Delete the expired offsets, and the group itself if nothing is left of it."""
    group = changes.group
    expired = list(_expired(group, subscribed, unix_ms, retention_ms))
    for tp in expired:
        changes.delete_offset(tp)
    n_offsets = sum(len(of_topic) for of_topic in group.offsets.values())
    # `current` too: a member that was removed may read until its lease ends, as in `delete_group`.
    if not group.members and not group.current and not group.staged and n_offsets == len(expired):
        delete_rows(changes)


def _expired(group: Group, subscribed: Collection[str], unix_ms: int, retention_ms: int) -> Iterator[TopicPartition]:
    since_ms = group.value.empty_since_ms if group.value else None
    # Counted from when the group became empty as well: the last commit of a quiet topic may be older than the
    # retention, and a consumer that stopped for an hour would lose its position (KIP-211).
    if not group.members and since_ms is not None and unix_ms - since_ms < retention_ms:
        return
    for tp, row in group.offset_rows():
        if tp in group.staged:
            # An open transaction has staged an offset for it; without the row an abort would leave no committed offset.
            continue
        if tp.topic_id not in subscribed and unix_ms - row.commit_ms >= retention_ms:
            yield tp


def drop_topics(changes: Changes, topic_ids: Collection[str]) -> None:
    """Delete the offsets of topics that are deleted."""
    group = changes.group
    for topic_id in topic_ids:
        staged = {tp.partition for tp in group.staged if tp.topic_id == topic_id}
        for partition in sorted(group.offsets.get(topic_id, {}).keys() | staged):
            delete_offsets_of(changes, TopicPartition(topic_id, partition))


def stale_fences(producers: StagingProducers, unix_ms: int, retention_ms: int) -> Batch:
    """The deletions of fences that were not used for so long (X16): no request of such a producer can still come."""
    return tuple(
        Record(ProducerFenceKey(producer_id))
        for producer_id, fence in producers.fences.items()
        if unix_ms - fence.update_ms >= retention_ms and producer_id not in producers.staged
    )
