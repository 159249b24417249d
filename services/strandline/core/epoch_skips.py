"""Decides by how much a partition's epochs rise: by one, and by more at its first change in a reign (C37, M34).

Invariant: a reign never gives an epoch that an earlier one may have given. A store that lost its last transactions
begins its next reign below them; the skip carries it beyond every epoch that was lost, even if the nodes that know of
them are silent. Later changes in the reign rise by one.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.core.messages import PartitionImage
from strandline.core.types import LeaderEpoch, PartitionEpoch, TopicPartition

SKIP = 1_024
"""More changes of one partition than a store can lose at once. 2**31 / 1,024 reigns fit into an epoch."""


def first_epoch_in(controller_epoch: int) -> int:
    """The first leader and partition epoch of a partition that is added to a topic in this reign.

    A reign whose end was lost may have added a partition of the same index, and changed it since.
    """
    return SKIP * (controller_epoch - 1)


class EpochSkips:
    """Which partitions changed, and which held an election, in this reign. A new reign begins with a new one."""

    def __init__(self) -> None:
        self._changed: set[TopicPartition] = set()
        self._elected: set[TopicPartition] = set()

    def partition_epoch_after(self, before: PartitionImage) -> PartitionEpoch:
        """The partition epoch of the next change of ``before``."""
        return PartitionEpoch(before.partition_epoch + _step(before.tp in self._changed))

    def leader_epoch_after(self, before: PartitionImage) -> LeaderEpoch:
        """The leader epoch that the next election of ``before`` gives."""
        return LeaderEpoch(before.leader_epoch + _step(before.tp in self._elected))

    def follow(self, changed: Iterable[PartitionImage], before: dict[TopicPartition, PartitionImage | None]) -> None:
        """Note what a transaction changed. A partition that it created has no epoch that could have been lost."""
        for partition in changed:
            was = before[partition.tp]
            self._changed.add(partition.tp)
            if was is None or was.leader_epoch != partition.leader_epoch:
                self._elected.add(partition.tp)


def changes_between(before: int, after: int) -> int:
    """How many changes lie between two epochs of one partition, whatever number of reigns began between them."""
    return (after - before) % SKIP


def _step(is_known_of_this_reign: bool) -> int:
    return 1 if is_known_of_this_reign else 1 + SKIP
