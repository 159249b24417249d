"""How much of the past is kept for the lanes: the newest looks at a bounded number of partitions.

Invariant: memory is bounded by ``most_partitions`` times ``most_samples``; the partitions that were looked at or in
trouble last stay, the others are dropped first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from strandline.console.overview import Chip, PartitionRow, Rank, ReplicaState
from strandline.core.types import NodeId, Offset, TopicPartition


class ReplicaPoint(NamedTuple):
    """One replica at one moment."""

    leo: Offset | None
    hw: Offset | None
    state: ReplicaState


class Sample(NamedTuple):
    """One look at one partition, at ``at_ms`` (monotonic); ``leo`` and ``hw`` are the leader's."""

    at_ms: int
    leader_epoch: int
    leo: Offset | None
    hw: Offset | None
    replicas: Mapping[NodeId, ReplicaPoint]


class Courses:
    """The newest samples of the partitions that somebody cares about."""

    def __init__(self, *, most_partitions: int, most_samples: int) -> None:
        self._most_partitions = most_partitions
        self._most_samples = most_samples
        self._kept: OrderedDict[TopicPartition, deque[Sample]] = OrderedDict()

    def follow(self, tp: TopicPartition) -> None:
        """Keep this partition's samples from now on; who was followed longest ago gives way."""
        if tp not in self._kept:
            self._kept[tp] = deque(maxlen=self._most_samples)
        self._kept.move_to_end(tp)
        while len(self._kept) > self._most_partitions:
            self._kept.popitem(last=False)

    def take(self, rows: Iterable[PartitionRow], now_ms: int) -> None:
        """Note a look: of every followed partition, of those in trouble, and of others while there is room."""
        for row in rows:
            if row.tp not in self._kept:
                if row.rank >= Rank.NOT_PREFERRED and len(self._kept) >= self._most_partitions:
                    continue
                self.follow(row.tp)
            self._kept[row.tp].append(_sample(row, now_ms))

    def of(self, tp: TopicPartition) -> tuple[Sample, ...]:
        """What is kept of a partition, the oldest first."""
        return tuple(self._kept.get(tp, ()))


def _point(chip: Chip) -> ReplicaPoint:
    """Its own word where it answers; else where its leader last knew it, and no HW."""
    return ReplicaPoint(chip.leo if chip.own_leo is None else chip.own_leo, chip.own_hw, chip.state)


def _sample(row: PartitionRow, now_ms: int) -> Sample:
    return Sample(
        at_ms=now_ms,
        leader_epoch=row.leader_epoch,
        leo=row.leo,
        hw=row.hw,
        replicas={chip.node_id: _point(chip) for chip in row.chips},
    )
