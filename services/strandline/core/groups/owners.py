"""Who holds which partition of a group (G18).

Invariant I28: a partition is in the assigned or revoking partitions of at most one member. The map is rebuilt from
a member's old and new rows and never patched: an entry that was patched got lost in KAFKA-16147.
"""

from __future__ import annotations

from strandline.core.groups.records import CurrentValue
from strandline.core.types import TopicPartition


class Owners:
    """Partition to the member that holds it, and the member epoch in which that was given it."""

    def __init__(self) -> None:
        self._owners: dict[TopicPartition, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def of(self, tp: TopicPartition) -> tuple[str, int] | None:
        """(member, epoch), or None if nobody holds ``tp``."""
        return self._owners.get(tp)

    def is_free_for(self, tp: TopicPartition, member_id: str) -> bool:
        """Whether ``tp`` can be given to this member: nobody else holds it."""
        owner = self._owners.get(tp)
        return owner is None or owner[0] == member_id

    def replace(self, member_id: str, before: CurrentValue | None, after: CurrentValue | None) -> None:
        """A member's row ``before`` was replaced by ``after``; None: there was, or is, none."""
        for tp, _ in before.held if before else ():
            gone = self._owners.pop(tp, None)
            assert gone is not None and gone[0] == member_id, f"I28: {tp} of {member_id} was owned by {gone}"
        for tp, epoch in after.held if after else ():
            assert tp not in self._owners, f"I28: {tp} goes to {member_id} and is owned by {self._owners[tp]}"
            self._owners[tp] = (member_id, epoch)

    def as_dict(self) -> dict[TopicPartition, tuple[str, int]]:
        """A copy, for comparisons."""
        return dict(self._owners)
