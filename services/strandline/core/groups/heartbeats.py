"""Decides heartbeats: a member joins, changes its subscription, or moves towards its target (G17, G19)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.groups.assignors import computed
from strandline.core.groups.group import Changes, Group
from strandline.core.groups.heartbeat_rules import GroupPlace, place_of, refusal_of_fields, refusal_of_sender
from strandline.core.groups.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeat,
    GroupSettings,
    HeartbeatAnswered,
)
from strandline.core.groups.records import CurrentKey, CurrentValue, MemberKey, MemberState, MemberValue, TargetKey
from strandline.core.groups.targets import Subscriptions, TargetTaken, input_for, next_state, write
from strandline.core.groups.timers import HeartbeatTaken, RevocationAsked, Timers
from strandline.core.types import TopicPartition

# ---- arrival
# Whether a member's request is for this coordinator epoch, and not a late copy of an earlier one (G19, TR41).


def refusal_of_epoch(given: int | None, coordinator_epoch: int) -> Refusal | None:
    """The refusal of a request for another coordinator epoch; None if it names this one or none."""
    if given is None or given == coordinator_epoch:
        return None
    message = f"coordinator_epoch is {given} and this coordinator's is {coordinator_epoch}; refresh metadata"
    return Refusal(ErrorCode.NOT_COORDINATOR, message, Outcome.NOT_APPENDED, field="coordinator_epoch")


def late_copy(sequence: int | None) -> Refusal:
    """The answer to a request that arrives after a later one was accepted; its sender no longer waits for it."""
    message = f"sequence {sequence} is not above that of a request of this member that was taken before"
    return Refusal(ErrorCode.REQUEST_TIMED_OUT, message, field="sequence")


# ---- leaving
# How members are removed: they leave, fall silent, or do not give up partitions in time (G21).


def remove(changes: Changes, member_id: str, *, is_replaced: bool = False) -> None:
    """Delete a member's rows, which frees its partitions at once; the group needs a new target, unless another member
    replaces this one."""
    group_id = changes.group.group_id
    changes.put(MemberKey(group_id, member_id), None)
    changes.put(TargetKey(group_id, member_id), None)
    changes.put(CurrentKey(group_id, member_id), None)
    if not is_replaced:
        changes.raise_epoch()


def fence(changes: Changes, member_id: str) -> None:
    """Remove a member whose rebalance time-out is over. It keeps its partitions, because the lease under which it may
    keep reading ends only with its session (G22)."""
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
    """The lease of a fenced member is over, so other members can get its partitions."""
    changes.put(CurrentKey(changes.group.group_id, member_id), None)


def leave(group: Group, request: ConsumerGroupHeartbeat, context: Context) -> Decision:
    """Decide a heartbeat with epoch -1 or -2."""
    changes = Changes(group, context.unix_ms)
    member_id = request.member_id
    session_timeout_ms: int | None = None
    # It says itself that it reads no more, so its partitions need not wait for the end of its lease.
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
    """A static member restarts: it keeps its assignment and epoch, and gives up what it was asked to."""
    row = changes.group.current[member_id]
    changes.put(CurrentKey(changes.group.group_id, member_id), replace(row, state=MemberState.AWAY, revoking=()))


def _refusal(group: Group, request: ConsumerGroupHeartbeat) -> Refusal | None:
    if request.instance_id is not None and request.instance_id not in group.instances:
        message = f"no member of group {group.group_id!r} has instance_id {request.instance_id!r}; nothing to leave"
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message, field="instance_id")
    return refusal_of_sender(group, request.member_id, request.instance_id)


_NOTHING = CurrentValue(0, 0, MemberState.STABLE)


@dataclass(frozen=True, slots=True)
class HeartbeatParts:
    """What heartbeats are decided with besides the group."""

    timers: Timers
    settings: GroupSettings
    subscriptions: Subscriptions


def heartbeat(group: Group, request: ConsumerGroupHeartbeat, context: Context, parts: HeartbeatParts) -> Decision:
    """Decide a heartbeat; ``group`` is empty if no group has this name."""
    refusal = refusal_of_fields(request, parts.settings)
    refusal = refusal or refusal_of_epoch(request.coordinator_epoch, context.coordinator_epoch)
    if refusal is not None:
        return Decision(answer=refusal, scope=request.group_id)
    # A report from before a partition was assigned would pass for giving it up (TR41), and a copy of a join would
    # release everything that its sender holds.
    if parts.timers.is_late_heartbeat((request.group_id, request.member_id), request.sequence):
        return Decision(answer=late_copy(request.sequence), scope=request.group_id)
    if request.member_epoch < JOIN_EPOCH:
        return leave(group, request, context)
    place = place_of(group, request, parts.settings)
    if isinstance(place, Refusal):
        return Decision(answer=place, scope=request.group_id)
    if request.subscribed_topic_regex:
        refusal = parts.subscriptions.refusal_of(request.subscribed_topic_regex)
        if refusal is not None:
            return Decision(answer=refusal, scope=request.group_id)
    if _only_lives(group, request):
        return _as_before(group, request, parts)
    return _Beat(group, request, context, parts, place).decide()


def _only_lives(group: Group, request: ConsumerGroupHeartbeat) -> bool:
    """Whether a member that has reached its target only reports that it is alive, so that no row changes.

    Almost all heartbeats are of this kind, and the full decision costs several times as much.
    """
    if request.member_epoch == JOIN_EPOCH:
        return False
    current = group.current[request.member_id]
    return (
        current.state is MemberState.STABLE
        and request.member_epoch == current.member_epoch == group.target_epoch
        and request.topic_partitions is None
        and not request.says_something
    )


def _as_before(group: Group, request: ConsumerGroupHeartbeat, parts: HeartbeatParts) -> Decision:
    """What `_Beat` decides where `_only_lives` holds."""
    session_timeout_ms = group.members[request.member_id].session_timeout_ms
    return Decision(
        answer=HeartbeatAnswered(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=parts.settings.heartbeat_of(session_timeout_ms),
            session_timeout_ms=session_timeout_ms,
            group_epoch=group.epoch,
        ),
        scope=request.group_id,
        # Nothing is written, so only the barrier shows that this node still coordinates: without it a deposed
        # coordinator would renew the lease of partitions that its successor gives to others (G10, G22).
        barrier=True,
        taken=(HeartbeatTaken(request.group_id, request.member_id, session_timeout_ms, request.sequence),),
    )


class _Beat:
    def __init__(
        self, group: Group, request: ConsumerGroupHeartbeat, context: Context, parts: HeartbeatParts, place: GroupPlace
    ) -> None:
        self._group = group
        self._request = request
        self._context = context
        self._parts = parts
        self._place = place
        self._changes = Changes(group, context.unix_ms)
        self._joins = request.member_epoch == JOIN_EPOCH

    def decide(self) -> Decision:
        request = self._request
        said = self._note_what_was_said()
        target_epoch, target, notes = self._target(said)
        before = self._group.current.get(request.member_id)
        current = self._reconciled(target_epoch, target)
        if current != before:
            self._changes.put(CurrentKey(request.group_id, request.member_id), current)
        batch = self._changes.batch()
        return Decision(
            batches=(batch,) if batch else (),
            answer=self._answer(said, before, current),
            scope=request.group_id,
            barrier=True,
            taken=(
                HeartbeatTaken(
                    request.group_id,
                    request.member_id,
                    said.session_timeout_ms,
                    request.sequence,
                    self._place.replaces,
                ),
                *notes,
            ),
            answered=self._revocation(said, current),
        )

    def _note_what_was_said(self) -> MemberValue:
        """Write the member's reported row and raise the group epoch, if the row has changed (G15)."""
        request = self._request
        known = self._group.members.get(self._place.replaces or request.member_id)
        if self._place.replaces is not None:
            remove(self._changes, self._place.replaces, is_replaced=True)
        base = None if self._joins else known
        said = _merged(base, request, self._parts.settings)
        if self._place.is_new or (known is not None and _subscribes(known) != _subscribes(said)):
            self._changes.raise_epoch()
        if said != known or self._place.replaces is not None:
            self._changes.put(MemberKey(request.group_id, request.member_id), said)
        return said

    def _target(self, said: MemberValue) -> tuple[int, tuple[TopicPartition, ...], tuple[TargetTaken, ...]]:
        """The epoch and partitions that the member goes towards: of a new target if one is computed at once (G16)."""
        group, request, parts = self._group, self._request, self._parts
        replaced = self._place.replaces
        target = group.target_of(replaced or request.member_id)
        is_first = not group.members
        at_once = is_first or parts.settings.assignment_interval_ms == 0
        if self._changes.is_raised and at_once:
            members = {member_id: value for member_id, value in group.members.items() if member_id != replaced}
            members[request.member_id] = said
            given = input_for(
                group, self._changes.value.group_epoch, members, parts.subscriptions, self._context.topics
            )
            if is_first or given.pairs <= parts.settings.inline_pairs:
                found = computed(given)
                write(self._changes, found)
                note = TargetTaken(group.group_id, found.group_epoch)
                return found.group_epoch, found.target[request.member_id], (note,)
        if replaced is not None and replaced in group.targets:
            self._changes.put_target(request.member_id, group.targets[replaced])
        return group.target_epoch, target, ()

    def _reconciled(self, target_epoch: int, target: tuple[TopicPartition, ...]) -> CurrentValue:
        group, request = self._group, self._request
        known, owned = group.current.get(request.member_id), request.topic_partitions
        if self._joins or known is None:
            # A joining member holds nothing; whatever it held before is released first.
            known, owned = _NOTHING, ()
        # Of the old target rows are overwritten, and the new one does not count yet: nothing changes hands (G4).
        if group.is_torn and target_epoch == group.target_epoch:
            return replace(known, member_epoch=known.member_epoch or target_epoch)
        replaced = self._place.replaces

        def is_free(tp: TopicPartition) -> bool:
            return group.owners.is_free_for(tp, request.member_id) or (
                replaced is not None and group.owners.is_free_for(tp, replaced)
            )

        return next_state(known, target_epoch, target, owned, is_free)

    def _answer(self, said: MemberValue, before: CurrentValue | None, current: CurrentValue) -> HeartbeatAnswered:
        assigned = tuple(each.tp for each in current.assigned)
        owned = self._request.topic_partitions
        is_news = self._joins or before is None or before.assigned != current.assigned
        # A revocation is repeated in every answer until it is done, because any of them may be lost.
        must_say = is_news or current.state is MemberState.UNREVOKED or (owned is not None and {*owned} != {*assigned})
        return HeartbeatAnswered(
            member_id=self._request.member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=self._parts.settings.heartbeat_of(said.session_timeout_ms),
            session_timeout_ms=said.session_timeout_ms,
            group_epoch=self._changes.value.group_epoch,
            assignment=assigned if must_say else None,
        )

    def _revocation(self, said: MemberValue, current: CurrentValue) -> RevocationAsked | None:
        if current.state is not MemberState.UNREVOKED:
            return None
        return RevocationAsked(self._group.group_id, self._request.member_id, current, said.rebalance_timeout_ms)


def _merged(known: MemberValue | None, request: ConsumerGroupHeartbeat, settings: GroupSettings) -> MemberValue:
    """The member's row with this heartbeat's fields; a join replaces all of them."""
    base = known or MemberValue(
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms or 0,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
    )
    regex, rack_id = request.subscribed_topic_regex, request.rack_id
    names = request.subscribed_topic_names
    return replace(
        base,
        session_timeout_ms=request.session_timeout_ms or base.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms or base.rebalance_timeout_ms,
        assignor=request.server_assignor or base.assignor,
        # An empty pattern removes it, an absent one keeps it.
        rack_id=(base.rack_id if rack_id is None else rack_id) or None,
        topic_regex=(base.topic_regex if regex is None else regex) or None,
        topic_names=base.topic_names if names is None else tuple(sorted(set(names))),
    )


def _subscribes(said: MemberValue) -> tuple[object, ...]:
    """The part of a member's row that a target depends on."""
    return said.topic_names, said.topic_regex, said.assignor, said.rack_id
