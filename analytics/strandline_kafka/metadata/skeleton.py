"""Collects from the metadata log what is needed to place the events of other sources and to infer causes.

Made while the log is read to be proved, before anything is written: the reason for a change often comes after it.

Invariant: only the requested decisions are kept, so that a long log needs little memory; the rest
grows with removals, returns and sessions, of which a decision has at most one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline_kafka.metadata import state as metadata_state
from strandline_kafka.metadata.events import LEADER, Why, causes_of
from strandline_kafka.metadata.log_files import Copy, FoundBatch, read_records, snapshot_records
from strandline_kafka.metadata.merging import Kept, Proof
from strandline_kafka.metadata.passage import Beginning, HeldTransactions, Passage, Silences, beginning_of
from strandline_kafka.metadata.records import MetadataRecord
from strandline_kafka.metadata.replay import Replay
from strandline_kafka.metadata.wire import Unreadable


class WantedByLogs(NamedTuple):
    """The decisions and epochs that brokers' logs ask for, by topic name."""

    decisions: frozenset[tuple[str, int, int]] = frozenset()
    """Topic, partition, partition epoch."""
    places: frozenset[tuple[str, int]] = frozenset()
    """Topics and partitions whose epochs are requested by time."""


_FOREVER_MS = 1 << 62


class Decision(NamedTuple):
    """A committed change of a partition, or its creation."""

    at_ms: int
    controller_epoch: int
    meta_offset: int
    before: metadata_state.Partition | None
    after: metadata_state.Partition
    why: Why | None


class Epochs(NamedTuple):
    """The epochs of a partition from a decision on."""

    at_ms: int
    partition_epoch: PartitionEpoch
    leader_epoch: LeaderEpoch


class Removal(NamedTuple):
    """The removal of a replica from an ISR by a leader."""

    at_ms: int
    meta_offset: int
    topic: str
    tp: TopicPartition
    partition_epoch: PartitionEpoch
    replica: NodeId
    leader: NodeId
    leader_since_ms: int | None
    """When the leader's epoch was decided; None if that was before the log begins."""
    old_isr: tuple[NodeId, ...]
    """The ISR before, which shows the other followers of the leader."""
    new_isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    leader_epoch: LeaderEpoch
    controller_epoch: int = 0


class Return(NamedTuple):
    """The return of a replica to an ISR."""

    at_ms: int
    tp: TopicPartition
    replica: NodeId


class BrokerMoment(NamedTuple):
    """Something that happened to a broker."""

    at_ms: int
    meta_offset: int
    node: NodeId


class Registration(NamedTuple):
    """A process of a broker, identified by its broker epoch from then on."""

    at_ms: int
    meta_offset: int
    node: NodeId
    broker_epoch: int
    is_fast_restart: bool


class Silence(NamedTuple):
    """A period in which nothing was decided."""

    from_ms: int
    to_ms: int
    meta_offset: int


class TopicLife(NamedTuple):
    """The period in which a name is known to have meant a topic."""

    topic_id: str
    from_ms: int
    to_ms: int


@dataclass(slots=True)
class Skeleton:
    """The collected facts; all times are by the clock of the active controller."""

    decisions: dict[tuple[str, int, int], list[Decision]] = field(default_factory=dict)
    epochs: dict[TopicPartition, list[Epochs]] = field(default_factory=dict)
    """Epochs of the requested partitions, in order."""
    topics: dict[str, list[TopicLife]] = field(default_factory=dict)
    removals: list[Removal] = field(default_factory=list)
    returns: list[Return] = field(default_factory=list)
    fences: list[BrokerMoment] = field(default_factory=list)
    shutdowns: list[BrokerMoment] = field(default_factory=list)
    registrations: list[Registration] = field(default_factory=list)
    registered_before: dict[int, int] = field(default_factory=dict)
    """The broker epochs of the processes at the beginning of the log, by node."""
    silences: list[Silence] = field(default_factory=list)
    last_ms: int = 0
    """When the last record was written."""

    def lives(self, topic: str) -> Iterator[TopicLife]:
        """The topics that a name meant within the log."""
        for life in self.topics.get(topic, ()):
            yield life._replace(to_ms=min(life.to_ms, self.last_ms))


_FOREVER = 1 << 62


class Learner:
    """Collects facts from the proved batches as they are read.

    Args:
        kept: where the batches can be read again, if they have to be.
        wanted: the decisions and epochs to keep.
    """

    def __init__(self, copies: Sequence[Copy], kept: Kept, wanted: WantedByLogs) -> None:
        self._copies = copies
        self._kept = kept
        self._wanted = wanted
        self._state = metadata_state.ClusterState()
        self._replay = Replay(self._state)
        self._silences = Silences()
        self._transactions = HeldTransactions()
        self._led_since: dict[TopicPartition, int] = {}
        self._found = Skeleton()
        self._beginning: Beginning | None = None
        self._is_lost = False

    def take(self, batch: FoundBatch) -> None:
        """Take the next proved batch.

        Raises:
            Unreadable: it cannot be read, or is of an unsupported cluster.
        """
        if self._beginning is None:
            # The end of the log is not known yet, so the oldest snapshot is assumed to be before it.
            self._begin(beginning_of(self._copies, batch.offset, _FOREVER))
        start = None if self._beginning is None else self._beginning.start
        if start is not None and batch.offset < start.end_offset:
            return
        ready = self._transactions.ready(batch.path, read_records(batch))
        try:
            self._take(ready)
        except Unreadable as error:
            raise Unreadable(f"{batch.path}: {error}") from error

    def lose(self) -> None:
        """The following batches are not passed on."""
        self._is_lost = True

    def skeleton(self, proof: Proof) -> Skeleton:
        """The facts collected up to the end of the proved part.

        Raises:
            Unreadable: as `Passage.batches`.
        """
        if proof.proved_end <= proof.first_offset:
            return self._found
        beginning = beginning_of(self._copies, proof.first_offset, proof.proved_end)
        if self._is_lost or self._beginning != beginning:
            return self._again(proof, beginning)
        return self._found

    def _again(self, proof: Proof, beginning: Beginning) -> Skeleton:
        """Read again: too many batches waited for their proof, or the oldest snapshot is at the end of the log."""
        other = Learner(self._copies, self._kept, self._wanted)
        other._begin(beginning)
        for batch, _, _ in Passage(self._copies, self._kept, proof).batches():
            other.take(batch)
        return other._found

    def _begin(self, beginning: Beginning) -> None:
        self._beginning = beginning
        self._state.is_whole = beginning.is_whole
        if beginning.start is not None:
            # The meaning of a name before the snapshot is in no record.
            at_ms = self._replay.load(snapshot_records(beginning.start)) or 0
            for topic_id, name in self._state.topics.items():
                self._found.topics.setdefault(name, []).append(TopicLife(topic_id, at_ms, _FOREVER_MS))
            brokers = self._state.brokers.values()
            self._found.registered_before = {one.broker_id: one.broker_epoch for one in brokers}
            for partition in self._state.partitions.values():
                self._keep_epochs(at_ms, partition)

    def _take(self, records: list[MetadataRecord]) -> None:
        self._state.gone.clear()
        facts: list[metadata_state.Fact] = []
        of_fact: list[MetadataRecord] = []
        for record in records:
            self._found.last_ms = max(self._found.last_ms, record.timestamp_ms)
            passed_ms = self._silences.passed(record)
            if passed_ms is not None:
                at_ms = record.timestamp_ms
                self._found.silences.append(Silence(at_ms - passed_ms, at_ms, record.offset))
            found = self._replay.apply(record)
            facts += found
            of_fact += [record] * len(found)
        if facts:
            whys = causes_of(facts)
            for place, (fact, record) in enumerate(zip(facts, of_fact, strict=True)):
                self._keep(fact, whys.get(place), record)

    def _keep(self, fact: metadata_state.Fact, why: Why | None, record: MetadataRecord) -> None:
        found, at_ms, offset = self._found, record.timestamp_ms, record.offset
        match fact:
            case metadata_state.Changed():
                self._changed(fact, why, record)
            case metadata_state.Created(partition):
                name = self._state.name_of(partition.tp.topic_id) or ""
                self._led_since[partition.tp] = at_ms
                lives = found.topics.setdefault(name, [])
                if not any(life.topic_id == partition.tp.topic_id for life in lives):
                    lives.append(TopicLife(partition.tp.topic_id, at_ms, _FOREVER_MS))
                self._decide(name, Decision(at_ms, record.controller_epoch, offset, None, partition, None))
            case metadata_state.Deleted(partition, _, name):
                self._end(name or "", partition.tp.topic_id, at_ms)
                self._led_since.pop(partition.tp, None)
            case metadata_state.Fenced(broker_id):
                found.fences.append(BrokerMoment(at_ms, offset, broker_id))
            case metadata_state.ShutdownBegan(broker_id):
                found.shutdowns.append(BrokerMoment(at_ms, offset, broker_id))
            case metadata_state.Registered(broker_id, _, _, is_fast_restart):
                epoch = self._state.brokers[broker_id].broker_epoch
                found.registrations.append(Registration(at_ms, offset, broker_id, epoch, is_fast_restart))
            case _:
                return

    def _changed(self, fact: metadata_state.Changed, why: Why | None, record: MetadataRecord) -> None:
        before, after, at_ms = fact.before, fact.after, record.timestamp_ms
        name = self._state.name_of(after.tp.topic_id) or ""
        self._decide(name, Decision(at_ms, record.controller_epoch, record.offset, before, after, why))
        if fact.names_leader:
            self._led_since[after.tp] = at_ms
        gone = [node for node in before.isr if node not in after.isr]
        if why is not None and why.initiator == LEADER and why.cause == "lag" and before.leader is not None:
            since = self._led_since.get(after.tp)
            found = [
                (at_ms, record.offset, name, after.tp, after.partition_epoch, node, before.leader, since)
                for node in gone
            ]
            state = (before.isr, after.isr, after.elr, after.leader_epoch, record.controller_epoch)
            self._found.removals += [Removal(*one, *state) for one in found]
        came = (node for node in after.isr if node not in before.isr)
        self._found.returns += [Return(at_ms, after.tp, node) for node in came]

    def _end(self, name: str, topic_id: str, at_ms: int) -> None:
        lives = self._found.topics.get(name, [])
        self._found.topics[name] = [one._replace(to_ms=at_ms) if one.topic_id == topic_id else one for one in lives]

    def _decide(self, name: str, decision: Decision) -> None:
        key = (name, decision.after.tp.partition, decision.after.partition_epoch)
        if key in self._wanted.decisions:
            self._found.decisions.setdefault(key, []).append(decision)
        self._keep_epochs(decision.at_ms, decision.after)

    def _keep_epochs(self, at_ms: int, partition: metadata_state.Partition) -> None:
        if not self._wanted.places:
            return
        if (self._state.name_of(partition.tp.topic_id) or "", partition.tp.partition) in self._wanted.places:
            epochs = Epochs(at_ms, partition.partition_epoch, partition.leader_epoch)
            self._found.epochs.setdefault(partition.tp, []).append(epochs)
