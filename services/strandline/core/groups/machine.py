"""The state machine of consumer groups that a coordinator shard drives (G3): who decides what, and what is due when.

Invariant: `apply` alone changes groups; everything else that is kept here may be lost with the shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from strandline.core.coordinator.machine import Context, Decision, Record
from strandline.core.errors import Refusal
from strandline.core.groups import admin, messages
from strandline.core.groups.admin import delete_group, delete_offsets, drop_topics, expire, stale_fences
from strandline.core.groups.assignors import ComputedTarget, computed
from strandline.core.groups.commits import StagingProducers, commit, end_transaction, fetch_offsets, stage
from strandline.core.groups.group import Changes, Group
from strandline.core.groups.happenings import GroupObserver, Happenings
from strandline.core.groups.heartbeats import HeartbeatParts, fence, heartbeat, release, remove
from strandline.core.groups.records import (
    CurrentKey,
    GroupKey,
    MemberKey,
    MemberState,
    OffsetKey,
    ProducerFenceKey,
    StagedOffsetKey,
    TargetEpochKey,
    TargetKey,
)
from strandline.core.groups.targets import PatternEngine, Subscriptions, TargetTaken, input_for, needs_target, write
from strandline.core.groups.timers import CommitTaken, HeartbeatTaken, RevocationAsked, Timers
from strandline.core.log.effects import Effect

_KEYS = (GroupKey, MemberKey, TargetEpochKey, TargetKey, CurrentKey, OffsetKey, StagedOffsetKey)
_Commit = messages.OffsetCommit | messages.TxnOffsetCommit


@dataclass(frozen=True, slots=True)
class MembersGone:
    """Note of a tick: these members have no deadlines any more; ``fenced`` ones keep their session for their lease."""

    group_id: str
    gone: tuple[str, ...]
    fenced: tuple[str, ...] = ()


class GroupMachine:
    """`core.coordinator.machine.Machine` for consumer groups."""

    def __init__(
        self,
        engine: PatternEngine,
        settings: messages.GroupSettings | None = None,
        observer: GroupObserver | None = None,
    ) -> None:
        self.settings = settings or messages.GroupSettings()
        self.groups: dict[str, Group] = {}
        self.producers = StagingProducers()
        self.timers = Timers(self.settings.forgotten_after_ms)
        self.subscriptions = Subscriptions(engine, self.settings.max_pattern_bytes)
        self._parts = HeartbeatParts(self.timers, self.settings, self.subscriptions)
        # Groups that need a target; groups whose topics may have changed since their target.
        self._behind: set[str] = set()
        self._unchecked: set[str] = set()
        self._topics_version: int | None = None
        # Topics with offsets that this node has seen: if one is missing later it was deleted. A topic that was never
        # seen may be newer than this node's metadata.
        self._seen_topics: set[str] = set()
        # Epoch of the target that a worker computes, and when the last target was taken, by group.
        self._computing: dict[str, int] = {}
        self._assigned_ms: dict[str, int] = {}
        self._retention_queue: list[str] = []
        self._next_retention_ms: int | None = None
        self._next_fences_ms: int | None = None
        self._observer = observer
        self._happenings = Happenings(observer) if observer is not None else None
        # Set once the log is loaded: what came before is not reported.
        self._is_shown = False

    def group(self, group_id: str) -> Group:
        """The group of this name; if there is none, an empty one that is not stored."""
        return self.groups.get(group_id) or Group(group_id)

    def apply(self, record: Record) -> None:
        """Apply one row to the state (`Machine.apply`)."""
        self.producers.apply(record)
        if isinstance(record.key, ProducerFenceKey):
            return
        assert isinstance(record.key, _KEYS), f"a record of no group: {record.key}"
        group_id = record.key.group_id
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        if self._happenings is not None and self._observer is not None and self._is_shown:
            if isinstance(record.key, OffsetKey):
                self._observer.committed(group_id, record.key.tp)
            elif not isinstance(record.key, StagedOffsetKey):
                member_id = record.key.member_id if isinstance(record.key, CurrentKey) else None
                self._happenings.about_to_change(group, member_id)
        group.apply(record)
        if group.is_gone:
            self._forget(group_id)
        elif not isinstance(record.key, OffsetKey | StagedOffsetKey | CurrentKey):
            if needs_target(group):
                self._behind.add(group_id)
            else:
                self._behind.discard(group_id)
            self._unchecked.add(group_id)

    def _forget(self, group_id: str) -> None:
        del self.groups[group_id]
        self._behind.discard(group_id)
        self._unchecked.discard(group_id)
        self._computing.pop(group_id, None)
        self._assigned_ms.pop(group_id, None)

    def _show(self, now_ms: int) -> None:
        """Report what the previous decisions have changed."""
        if self._happenings is not None:
            for group_id in self._happenings.groups:
                self._happenings.show(self.group(group_id), now_ms)

    def _show_refused(self, request: _Commit, answer: object) -> None:
        """Report refused commits, but only of existing groups: made-up names would fill every bound."""
        if self._observer is None or answer is None or request.group_id not in self.groups:
            return
        if isinstance(answer, Refusal):
            refused = [(each.tp, answer) for each in request.offsets]
        else:
            assert isinstance(answer, messages.OffsetsCommitted)
            refused = [(each.tp, each.refusal) for each in answer.partitions if each.refusal is not None]
        for tp, refusal in refused:
            self._observer.commit_refused(request.group_id, tp, refusal.code.name)

    def decide(self, request: object, context: Context) -> Decision:
        """What a request leads to (`Machine.decide`)."""
        self._show(context.now_ms)
        match request:
            case messages.ConsumerGroupHeartbeat():
                return heartbeat(self.group(request.group_id), request, context, self._parts)
            case messages.OffsetCommit():
                decision = commit(self.group(request.group_id), request, context, self.timers, self.settings)
                self._show_refused(request, decision.answer)
                return decision
            case messages.TxnOffsetCommit():
                decision = stage(self.group(request.group_id), self.producers, request, context, self.settings)
                self._show_refused(request, decision.answer)
                return decision
            case messages.TransactionMarked():
                return end_transaction(self.producers, self.group, request, context)
            case messages.OffsetFetch():
                return fetch_offsets(self.group(request.group_id), request)
            case messages.OffsetDelete():
                return delete_offsets(self.group(request.group_id), request, context, self.subscriptions)
            case messages.DeleteGroup():
                return delete_group(self.group(request.group_id), request, context)
            case messages.ListGroups():
                return admin.list_groups(self.groups.values(), request)
            case messages.DescribeGroup():
                return admin.describe(self.group(request.group_id), request, self.timers, context.now_ms)
            case _:
                raise AssertionError(f"a request that no group takes: {request!r}")

    def tick(self, context: Context) -> Sequence[Decision]:
        """Decide what is due (`Machine.tick`): first removals, then targets, at most one decision for each group."""
        self._show(context.now_ms)
        if self._observer is not None:
            self._observer.ticked(self.groups, context)
        # One for each group: all are made from the state before the tick, so a second would not know the first.
        due: dict[str, Decision] = {}
        for group_id, member_ids in self._due_members(context).items():
            due[group_id] = self._members_out(self.groups[group_id], member_ids, context)
        self._topics_changed(context, due)
        for group_id in sorted(self._behind - due.keys()):
            decision = self._target(self.groups[group_id], context)
            if decision is not None:
                due[group_id] = decision
        self._retain(context, due)
        found = [decision for decision in due.values() if decision.batches or decision.work or decision.taken]
        return [*found, *self._fences_out(context)]

    def _due_members(self, context: Context) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for group_id, member_id in self.timers.due(context.now_ms):
            if group_id in self.groups and member_id in self.groups[group_id].current:
                found.setdefault(group_id, []).append(member_id)
            else:
                self.timers.gone((group_id, member_id), context.now_ms)
        return found

    def _members_out(self, group: Group, member_ids: Sequence[str], context: Context) -> Decision:
        changes = Changes(group, context.unix_ms)
        gone: list[str] = []
        fenced: list[str] = []
        for member_id in member_ids:
            member = (group.group_id, member_id)
            if self.timers.session_ends.get(member, context.now_ms) <= context.now_ms:
                gone.append(member_id)
                if group.is_fenced(member_id):
                    release(changes, member_id)
                else:
                    remove(changes, member_id)
                continue
            row, _ = self.timers.rebalance_ends[member]
            fenced.append(member_id)
            # With another row the member has given up in time, and may have been asked for other partitions.
            if group.current[member_id] == row and row.state is MemberState.UNREVOKED:
                fence(changes, member_id)
        batch = changes.batch()
        note = MembersGone(group.group_id, tuple(gone), tuple(fenced))
        return Decision(batches=(batch,) if batch else (), scope=group.group_id, taken=(note,))

    def _topics_changed(self, context: Context, due: dict[str, Decision]) -> None:
        """Deleted topics take their offsets with them; changed ones, and others that a pattern matches, are a reason
        for a new target (G15, G29)."""
        is_new = context.topics.version != self._topics_version
        if is_new:
            self._topics_version = context.topics.version
            self._unchecked.update(self.groups)
        for group_id in sorted(self._unchecked - due.keys()):
            self._unchecked.discard(group_id)
            group = self.groups[group_id]
            changes = Changes(group, context.unix_ms)
            known = group.offsets.keys() | {tp.topic_id for tp in group.staged}
            present = {topic_id for topic_id in known if context.topics.by_id(topic_id) is not None}
            drop_topics(changes, (known - present) & self._seen_topics)
            self._seen_topics |= present
            if group.members and group.target and not needs_target(group):
                digest = self.subscriptions.digest(group.members.values(), context.topics)
                if digest != group.target.topics_digest:
                    changes.raise_epoch()
            if batch := changes.batch():
                due[group_id] = Decision(batches=(batch,), scope=group_id)
        if is_new and not self._unchecked:
            # No group has offsets of the deleted ones any more.
            self._seen_topics = {each for each in self._seen_topics if context.topics.by_id(each) is not None}

    def _target(self, group: Group, context: Context) -> Decision | None:
        group_id = group.group_id
        since_ms = self._assigned_ms.get(group_id)
        if since_ms is not None and context.now_ms - since_ms < self.settings.assignment_interval_ms:
            return None
        if group_id in self._computing:
            # One at a time: if the epoch has risen since, the result is dropped and the next begins.
            return None
        given = input_for(group, group.epoch, group.members, self.subscriptions, context.topics)
        if given.pairs > self.settings.inline_pairs:
            note = TargetTaken(group_id, group.epoch, is_work=True)
            return Decision(work=partial(computed, given), scope=group_id, taken=(note,))
        return self._written(group, computed(given), context)

    def _written(self, group: Group, found: ComputedTarget, context: Context) -> Decision:
        changes = Changes(group, context.unix_ms)
        write(changes, found)
        note = TargetTaken(group.group_id, found.group_epoch)
        return Decision(batches=(changes.batch(),), scope=group.group_id, taken=(note,))

    def computed(self, result: object, context: Context) -> Decision:
        """A worker computed a target (`Machine.computed`); one for a past epoch is dropped."""
        assert isinstance(result, ComputedTarget)
        group = self.groups.get(result.group_id)
        self._computing.pop(result.group_id, None)
        # A member may have left or joined while the worker computed.
        if group is None or group.epoch != result.group_epoch or not needs_target(group):
            return Decision()
        return self._written(group, result, context)

    def _fences_out(self, context: Context) -> list[Decision]:
        if self._next_fences_ms is not None and context.now_ms < self._next_fences_ms:
            return []
        self._next_fences_ms = context.now_ms + self.settings.offsets_retention_check_ms
        batch = stale_fences(self.producers, context.unix_ms, self.settings.fence_retention_ms)
        return [Decision(batches=(batch,), writes=())] if batch else []

    def _retain(self, context: Context, due: dict[str, Decision]) -> None:
        """Check the offsets of a few groups; all groups are checked within a few ticks."""
        if self._next_retention_ms is None or context.now_ms >= self._next_retention_ms:
            self._next_retention_ms = context.now_ms + self.settings.offsets_retention_check_ms
            self._retention_queue = sorted(self.groups, reverse=True)
        left = self.settings.retention_step
        while self._retention_queue and left > 0:
            group_id = self._retention_queue.pop()
            group = self.groups.get(group_id)
            if group is None or group_id in due:
                continue
            left -= 1 + sum(len(of_topic) for of_topic in group.offsets.values())
            changes = Changes(group, context.unix_ms)
            subscribed = frozenset[str]().union(
                *(self.subscriptions.topics_of(said, context.topics) for said in group.members.values())
            )
            expire(changes, subscribed, context.unix_ms, self.settings.offsets_retention_ms)
            if batch := changes.batch():
                due[group_id] = Decision(batches=(batch,), scope=group_id)

    def taken(self, note: object, now_ms: int) -> None:
        """A decision was taken (`Machine.taken`)."""
        assert isinstance(note, tuple)
        for each in note:
            match each:
                case HeartbeatTaken():
                    self.timers.heartbeat(each, now_ms)
                case CommitTaken():
                    self.timers.commit(each, now_ms)
                case MembersGone():
                    for member_id in each.gone:
                        self.timers.gone((each.group_id, member_id), now_ms)
                    for member_id in each.fenced:
                        self.timers.rebalance_ends.pop((each.group_id, member_id), None)
                case TargetTaken():
                    self._assigned_ms[each.group_id] = now_ms
                    if each.is_work:
                        self._computing[each.group_id] = each.epoch
                case _:
                    raise AssertionError(f"a note of no decision: {each!r}")
        self._show(now_ms)

    def committed(self, note: object, context: Context) -> Sequence[Effect]:
        """Does nothing: no decision of a group has such a note (`Machine.committed`)."""
        raise AssertionError(f"a note of no decision: {note!r}")

    def heard(self, answer: object, context: Context) -> Sequence[Decision]:
        """Does nothing: a group sends nothing to other nodes (`Machine.heard`)."""
        raise AssertionError(f"an answer to no question: {answer!r}")

    def answered(self, note: object, now_ms: int) -> None:
        """An answer was sent (`Machine.answered`); if it asks for partitions, the member's time for that begins."""
        assert isinstance(note, RevocationAsked)
        group = self.groups.get(note.group_id)
        if group is not None and group.current.get(note.member_id) == note.row:
            self.timers.asked(note, now_ms)

    def excuse(self, context: Context) -> None:
        """Every member gets its full session and rebalance time-out from now on (`Machine.excuse`)."""
        self._is_shown = True
        for group in self.groups.values():
            for member_id, row in group.current.items():
                said = group.members.get(member_id)
                # Neither a member nor fenced: the rest of its removal was lost with the coordinator that split it (G4).
                session_ms = said.session_timeout_ms if said else row.lease_ms or self.settings.max_session_timeout_ms
                member = (group.group_id, member_id)
                self.timers.begin_session(member, context.now_ms + session_ms)
                if said is not None and row.state is MemberState.UNREVOKED:
                    self.timers.begin_rebalance(member, row, context.now_ms + said.rebalance_timeout_ms)
