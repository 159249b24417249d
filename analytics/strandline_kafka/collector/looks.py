"""Makes the rows of a look: the log end of every replica, and bounds of the high watermark (A26 to A28).

A look asks three things one after the other: the leaders for the high watermark, every broker for the ends of its own
logs, the leaders again. The HW never goes back under one leader, so at the moment at which a leader answered with the
end of its log, LEO, the HW was between the first answer and the last: LEO - HW2 <= lag <= LEO - HW1. If LEO is already
HW1, the lag was 0 and the last question is left out.

Invariant: a row is written only if both answers were of the leader epoch that the cluster's state had before and after.
A LEO without an answer is an earlier answer of the same leader epoch, so that it can only be too low.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.core.state_events import ReplicaSample
from strandline.core.types import LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicPartition
from strandline_kafka.collector.answers import AnsweredOffset, TopicPartitionName
from strandline_kafka.collector.cluster import ClusterSample, PartitionSample

NOT_GIVEN = -1
"""Replaces an offset or a partition epoch that Kafka does not give; its column is null."""

Positions = Mapping[TopicPartitionName, AnsweredOffset]
Asked = dict[NodeId, dict[str, list[int]]]
"""Partitions by broker and topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """All answers of one look. A broker that did not answer in time is missing."""

    before: ClusterSample
    hw1: Mapping[NodeId, Positions]
    ends: Mapping[NodeId, Positions]
    hw2: Mapping[NodeId, Positions]
    after: ClusterSample
    log_starts: Positions
    """The log starts of leaders when they were last asked."""


class Sample(NamedTuple):
    """One row, whose emitter is the leader."""

    leader: NodeId
    tp: TopicPartition
    event: ReplicaSample
    ext: dict[str, str]


class Bounds(NamedTuple):
    """The accuracy of offsets between two bounds: looks at one, exact ones among them, and the widths in records."""

    looks: int = 0
    exact: int = 0
    width_sum: int = 0
    widest: int = 0

    def with_width(self, width: int) -> Bounds:
        """The sum with one more look."""
        return Bounds(self.looks + 1, self.exact + (width == 0), self.width_sum + width, max(self.widest, width))


@dataclass(slots=True)
class Look:
    """The rows of one look, and its missing parts."""

    samples: list[Sample] = field(default_factory=list)
    missed: Counter[NodeId] = field(default_factory=Counter)
    """Numbers of rows without an answer of their leader, by leader."""
    why: Counter[str] = field(default_factory=Counter)
    """Numbers of partitions without rows, by reason."""


class _Seen(NamedTuple):
    leader_epoch: LeaderEpoch
    end: Offset


def who_has_the_hw(cluster: ClusterSample) -> Asked:
    """The leaders to ask for high watermarks."""
    asked: Asked = {}
    for each in cluster.led():
        assert each.leader is not None, "a partition that is led has a leader"
        asked.setdefault(each.leader, {}).setdefault(each.topic, []).append(each.tp.partition)
    return asked


def who_has_replicas(cluster: ClusterSample) -> Asked:
    """The brokers to ask for ends of logs: every present broker, for each of its replicas."""
    asked: Asked = {}
    for each in cluster.led():
        for node in each.replicas:
            if node in cluster.brokers:
                asked.setdefault(node, {}).setdefault(each.topic, []).append(each.tp.partition)
    return asked


def who_may_have_more(
    cluster: ClusterSample, hw1: Mapping[NodeId, Positions], ends: Mapping[NodeId, Positions]
) -> Asked:
    """The leaders to ask again for high watermarks that were not already the end of their log."""
    asked: Asked = {}
    for each in cluster.led():
        assert each.leader is not None, "a partition that is led has a leader"
        name = each.topic, each.tp.partition
        if not _is_settled(hw1.get(each.leader, {}).get(name), ends.get(each.leader, {}).get(name)):
            asked.setdefault(each.leader, {}).setdefault(each.topic, []).append(each.tp.partition)
    return asked


def _is_settled(hw1: AnsweredOffset | None, end: AnsweredOffset | None) -> bool:
    """Whether a log ended at the HW that was read before, in one leader epoch: then the HW was exactly there."""
    return hw1 is not None and end is not None and not hw1.error and hw1 == end


def rows_of_leaders(cluster: ClusterSample) -> Counter[NodeId]:
    """The number of rows of a look for each leader."""
    return Counter(each.leader for each in cluster.led() for _ in each.replicas if each.leader is not None)


class Looks:
    """Makes rows from answers; remembers of each replica only its last log end."""

    def __init__(self) -> None:
        self._ends: dict[tuple[TopicPartition, NodeId], _Seen] = {}
        self._count = 0
        self.bounds = Bounds()

    def take(self, answers: Answers, interval_ms: int) -> Look:
        """The rows of one look.

        Args:
            interval_ms: the time after which the next look should follow.
        """
        self._count += 1
        look = Look()
        for partition in answers.before.led():
            found = self._rows(partition, answers, interval_ms)
            if isinstance(found, str):
                assert partition.leader is not None, "a partition that is led has a leader"
                look.why[found] += 1
                look.missed[partition.leader] += len(partition.replicas)
            else:
                look.samples += found
        self._forget(answers.before)
        return look

    def _rows(self, partition: PartitionSample, answers: Answers, interval_ms: int) -> list[Sample] | str:
        """The rows of one partition, or why there are none."""
        leader, name = partition.leader, (partition.topic, partition.tp.partition)
        assert leader is not None, "a partition that is led has a leader"
        positions = [answers.hw1.get(leader), answers.ends.get(leader), answers.hw2.get(leader)]
        given = [None if each is None else each.get(name) for each in positions]
        if _is_settled(given[0], given[1]):
            given[2] = given[1]
        if reason := _why_void(partition, given, answers.after.partitions.get(partition.tp)):
            return reason
        hw1, end, hw2 = (Offset(each.offset) for each in given if each is not None)
        if not 0 <= hw1 <= hw2 or hw1 > end:
            return "its answers contradict each other"
        width = min(hw2, end) - hw1
        self.bounds = self.bounds.with_width(width)
        after = answers.after.partitions[partition.tp]
        start = answers.log_starts.get(name)
        at = _Bounds(hw1, Offset(hw1 + width), end, Offset(NOT_GIVEN if start is None or start.error else start.offset))
        own = self._own_row(partition, at, interval_ms)
        bounds = {"hw_lag_low": str(at.leo - at.hw_high), "hw_lag_high": str(at.leo - at.hw_low)}
        samples = []
        for node in partition.replicas:
            leo, ext = (end, bounds) if node == leader else self._end_of(node, partition, after, answers, at)
            # A member in only one of both states left or joined meanwhile, and may lack committed records.
            is_member = node in partition.isr and node in after.isr
            expected = _expected(node, is_member, partition, answers.before)
            event = own._replace(replica_id=node, leo=leo, in_isr=is_member, expected_state=expected)
            samples.append(Sample(leader, partition.tp, event, ext))
        return samples

    def _own_row(self, partition: PartitionSample, at: _Bounds, interval_ms: int) -> ReplicaSample:
        """The common values of the rows of all replicas."""
        assert partition.leader is not None, "a partition that is led has a leader"
        return ReplicaSample(
            sample_id=self._count,
            interval_ms=interval_ms,
            replica_id=partition.leader,
            leo=at.leo,
            durable_leo=None,
            leader_leo=at.leo,
            hw=at.hw_low,
            acked_offset=Offset(NOT_GIVEN),
            log_start=at.log_start,
            leo_bytes=None,
            hw_bytes=None,
            hw_next_append_ms=None,
            last_fetch_ms=None,
            last_caught_up_ms=None,
            in_isr=True,
            in_maximal_isr=False,
            expected_state="member",
            leader_epoch=partition.leader_epoch,
            partition_epoch=PartitionEpoch(NOT_GIVEN),
        )

    def _end_of(
        self, node: NodeId, partition: PartitionSample, after: PartitionSample, answers: Answers, at: _Bounds
    ) -> tuple[Offset | None, dict[str, str]]:
        """The end of a replica's log, with notes on it."""
        key = partition.tp, node
        given = answers.ends.get(node, {}).get((partition.topic, partition.tp.partition))
        if given is not None and not given.error and given.offset >= 0 and given.leader_epoch <= partition.leader_epoch:
            end = Offset(given.offset)
            self._ends[key] = _Seen(partition.leader_epoch, end)
            if end > at.leo:
                # It was asked a moment later than the leader. At the leader's moment it had no more than the leader.
                return at.leo, {"leo_read": str(end)}
            return end, {}
        seen = self._ends.get(key)
        known = [] if seen is None or seen.leader_epoch != partition.leader_epoch else [seen.end]
        if node in partition.isr and node in after.isr:
            # Every ISR member has everything below the HW, by the definition of the HW.
            known.append(at.hw_low)
        if not known:
            return None, {}
        self._ends[key] = _Seen(partition.leader_epoch, max(known))
        return max(known), {"leo_bound": "lower"}

    def _forget(self, cluster: ClusterSample) -> None:
        gone = [key for key in self._ends if key[0] not in cluster.partitions]
        for key in gone:
            del self._ends[key]


class _Bounds(NamedTuple):
    hw_low: Offset
    hw_high: Offset
    leo: Offset
    log_start: Offset


def _why_void(
    partition: PartitionSample, given: list[AnsweredOffset | None], after: PartitionSample | None
) -> str | None:
    if any(each is None for each in given):
        return "its leader did not answer"
    if any(each is not None and each.error for each in given):
        return "its leader answered with an error"
    epochs = {each.leader_epoch for each in given if each is not None}
    if after is None or epochs != {partition.leader_epoch} or after.leader_epoch != partition.leader_epoch:
        return "its leader epoch changed"
    return None


def _expected(node: NodeId, is_member: bool, partition: PartitionSample, cluster: ClusterSample) -> str:
    if is_member:
        return "member"
    return "down" if node not in cluster.brokers or node in partition.offline else "catching_up"
