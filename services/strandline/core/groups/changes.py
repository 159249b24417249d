"""The rows that one decision writes for one group.

Invariant: the group's own row is written at most once in a decision, so causes that come together raise the group
epoch by one (G15).
"""

from __future__ import annotations

from dataclasses import replace

from strandline.core.coordinator.records import Batch, Key, Record
from strandline.core.groups.group import Group
from strandline.core.groups.records import (
    GroupKey,
    GroupValue,
    MemberKey,
    OffsetKey,
    StagedOffsetKey,
    TargetEpochKey,
    TargetKey,
    TargetValue,
)
from strandline.core.types import TopicPartition


class Changes:
    """Collects rows; `batch` gives them."""

    def __init__(self, group: Group, unix_ms: int) -> None:
        self.group = group
        self.value = group.value or GroupValue()
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

    def put_target(self, member_id: str, value: TargetValue) -> None:
        """Write a member's target row, if it is complete."""
        if value.epoch <= self.group.target_epoch:
            self.put(TargetKey(self.group.group_id, member_id), value)

    def raise_epoch(self) -> None:
        """The group needs a new target."""
        self.value = replace(self.value, group_epoch=self.group.epoch + 1)

    def delete_offset(self, tp: TopicPartition) -> None:
        """Delete an offset, and remember that its order was given (G26)."""
        self.put(OffsetKey(self.group.group_id, *tp), None)
        self.value = replace(self.value, order=self.group.top_order)

    def delete_staged(self, key: StagedOffsetKey) -> None:
        """Drop what a transaction was to commit, and remember that its order was given (G26)."""
        self.put(key, None)
        self.value = replace(self.value, order=self.group.top_order)

    def delete_group(self) -> None:
        """Delete the group's own rows."""
        self._is_deleted = True

    def batch(self) -> Batch:
        """The rows, the group's own last; empty if nothing changes."""
        group_id = self.group.group_id
        if self._is_deleted:
            own = [Record(TargetEpochKey(group_id)), Record(GroupKey(group_id))]
        else:
            value = replace(self.value, empty_since_ms=self._empty_since_ms())
            own = [Record(GroupKey(group_id), value)] if value != (self.group.value or GroupValue()) else []
        return (*(Record(key, value) for key, value in self._records.items()), *own)

    def _empty_since_ms(self) -> int | None:
        touched = [(key.member_id, value) for key, value in self._records.items() if isinstance(key, MemberKey)]
        members = self.group.members
        joined = sum(value is not None and member_id not in members for member_id, value in touched)
        gone = sum(value is None and member_id in members for member_id, value in touched)
        if len(members) + joined - gone:
            return None
        return self._unix_ms if gone else self.value.empty_since_ms
