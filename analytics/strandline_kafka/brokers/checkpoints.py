"""Reads the checkpoint files of a broker's data directory: the starts of its epochs and the last saved high watermarks.

Read only. They have no times: `leader-epoch-checkpoint` is written at each new epoch, `replication-offset-checkpoint`
every few seconds. So they give no events or samples; `checkpoint_checks` has what they prove.

Invariant: a table of epochs rises in both columns. A file of another form is an `Unreadable` with its line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline_kafka.metadata.log_files import FOLDER, properties_of
from strandline_kafka.metadata.state import ClusterState
from strandline_kafka.metadata.wire import Unreadable, uuid_text

EPOCHS_FILE = "leader-epoch-checkpoint"
HWS_FILE = "replication-offset-checkpoint"
_METADATA_FILE = "partition.metadata"
_VERSION = "0"
_MOST_DIGITS = 19
_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>\d{1,10})")
_TOPIC_ID = re.compile(r"topic_id: *([A-Za-z0-9_-]{22})")

Place = tuple[str, int]
"""Topic and partition."""


class EpochEntry(NamedTuple):
    """The offset from which on the records of a log are of an epoch."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFiles:
    """The checkpoints of one replica."""

    topic_id: str
    """The topic's id, as in the metadata log."""
    epochs: tuple[EpochEntry, ...]
    hw: int | None
    """Everything below it was committed; the replica may have known more."""

    def end_of(self, leader_epoch: int) -> EpochEntry | None:
        """The entry of the first epoch after a given one, where that epoch's records end; None if there is none."""
        return next((entry for entry in self.epochs if entry.leader_epoch > leader_epoch), None)

    def start_of(self, leader_epoch: int) -> int | None:
        """Where an epoch began; None if the table does not have it.

        The first entry moves with the log's start when old records are deleted, so it is used only if it is 0.
        """
        for number, entry in enumerate(self.epochs):
            if entry.leader_epoch == leader_epoch:
                return entry.start_offset if number or not entry.start_offset else None
        return None


@dataclass(slots=True)
class Checkpoints:
    """The files of one broker, by topic and partition."""

    node_id: int
    replicas: Mapping[Place, ReplicaFiles] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """The number of epochs in all tables."""
        return sum(len(replica.epochs) for replica in self.replicas.values())


def read_checkpoints(node_id: int, where: Path, cluster_id: str | None) -> Checkpoints:
    """The files of a broker's data directory, or of a copy with the folders of its partitions in ``partitions``.

    Args:
        cluster_id: the cluster to which the directory must belong; None for any.

    Raises:
        Unreadable: it has no partition, belongs to another node or cluster, or has a damaged file.
    """
    if not where.is_dir():
        raise Unreadable(f"{where} is not a directory; give a log.dir of node {node_id}")
    _check_owner(node_id, where, cluster_id)
    hws = _hws(where / HWS_FILE)
    inner = where / "partitions"
    replicas: dict[Place, ReplicaFiles] = {}
    for path in sorted((inner if inner.is_dir() else where).iterdir()):
        named = _PARTITION.fullmatch(path.name)
        if named is None or path.name == FOLDER or not (path / EPOCHS_FILE).is_file():
            continue
        place = named["topic"], int(named["partition"])
        epochs = _epochs(path / EPOCHS_FILE)
        replicas[place] = ReplicaFiles(topic_id=_topic_id(path / _METADATA_FILE), epochs=epochs, hw=hws.get(place))
    if not replicas:
        raise Unreadable(f"{where} holds no folder of a partition with a {EPOCHS_FILE}; give a log.dir of a broker")
    return Checkpoints(node_id, replicas)


def _check_owner(node_id: int, where: Path, cluster_id: str | None) -> None:
    said = properties_of(where / "meta.properties")
    if said.get("node.id", str(node_id)) != str(node_id):
        raise Unreadable(f"{where} is of node {said['node.id']}, and was given as that of {node_id}")
    if cluster_id is not None and said.get("cluster.id", cluster_id) != cluster_id:
        raise Unreadable(f"{where} is of the cluster {said['cluster.id']}, and the metadata log of {cluster_id}")


def _epochs(path: Path) -> tuple[EpochEntry, ...]:
    found: list[EpochEntry] = []
    for number, line in _lines(path):
        entry = EpochEntry(*_numbers(path, number, line.split(), 2))
        if found and not (found[-1].leader_epoch < entry.leader_epoch and found[-1].start_offset < entry.start_offset):
            raise Unreadable(f"{path}:{number}: epoch {entry.leader_epoch} at {entry.start_offset} does not follow")
        found.append(entry)
    return tuple(found)


def _hws(path: Path) -> dict[Place, int]:
    found: dict[Place, int] = {}
    if path.is_file():
        for number, line in _lines(path):
            topic, _, rest = line.partition(" ")
            partition, hw = _numbers(path, number, rest.split(), 2)
            found[topic, partition] = hw
    return found


def _lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a checkpoint with their numbers, without its version and its count."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines:
        # Kafka creates the file with the log, and writes to it at the first epoch.
        return []
    if len(lines) < 2 or lines[0] != _VERSION:
        raise Unreadable(f"{path}:1: a checkpoint of Kafka begins with its version {_VERSION} and the number of lines")
    (count,) = _numbers(path, 2, [lines[1]], 1)
    if count != len(lines) - 2:
        raise Unreadable(f"{path}:2: {count} lines are declared and {len(lines) - 2} follow; the file is damaged")
    return list(enumerate(lines[2:], start=3))


def _numbers(path: Path, number: int, words: Sequence[str], count: int) -> list[int]:
    if len(words) != count or not all(w.isascii() and w.isdigit() and len(w) <= _MOST_DIGITS for w in words):
        raise Unreadable(f"{path}:{number}: {' '.join(words)!r:.60} must be {count} whole numbers; the file is damaged")
    return [int(word) for word in words]


def _topic_id(path: Path) -> str:
    found = _TOPIC_ID.search(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
    if found is None:
        raise Unreadable(f"{path} names no topic id, without which a deleted topic and its successor are one; copy it")
    return uuid_text(found[1])


# ---- checkpoint_checks
# What brokers' checkpoint files prove although they have no times: starts of epochs, and lost records (A22).
#
# - An epoch's first offset belongs to the election that began it, whenever its leader took it up.
# - A replica that lacks an epoch had everything below its high watermark committed before that epoch. Where another log
#   begins the epoch below it, committed records are lost there.
#
# They do not prove when anything happened, or how far a log reached at a moment of the metadata log.
#
# Invariant: a start on which two tables disagree is dropped, unless it is in the leader's own table.

Tables = dict[int, ReplicaFiles]
"""The replicas of one partition, by node."""


class EpochBegan(NamedTuple):
    """The start of an epoch, and the nodes whose tables have it."""

    start_offset: int
    nodes: tuple[int, ...]


class Lost(NamedTuple):
    """Records that one replica knew as committed and another log lacks."""

    topic: str
    partition: int
    known_by: int
    known_epoch: int
    """The last epoch in that replica's log."""
    hw: int
    leader_epoch: int
    """The first newer epoch in the other log, and its start offset there."""
    start_offset: int
    lacked_by: int
    is_member: bool
    """Whether the metadata log still counts the other replica as complete: it is in the ISR, or in the ELR."""

    @property
    def records(self) -> int:
        """The smallest number of lost records."""
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
    """The tables of all given brokers, by partition."""

    def __init__(self, several: Sequence[Checkpoints]) -> None:
        self._names: dict[TopicPartition, str] = {}
        self._tables: dict[TopicPartition, Tables] = defaultdict(dict)
        for checkpoints in several:
            for (topic, partition), replica in checkpoints.replicas.items():
                tp = TopicPartition(replica.topic_id, partition)
                self._names[tp] = topic
                self._tables[tp][checkpoints.node_id] = replica

    def start_of(self, tp: TopicPartition, leader_epoch: LeaderEpoch, leader: NodeId) -> EpochBegan | None:
        """Where an epoch began; None if no table has it, or the tables disagree."""
        found = _starts(self._tables.get(tp, {}), leader_epoch)
        if leader in found:
            return EpochBegan(found[leader], (leader,))
        return EpochBegan(*next(iter(_by_offset(found).items()))) if len(_by_offset(found)) == 1 else None

    def findings(self, state: ClusterState) -> Iterator[str]:
        """Contradictions among the tables, or with the metadata log, as sentences; the worst comes first.

        Args:
            state: the state at the end of the proved metadata log.
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
    """Records that others knew as committed and a log lacks, as the middle part of a `Lost`."""
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
