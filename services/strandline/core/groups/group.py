"""One group: the fold of its rows, and what follows from them (G14, G18).

Invariant: state changes by `Group.apply` alone, and is the same for every order of rows that keeps the order of each
key's own: a sweep writes rows again in another order (G9).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from strandline.core.coordinator.machine import Batch, Key, Record
from strandline.core.groups import records
from strandline.core.types import TopicPartition

# ---- owners
# Which member of a group holds which partition (G18).
#
# Invariant I28: a partition is in the assigned or revoking partitions of at most one member. The map is rebuilt from
# a member's old and new rows and never patched: an entry that was patched got lost in KAFKA-16147.


class Owners:
    """Maps each partition to the member that holds it and the member epoch in which it was assigned."""

    def __init__(self) -> None:
        self._owners: dict[TopicPartition, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def of(self, tp: TopicPartition) -> tuple[str, int] | None:
        """(member, epoch), or None if no member holds ``tp``."""
        return self._owners.get(tp)

    def is_free_for(self, tp: TopicPartition, member_id: str) -> bool:
        """Whether ``tp`` can be assigned to this member: no other member holds it."""
        owner = self._owners.get(tp)
        return owner is None or owner[0] == member_id

    def replace(self, member_id: str, before: records.CurrentValue | None, after: records.CurrentValue | None) -> None:
        """Replace a member's row ``before`` by ``after``; None if there was, or is, none."""
        for tp, _ in before.held if before else ():
            gone = self._owners.pop(tp, None)
            assert gone is not None and gone[0] == member_id, f"I28: {tp} of {member_id} was owned by {gone}"
        for tp, epoch in after.held if after else ():
            assert tp not in self._owners, f"I28: {tp} goes to {member_id} and is owned by {self._owners[tp]}"
            self._owners[tp] = (member_id, epoch)

    def as_dict(self) -> dict[TopicPartition, tuple[str, int]]:
        """A copy, for comparisons."""
        return dict(self._owners)


class GroupState(StrEnum):
    """Kafka's states of a consumer group; a group without rows is DEAD."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """No target is computed for the group's epoch yet."""
    RECONCILING = "Reconciling"
    """Some member is not yet stable in the target's epoch."""
    STABLE = "Stable"
    DEAD = "Dead"


class Group:
    """The rows of one group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.value: records.GroupValue | None = None
        self.members: dict[str, records.MemberValue] = {}
        self.instances: dict[str, str] = {}
        """Instance id to the member that has it."""
        self.target: records.TargetEpochValue | None = None
        self.targets: dict[str, records.TargetValue] = {}
        self.current: dict[str, records.CurrentValue] = {}
        self.owners = Owners()
        self.offsets: dict[str, dict[int, records.OffsetValue]] = {}
        """By topic id and partition."""
        self.staged: dict[TopicPartition, dict[int, records.StagedOffsetValue]] = {}
        """By partition and producer id; no partition has an empty entry (X16)."""
        self.top_order = 0
        # Members that are not stable in the target's epoch; rows of a target that is not complete.
        self._unsettled: set[str] = set()
        self._ahead: set[str] = set()

    @property
    def epoch(self) -> int:
        """The group epoch; 0 before the first member."""
        return self.value.group_epoch if self.value else 0

    @property
    def target_epoch(self) -> int:
        """The epoch of the newest complete target; 0 if there is none."""
        return self.target.epoch if self.target else 0

    @property
    def is_torn(self) -> bool:
        """Whether a target is only partly written, so that none of its rows can be used (G4)."""
        return bool(self._ahead)

    @property
    def is_gone(self) -> bool:
        """Whether no row is left."""
        rows = (self.value, self.target, self.members, self.targets, self.current, self.offsets, self.staged)
        return not any(rows)

    @property
    def state(self) -> GroupState:
        """The state as it is shown to operators."""
        if self.is_gone:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch or self.is_torn:
            return GroupState.ASSIGNING
        return GroupState.RECONCILING if self._unsettled else GroupState.STABLE

    def target_of(self, member_id: str) -> tuple[TopicPartition, ...]:
        """A member's target partitions; empty if its row is missing."""
        row = self.targets.get(member_id)
        return row.partitions if row else ()

    def is_fenced(self, member_id: str) -> bool:
        """Whether this member was removed and its lease may still run (G21)."""
        row = self.current.get(member_id)
        return row is not None and row.state is records.MemberState.FENCED

    def offset_rows(self) -> Iterator[tuple[TopicPartition, records.OffsetValue]]:
        """All committed offsets."""
        for topic_id, of_topic in self.offsets.items():
            for partition, value in of_topic.items():
                yield TopicPartition(topic_id, partition), value

    def staged_rows(self) -> Iterator[tuple[records.StagedOffsetKey, records.StagedOffsetValue]]:
        """All offsets that open transactions have staged."""
        for tp, of_producers in self.staged.items():
            for producer_id, value in of_producers.items():
                yield records.StagedOffsetKey(self.group_id, *tp, producer_id), value

    def rows(self) -> Iterator[tuple[Key, object]]:
        """All rows, as the log has them."""
        group_id = self.group_id
        if self.value is not None:
            yield records.GroupKey(group_id), self.value
        if self.target is not None:
            yield records.TargetEpochKey(group_id), self.target
        for member_id, said in self.members.items():
            yield records.MemberKey(group_id, member_id), said
        for member_id, target in self.targets.items():
            yield records.TargetKey(group_id, member_id), target
        for member_id, current in self.current.items():
            yield records.CurrentKey(group_id, member_id), current
        for tp, offset in self.offset_rows():
            yield records.OffsetKey(group_id, *tp), offset
        yield from self.staged_rows()

    def apply(self, record: Record) -> None:
        """Apply one row to the state."""
        key, value = record
        match key:
            case records.OffsetKey():
                assert value is None or isinstance(value, records.OffsetValue)
                self._offset(key.tp, value)
            case records.StagedOffsetKey():
                assert value is None or isinstance(value, records.StagedOffsetValue)
                self._stage(key.tp, key.producer_id, value)
            case records.CurrentKey():
                assert value is None or isinstance(value, records.CurrentValue)
                self._current(key.member_id, value)
            case records.MemberKey():
                assert value is None or isinstance(value, records.MemberValue)
                self._member(key.member_id, value)
            case records.TargetKey():
                assert value is None or isinstance(value, records.TargetValue)
                self._target(key.member_id, value)
            case records.TargetEpochKey():
                assert value is None or isinstance(value, records.TargetEpochValue)
                self.target = value
                self._ahead = {member for member, row in self.targets.items() if row.epoch > self.target_epoch}
                self._unsettled = {member for member in self.members if not self._is_settled(member)}
            case records.GroupKey():
                assert value is None or isinstance(value, records.GroupValue)
                self.value = value
                self.top_order = max(self.top_order, value.order if value else 0)
            case _:
                raise AssertionError(f"a record of no group: {key}")

    def _offset(self, tp: TopicPartition, value: records.OffsetValue | None) -> None:
        if value is not None:
            self.offsets.setdefault(tp.topic_id, {})[tp.partition] = value
            self.top_order = max(self.top_order, value.order)
            return
        of_topic = self.offsets.get(tp.topic_id, {})
        of_topic.pop(tp.partition, None)
        if not of_topic:
            self.offsets.pop(tp.topic_id, None)

    def _stage(self, tp: TopicPartition, producer_id: int, value: records.StagedOffsetValue | None) -> None:
        if value is not None:
            self.staged.setdefault(tp, {})[producer_id] = value
            self.top_order = max(self.top_order, value.offset.order)
            return
        of_producers = self.staged.get(tp, {})
        of_producers.pop(producer_id, None)
        if not of_producers:
            self.staged.pop(tp, None)

    def _current(self, member_id: str, value: records.CurrentValue | None) -> None:
        self.owners.replace(member_id, self.current.get(member_id), value)
        if value is None:
            self.current.pop(member_id, None)
        else:
            self.current[member_id] = value
        self._note_settled(member_id)

    def _member(self, member_id: str, value: records.MemberValue | None) -> None:
        before = self.members.pop(member_id, None)
        # In another order of rows, the member that has taken the instance id over has come first (G9).
        if before is not None and before.instance_id and self.instances.get(before.instance_id) == member_id:
            del self.instances[before.instance_id]
        if value is not None:
            self.members[member_id] = value
            if value.instance_id:
                self.instances[value.instance_id] = member_id
        self._note_settled(member_id)

    def _target(self, member_id: str, value: records.TargetValue | None) -> None:
        self._ahead.discard(member_id)
        if value is None:
            self.targets.pop(member_id, None)
            return
        self.targets[member_id] = value
        if value.epoch > self.target_epoch:
            self._ahead.add(member_id)

    def _is_settled(self, member_id: str) -> bool:
        row = self.current.get(member_id)
        return row is not None and row.state is records.MemberState.STABLE and row.member_epoch == self.target_epoch

    def _note_settled(self, member_id: str) -> None:
        if member_id in self.members and not self._is_settled(member_id):
            self._unsettled.add(member_id)
        else:
            self._unsettled.discard(member_id)


# ---- changes
# The rows that one decision writes for one group.
#
# Invariant: the group's own row is written at most once in a decision, so causes that come together raise the group
# epoch by one (G15).


class Changes:
    """Collects rows; `batch` returns them."""

    def __init__(self, group: Group, unix_ms: int) -> None:
        self.group = group
        self.value = group.value or records.GroupValue()
        self._unix_ms = unix_ms
        self._records: dict[Key, object | None] = {}
        self._is_deleted = False

    @property
    def is_raised(self) -> bool:
        """Whether the group epoch rises."""
        return self.value.group_epoch > self.group.epoch

    def put(self, key: Key, value: object | None) -> None:
        """Write a row; None deletes it."""
        self._records.pop(key, None)
        self._records[key] = value

    def put_target(self, member_id: str, value: records.TargetValue) -> None:
        """Write a member's target row, if it is complete."""
        if value.epoch <= self.group.target_epoch:
            self.put(records.TargetKey(self.group.group_id, member_id), value)

    def raise_epoch(self) -> None:
        """Raise the group epoch, because the group needs a new target."""
        self.value = replace(self.value, group_epoch=self.group.epoch + 1)

    def delete_offset(self, tp: TopicPartition) -> None:
        """Delete an offset, and remember that its order was used (G26)."""
        self.put(records.OffsetKey(self.group.group_id, *tp), None)
        # A sweep drops deleted rows, so after the next load nothing else would tell that this order was used (G9).
        self.value = replace(self.value, order=self.group.top_order)

    def delete_staged(self, key: records.StagedOffsetKey) -> None:
        """Drop a staged offset, and remember that its order was used (G26)."""
        self.put(key, None)
        self.value = replace(self.value, order=self.group.top_order)

    def delete_group(self) -> None:
        """Delete the group's own rows."""
        self._is_deleted = True

    def batch(self) -> Batch:
        """The rows, the group's own last; empty if nothing changes."""
        group_id = self.group.group_id
        if self._is_deleted:
            own = [Record(records.TargetEpochKey(group_id)), Record(records.GroupKey(group_id))]
        else:
            value = replace(self.value, empty_since_ms=self._empty_since_ms())
            own = (
                [Record(records.GroupKey(group_id), value)]
                if value != (self.group.value or records.GroupValue())
                else []
            )
        return (*(Record(key, value) for key, value in self._records.items()), *own)

    def _empty_since_ms(self) -> int | None:
        touched = [(key.member_id, value) for key, value in self._records.items() if isinstance(key, records.MemberKey)]
        members = self.group.members
        joined = sum(value is not None and member_id not in members for member_id, value in touched)
        gone = sum(value is None and member_id in members for member_id, value in touched)
        if len(members) + joined - gone:
            return None
        return self._unix_ms if gone else self.value.empty_since_ms
