"""What is answered to a question for committed offsets (G28, X17)."""

from __future__ import annotations

from strandline.core.coordinator.machine import Decision
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.group_messages import FetchedOffset, OffsetFetch, OffsetsFetched
from strandline.core.groups.group import Group
from strandline.core.groups.heartbeat_rules import refusal_of_sender
from strandline.core.types import TopicPartition


def fetch_offsets(group: Group, request: OffsetFetch) -> Decision:
    """Decide an OffsetFetch; a group that is not known has no offsets, which is no error."""
    refusal = _refusal(group, request)
    if refusal is not None:
        return Decision(answer=refusal, scope=request.group_id)
    wanted = request.partitions
    if wanted is None:
        # What has only been staged is named too if it is to be stable: to leave it out would say that there is none.
        staged = group.staged.keys() if request.require_stable else ()
        wanted = tuple(sorted({tp for tp, _ in group.offset_rows()}.union(staged)))
    found = tuple(_fetched(group, tp, require_stable=request.require_stable) for tp in wanted)
    return Decision(answer=OffsetsFetched(partitions=found), scope=request.group_id, barrier=request.require_stable)


def _fetched(group: Group, tp: TopicPartition, *, require_stable: bool) -> FetchedOffset:
    if require_stable and tp in group.staged:
        message = f"an open transaction is to commit an offset of partition {tp.partition}; ask again when it is over"
        return FetchedOffset(tp, refusal=Refusal(ErrorCode.UNSTABLE_OFFSET_COMMIT, message))
    value = group.offsets.get(tp.topic_id, {}).get(tp.partition)
    if value is None:
        return FetchedOffset(tp)
    return FetchedOffset(tp, value.offset, value.leader_epoch, value.metadata, value.commit_ms)


def _refusal(group: Group, request: OffsetFetch) -> Refusal | None:
    if not request.group_id.strip():
        message = "group_id must not be empty or blank; name the group"
        return Refusal(ErrorCode.INVALID_GROUP_ID, message, field="group_id")
    if request.member_id is None or request.member_epoch is None:
        return None
    refusal = refusal_of_sender(group, request.member_id, None)
    if refusal is not None:
        return refusal
    epoch = group.current[request.member_id].member_epoch
    if request.member_epoch == epoch:
        return None
    message = f"member_epoch is {request.member_epoch} and the member's is {epoch}; ask again after a heartbeat"
    return Refusal(ErrorCode.STALE_MEMBER_EPOCH, message, field="member_epoch")
