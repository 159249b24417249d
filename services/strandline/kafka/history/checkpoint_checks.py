"""What brokers' checkpoint files prove although they carry no time: where epochs began, which records are lost (A22).

- An epoch's first offset belongs to the election that began it, whenever its leader took it up.
- A replica that lacks an epoch had everything below its high watermark committed before that epoch. Where another log
  begins the epoch below it, committed records are lost there.

What they do not prove is left unsaid: when anything was, and how far a log reached at a moment of the metadata log.

Invariant: a start that two tables contradict is nobody's, unless it is of the leader's own table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline.kafka.history.checkpoints import Checkpoints, ReplicaFiles
from strandline.kafka.history.state import ClusterState

Tables = dict[int, ReplicaFiles]
"""Of one partition, by node."""


class EpochBegan(NamedTuple):
    """Where an epoch began, and whose tables say so."""

    start_offset: int
    nodes: tuple[int, ...]


class Lost(NamedTuple):
    """Records that one replica knew as committed and another log does not have."""

    topic: str
    partition: int
    known_by: int
    known_epoch: int
    """The last epoch in that replica's log."""
    hw: int
    leader_epoch: int
    """The first newer epoch in the other log, and from which offset on that log is of it."""
    start_offset: int
    lacked_by: int
    is_member: bool
    """Whether the metadata log still counts the other replica as complete: it is in the ISR, or in the ELR."""

    @property
    def records(self) -> int:
        """How many are lost at least."""
        return self.hw - self.start_offset

    def __str__(self) -> str:
        counted = ", and the metadata log counts that node as complete" if self.is_member else ""
        return (
            f"{self.topic}-{self.partition}: node {self.known_by} knew everything below {self.hw} as committed in "
            f"epoch {self.known_epoch}, and on node {self.lacked_by} epoch {self.leader_epoch} begins at "
            f"{self.start_offset}: {self.records} committed records are lost there{counted}. If node {self.known_by} "
            "ran while its files were copied, copy them again"
        )


class CheckpointChecks:
    """The tables of all brokers that were given, by partition."""

    def __init__(self, several: Sequence[Checkpoints]) -> None:
        self._names: dict[TopicPartition, str] = {}
        self._tables: dict[TopicPartition, Tables] = defaultdict(dict)
        for checkpoints in several:
            for (topic, partition), replica in checkpoints.replicas.items():
                tp = TopicPartition(replica.topic_id, partition)
                self._names[tp] = topic
                self._tables[tp][checkpoints.node_id] = replica

    def start_of(self, tp: TopicPartition, leader_epoch: LeaderEpoch, leader: NodeId) -> EpochBegan | None:
        """Where an epoch began; None where no table says it, or they contradict each other."""
        found = _starts(self._tables.get(tp, {}), leader_epoch)
        if leader in found:
            return EpochBegan(found[leader], (leader,))
        return EpochBegan(*next(iter(_by_offset(found).items()))) if len(_by_offset(found)) == 1 else None

    def findings(self, state: ClusterState) -> Iterator[str]:
        """What the tables contradict, each other or the metadata log, as sentences; the worst comes first.

        Args:
            state: at the end of what is proved of the metadata log.
        """
        yield from map(str, self.losses(state))
        yield from _counted(
            self._different(),
            "epochs begin at different offsets in two tables, as they may in a topic that is compacted",
        )
        yield from _counted(
            self._younger(state), "partitions have an epoch that the metadata log does not reach; give its later copy"
        )
        yield from _counted(self._unknown(state), "partitions are of no topic of the metadata log at its end")

    def losses(self, state: ClusterState) -> Iterator[Lost]:
        """For each log that lacks what another replica knew as committed, the largest such loss."""
        for tp, tables in sorted(self._tables.items()):
            partition = state.partitions.get(tp)
            members = () if partition is None else (*partition.isr, *partition.elr)
            for node, table in sorted(tables.items()):
                known = [
                    Lost(self._names[tp], tp.partition, *one, lacked_by=node, is_member=node in members)
                    for one in _lacking(tables, table)
                ]
                if known:
                    yield max(known, key=lambda one: one.records)

    def _different(self) -> Iterator[str]:
        for tp, tables in sorted(self._tables.items()):
            for epoch in sorted({entry.leader_epoch for replica in tables.values() for entry in replica.epochs}):
                found = _by_offset(_starts(tables, epoch))
                if len(found) > 1:
                    said = " and ".join(f"{offset} (node {_listed(nodes)})" for offset, nodes in sorted(found.items()))
                    yield f"epoch {epoch} of {self._name(tp)} at {said}"

    def _younger(self, state: ClusterState) -> Iterator[str]:
        for tp, tables in sorted(self._tables.items()):
            partition = state.partitions.get(tp)
            newest = max((replica.epochs[-1].leader_epoch for replica in tables.values() if replica.epochs), default=-1)
            if partition is not None and newest > partition.leader_epoch:
                yield f"{self._name(tp)}: epoch {newest}, and {partition.leader_epoch} by the metadata log"

    def _unknown(self, state: ClusterState) -> Iterator[str]:
        return (self._name(tp) for tp in sorted(self._tables) if tp not in state.partitions)

    def _name(self, tp: TopicPartition) -> str:
        return f"{self._names[tp]}-{tp.partition}"


def _starts(tables: Tables, leader_epoch: int) -> dict[int, int]:
    found = ((node, replica.start_of(leader_epoch)) for node, replica in sorted(tables.items()))
    return {node: start for node, start in found if start is not None}


def _by_offset(starts: dict[int, int]) -> dict[int, tuple[int, ...]]:
    return {offset: tuple(node for node in starts if starts[node] == offset) for offset in starts.values()}


def _lacking(tables: Tables, table: ReplicaFiles) -> Iterator[tuple[int, int, int, int, int]]:
    """What others knew as committed and a log does not have, as the middle of a `Lost`."""
    for node, other in tables.items():
        if other.hw is not None and other.epochs:
            known_epoch = other.epochs[-1].leader_epoch
            entry = table.end_of(known_epoch)
            if entry is not None and entry.start_offset < other.hw:
                yield node, known_epoch, other.hw, *entry


def _counted(several: Iterator[str], said: str) -> Iterator[str]:
    found = list(several)
    if found:
        yield f"{len(found)} {said}; the first is {found[0]}"


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))
