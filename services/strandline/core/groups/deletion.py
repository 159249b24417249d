"""How people delete groups and committed offsets (G30)."""

from __future__ import annotations

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.groups.changes import Changes
from strandline.core.groups.group import Group
from strandline.core.groups.membership_messages import (
    DeletedOffset,
    DeleteGroup,
    GroupDeleted,
    OffsetDelete,
    OffsetsDeleted,
)
from strandline.core.groups.records import StagedOffsetKey
from strandline.core.groups.subscriptions import Subscriptions
from strandline.core.types import TopicPartition


def delete_group(group: Group, request: DeleteGroup, context: Context) -> Decision:
    """Delete a group in which nobody holds anything, with all its offsets."""
    if not request.group_id.strip():
        message = "group_id must not be empty or blank; name the group"
        refusal = Refusal(ErrorCode.INVALID_GROUP_ID, message, field="group_id")
        return Decision(answer=refusal, scope=request.group_id)
    if group.is_gone:
        return Decision(answer=unknown_group(request.group_id), scope=request.group_id)
    if group.members or group.current:
        # A fenced member may go on reading until its lease ends; a group of the same name must not give its partitions.
        who = f"{len(group.members)} members" if group.members else "a removed member whose session is not over"
        message = f"group {request.group_id!r} has {who}; stop its members first"
        return Decision(answer=Refusal(ErrorCode.NON_EMPTY_GROUP, message), scope=request.group_id)
    changes = Changes(group, context.unix_ms)
    delete_rows(changes)
    return Decision(batches=(changes.batch(),), answer=GroupDeleted(group_id=request.group_id), scope=request.group_id)


def delete_rows(changes: Changes) -> None:
    """Delete every row of a group in which nobody holds anything."""
    for tp, _ in changes.group.offset_rows():
        changes.delete_offset(tp)
    for key, _ in changes.group.staged_rows():
        changes.delete_staged(key)
    changes.delete_group()


def delete_offsets(group: Group, request: OffsetDelete, context: Context, subscriptions: Subscriptions) -> Decision:
    """Delete offsets of topics that no member subscribes to; one that is not there is no error."""
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
        results.append(DeletedOffset(tp, refusal))
    batch = changes.batch()
    return Decision(
        batches=(batch,) if batch else (),
        answer=OffsetsDeleted(partitions=tuple(results)),
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
