"""Which committed offsets are taken, and what is written for them (G20, G26, G27)."""

from __future__ import annotations

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.coordinator.records import Record
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.group_messages import (
    CommittedPartition,
    OffsetCommit,
    OffsetsCommitted,
    OffsetToCommit,
    TxnOffsetCommit,
)
from strandline.core.groups.arrival import late_copy, refusal_of_epoch
from strandline.core.groups.group import Group
from strandline.core.groups.heartbeat_rules import refusal_of_sender
from strandline.core.groups.records import CurrentValue, MemberState, OffsetKey, OffsetValue
from strandline.core.groups.settings import GroupSettings
from strandline.core.groups.timers import CommitTaken, Timers
from strandline.core.types import TopicPartition


def commit(group: Group, request: OffsetCommit, context: Context, timers: Timers, settings: GroupSettings) -> Decision:
    """Decide a commit; ``group`` is an empty one if there is none by this name."""
    refusal = refusal_of_epoch(request.coordinator_epoch, context.coordinator_epoch)
    refusal = refusal or refusal_of_committer(group, request)
    if refusal is not None:
        return Decision(answer=refusal, scope=request.group_id)
    if timers.is_late_commit((request.group_id, request.member_id), request.sequence):
        return Decision(answer=late_copy(request.sequence), scope=request.group_id)
    order = group.top_order + 1
    records: list[Record] = []
    results: list[CommittedPartition] = []
    for each in request.offsets:
        refused = refusal_of_offset(each, context, settings) or refusal_of_owner(group, request, each.tp)
        results.append(CommittedPartition(each.tp, refused))
        if refused is None:
            value = OffsetValue(each.offset, each.leader_epoch, each.metadata, context.unix_ms, order)
            records.append(Record(OffsetKey(request.group_id, *each.tp), value))
    is_member = request.member_epoch is not None
    return Decision(
        batches=(tuple(records),) if records else (),
        answer=OffsetsCommitted(partitions=tuple(results)),
        scope=request.group_id,
        taken=(CommitTaken(request.group_id, request.member_id, request.sequence),) if is_member else None,
    )


def refusal_of_committer(group: Group, request: OffsetCommit | TxnOffsetCommit) -> Refusal | None:
    """Why this sender commits nothing for the group; None: each partition is looked at."""
    if not request.group_id.strip():
        message = "group_id must not be empty or blank; name the group"
        return Refusal(ErrorCode.INVALID_GROUP_ID, message, Outcome.NOT_APPENDED, field="group_id")
    if request.member_epoch is None:
        return _refusal_of_stranger(group)
    refusal = refusal_of_sender(group, request.member_id, request.instance_id)
    if refusal is not None and refusal.code is ErrorCode.FENCED_MEMBER_EPOCH:
        # Commits of a member that was removed are refused as those of a stranger; its heartbeat hears more.
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, refusal.message, Outcome.NOT_APPENDED)
    return refusal


def _refusal_of_stranger(group: Group) -> Refusal | None:
    if not group.members:
        return None
    message = (
        f"group {group.group_id!r} has {len(group.members)} members; only they commit. Without generation_id_or_"
        "member_epoch offsets are taken while the group is empty: stop its members first"
    )
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message, Outcome.NOT_APPENDED, field="member_id")


def refusal_of_offset(each: OffsetToCommit, context: Context, settings: GroupSettings) -> Refusal | None:
    """Why this is no offset that a group can have; None if it is one."""
    if each.offset < 0:
        message = f"committed_offset is {each.offset} and must be 0 or more"
        return Refusal(ErrorCode.INVALID_REQUEST, message, Outcome.NOT_APPENDED, field="committed_offset")
    size, most = len(each.metadata.encode()), settings.max_metadata_bytes
    if size > most:
        message = f"committed_metadata has {size} bytes, and {most} are allowed; shorten it"
        return Refusal(ErrorCode.OFFSET_METADATA_TOO_LARGE, message, Outcome.NOT_APPENDED, field="committed_metadata")
    topic = context.topics.by_id(each.tp.topic_id)
    if topic is None:
        message = f"this coordinator knows no topic with id {each.tp.topic_id}; refresh metadata"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, message, Outcome.NOT_APPENDED, field="topic_id")
    if not 0 <= each.tp.partition < topic.partition_count:
        message = f"topic {topic.name!r} has {topic.partition_count} partitions and no partition {each.tp.partition}"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, Outcome.NOT_APPENDED, field="partition_index")
    return None


def refusal_of_owner(group: Group, request: OffsetCommit | TxnOffsetCommit, tp: TopicPartition) -> Refusal | None:
    """Why the member that sends this may not commit for a partition; None: it may, or nobody's member commits (G20)."""
    if request.member_epoch is None:
        return None
    current = group.current[request.member_id]
    if may_commit(current, group.owners.of(tp), request.member_id, request.member_epoch):
        return None
    message = (
        f"member {request.member_id} does not have {tp.topic_id}-{tp.partition} in epoch {request.member_epoch}; "
        f"its epoch is {current.member_epoch}"
    )
    return Refusal(ErrorCode.STALE_MEMBER_EPOCH, message, Outcome.NOT_APPENDED)


def may_commit(current: CurrentValue, owner: tuple[str, int] | None, member_id: str, given_epoch: int) -> bool:
    """Whether a member commits for a partition: it holds it, and held it already in the epoch it gives (KIP-1251).

    Without the range a commit that crosses a heartbeat would be refused.

    Args:
        current: the member's row.
        owner: who holds the partition, and since which epoch of that member.
        member_id: who commits.
        given_epoch: the epoch in its request.
    """
    if current.state is MemberState.AWAY or owner is None or owner[0] != member_id:
        return False
    return owner[1] <= given_epoch <= current.member_epoch
