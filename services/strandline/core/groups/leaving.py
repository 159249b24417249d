"""How members go: by leaving, by silence, or by holding on to what they must give up (G21)."""

from __future__ import annotations

from dataclasses import replace

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.groups.changes import Changes
from strandline.core.groups.group import Group
from strandline.core.groups.heartbeat_rules import refusal_of_sender
from strandline.core.groups.membership_messages import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeat,
    HeartbeatAnswered,
)
from strandline.core.groups.records import CurrentKey, CurrentValue, MemberKey, MemberState, TargetKey
from strandline.core.groups.timers import HeartbeatTaken


def remove(changes: Changes, member_id: str, *, is_replaced: bool = False) -> None:
    """Delete a member's rows, which frees its partitions at once; the group needs a new target, unless another takes
    the member's place."""
    group_id = changes.group.group_id
    changes.put(MemberKey(group_id, member_id), None)
    changes.put(TargetKey(group_id, member_id), None)
    changes.put(CurrentKey(group_id, member_id), None)
    if not is_replaced:
        changes.raise_epoch()


def fence(changes: Changes, member_id: str) -> None:
    """Remove a member whose rebalance time-out is over. Its partitions stay with it, for the lease by which it may go
    on reading is over only with its session (G22)."""
    group = changes.group
    row, said = group.current[member_id], group.members[member_id]
    remove(changes, member_id)
    kept = CurrentValue(
        row.member_epoch,
        row.previous_epoch,
        MemberState.FENCED,
        revoking=tuple(sorted(row.held)),
        lease_ms=said.session_timeout_ms,
    )
    changes.put(CurrentKey(group.group_id, member_id), kept)


def release(changes: Changes, member_id: str) -> None:
    """The lease of a fenced member is over: others can have its partitions."""
    changes.put(CurrentKey(changes.group.group_id, member_id), None)


def leave(group: Group, request: ConsumerGroupHeartbeat, context: Context) -> Decision:
    """Decide a heartbeat with epoch -1 or -2."""
    changes = Changes(group, context.unix_ms)
    member_id = request.member_id
    session_timeout_ms: int | None = None
    if request.member_epoch == LEAVE_EPOCH and group.is_fenced(member_id):
        release(changes, member_id)
    else:
        refusal = _refusal(group, request)
        if refusal is not None:
            return Decision(answer=refusal, scope=request.group_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            session_timeout_ms = group.members[member_id].session_timeout_ms
            step_aside(changes, member_id)
        else:
            remove(changes, member_id)
    batch = changes.batch()
    return Decision(
        batches=(batch,) if batch else (),
        answer=HeartbeatAnswered(
            member_id=member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
            session_timeout_ms=session_timeout_ms or 0,
            group_epoch=changes.value.group_epoch,
        ),
        scope=request.group_id,
        taken=(HeartbeatTaken(group.group_id, member_id, session_timeout_ms, request.sequence),),
    )


def step_aside(changes: Changes, member_id: str) -> None:
    """A static member restarts: it keeps its assignment, without a new epoch, and gives up what it was asked for."""
    row = changes.group.current[member_id]
    changes.put(CurrentKey(changes.group.group_id, member_id), replace(row, state=MemberState.AWAY, revoking=()))


def _refusal(group: Group, request: ConsumerGroupHeartbeat) -> Refusal | None:
    if request.instance_id is not None and request.instance_id not in group.instances:
        message = f"no member of group {group.group_id!r} has instance_id {request.instance_id!r}; nothing to leave"
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message, field="instance_id")
    return refusal_of_sender(group, request.member_id, request.instance_id)
