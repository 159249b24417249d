"""What one step of the controller changes, as one transaction, and which epochs rise by it.

Invariant (I14, M34, M57): however often one step touches a partition, its partition epoch rises once if anything
changed, and its leader epoch once if an election was held, each by one or by the skip (`epoch_skips`); a net change of
nothing is no transaction at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from strandline.core import types
from strandline.core.control import state
from strandline.core.control.election import ElectionType, Reports, eligible_set
from strandline.core.control.events import Commit, ControllerEffect, Publish
from strandline.core.control.messages import TopicRef
from strandline.core.control.positions import Doubt
from strandline.core.control.step_parts import LeftOver, ReplicaReports, StepRoom, partition_snapshot
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import Emit
from strandline.core.log.truncation import rule_for
from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.permissions import EVERYTHING, Permit, ResourceType
from strandline.core.state_events import ConfigChange, LeaderChange, Reassignment, Stamped, decided_isr_change
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, TopicPartition

_CONTENT = attrgetter(*(each.name for each in fields(PartitionImage) if each.name != "partition_epoch"))
"""The fields of a partition whose change is published; epochs change with every one."""


class _Reason(NamedTuple):
    cause: str
    initiator: str
    election: ElectionType | None


class Draft:
    """The state as it will be if this step is committed; reads see the step's own changes."""

    def __init__(
        self,
        base: state.ClusterState,
        reports: ReplicaReports | None = None,
        doubt: Doubt | None = None,
        skips: state.EpochSkips | None = None,
        at_most: int | None = None,
        permit: Permit = EVERYTHING,
    ) -> None:
        """``reports``: what nodes reported of their logs in this reign; none are known without it. ``doubt``: which
        nodes it has not heard yet. ``skips``: which partitions it has changed before. ``at_most``: how many this step
        changes before it leaves partitions over (`core.step_parts`); None: all. ``permit``: what the caller may
        touch."""
        self.base = base
        self._reports = reports or ReplicaReports()
        self._doubt = doubt or Doubt()
        self._skips = skips or state.EpochSkips()
        self.header: state.ClusterHeader = base.header
        self._nodes: dict[NodeId, state.NodeRecord] = {}
        self._removed: dict[NodeId, state.RemovedNode] = {}
        self._topics: dict[str, state.TopicRecord] = {}
        self._partitions: dict[TopicPartition, PartitionImage] = {}
        self._put_names: set[str] = set()
        self._deleted: dict[str, None] = {}
        self._reigns: tuple[state.ReignRecord, ...] = ()
        self.acls, self.quotas = base.acls, base.quotas
        self.permit = permit
        self._reasons: dict[TopicPartition, _Reason] = {}
        self._emits: list[tuple[TopicPartition | None, Stamped]] = []
        self._room = StepRoom(at_most, self._partitions)

    def node(self, node_id: NodeId) -> state.NodeRecord | None:
        """One node."""
        if node_id in self._removed:
            return None
        return self._nodes.get(node_id) or self.base.nodes.get(node_id)

    def nodes(self) -> list[state.NodeRecord]:
        """All nodes in the order of their ids."""
        known = {**self.base.nodes, **self._nodes}
        return [record for node_id, record in sorted(known.items()) if node_id not in self._removed]

    def is_active(self, node_id: NodeId) -> bool:
        """Whether this node may be in an ISR and lead."""
        record = self.node(node_id)
        if record is None:
            return False
        return not (record.image.fenced or record.image.shutting_down or record.image.is_observer)

    def has_room(self, node_id: NodeId) -> bool:
        """Whether this node should lead: its disk accepts appends, and it is not being drained."""
        record = self.node(node_id)
        return record is not None and not (record.image.disk_nearly_full or record.image.draining)

    def _is_unfenced(self, node_id: NodeId) -> bool:
        record = self.node(node_id)
        return record is not None and not record.image.fenced

    def waits_for(self, partition: PartitionImage) -> tuple[NodeId, ...]:
        """The live replicas not heard in this reign: until they are, no leader is elected here (C37)."""
        return self._doubt.waits_for(partition, self._is_unfenced)

    @property
    def proves_members(self) -> bool:
        """Whether a new process has to be counted by a leader before it is complete again (M64).

        The historic rules trusted every process that came back.
        """
        return rule_for(self.header.rules.truncation).proves_members

    @property
    def compares_logs(self) -> bool:
        """Whether an election among unproven members waits for reports of their logs (M65).

        Not while a live node runs a release that cannot report.
        """
        return self.proves_members and self.header.feature_level >= types.REPORTED_ELECTIONS

    def below(self, level: int, what: str) -> Refusal | None:
        """Why ``what`` (a plural noun) must wait for a feature level, and which live nodes keep the cluster below."""
        if self.header.feature_level >= level:
            return None
        older = [str(each.image.node_id) for each in self.nodes() if each.feature_max < level and not each.image.fenced]
        first = f"nodes of an older release: {', '.join(older)}" if older else "every node"
        found = f"the cluster works at feature level {self.header.feature_level}, and {what} need {level}"
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, f"{found}; upgrade first {first}")

    def reports_of(self, partition: PartitionImage) -> Reports:
        """What active replicas' present processes reported of their logs, while the partition has no leader."""
        found = self._reports.of(partition)
        return {
            node_id: info
            for node_id, (node_epoch, info) in found.items()
            # What an earlier process reported may be lost by now, and a node that is not active cannot be elected.
            if self.is_active(node_id) and self._is_current(node_id, node_epoch)
        }

    def has_waited(self, partition: PartitionImage) -> bool:
        """Whether this partition has waited long enough for reports."""
        return self._reports.is_over(partition)

    def _is_current(self, node_id: NodeId, node_epoch: NodeEpoch) -> bool:
        record = self.node(node_id)
        return record is not None and record.image.node_epoch == node_epoch

    def observers(self) -> tuple[NodeId, ...]:
        """Every registered observer (M60)."""
        return tuple(record.image.node_id for record in self.nodes() if record.image.is_observer)

    def topic(self, ref: TopicRef) -> TopicImage | Refusal:
        """The topic referred to, as it was before this step (M63), if the caller may access it."""
        found = self.base.topics.get(ref.topic_id) if ref.topic_id else self.named.get(ref.name)
        if found is not None and found.topic_id in self._deleted:
            found = None
        # Before anything else is said, or the kind of refusal would show a caller which topics there are (ADR 32).
        if refusal := self.permit.topic_refusal(ref.name, ref.topic_id, found.name if found else ""):
            return refusal
        if found is not None:
            if ref.topic_id and ref.name and found.name != ref.name:
                return Refusal(ErrorCode.INCONSISTENT_TOPIC_ID, f"topic id {ref.topic_id} is '{found.name}'")
            return found
        if ref.topic_id:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {ref.topic_id}")
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic is called '{ref.name}'")

    def sees(self, name: str) -> bool:
        """Whether the caller may know that this topic exists."""
        return self.permit.sees(ResourceType.TOPIC, name)

    def has_name(self, name: str) -> bool:
        """Whether a topic has this name, including topics created in this step."""
        known = self.named.get(name)
        return name in self._put_names or (known is not None and known.topic_id not in self._deleted)

    @cached_property
    def named(self) -> dict[str, TopicImage]:
        """The topics by name, as they were before this step, whatever the caller may see; one request may name all."""
        return {topic.name: topic for topic in self.base.topics.values()}

    def configs(self, topic_id: str) -> tuple[tuple[str, str], ...]:
        """The settings of a topic, including this step's changes."""
        record = self._topics.get(topic_id)
        return record.configs if record else self.base.topics[topic_id].configs

    def partition(self, tp: TopicPartition) -> PartitionImage | None:
        """One partition, including this step's change."""
        if tp.topic_id in self._deleted:
            return None
        return self._partitions.get(tp) or self.base.partition(tp)

    def partitions(self) -> Iterator[PartitionImage]:
        """Every partition that was there before this step, its changes included."""
        for topic in self.base.topics.values():
            if topic.topic_id in self._deleted:
                continue
            for partition in topic.partitions:
                yield self._partitions.get(partition.tp, partition)

    def changed(self) -> list[PartitionImage]:
        """The partitions that this step has changed or added so far."""
        return list(self._partitions.values())

    @property
    def left_over(self) -> LeftOver:
        """The partitions that a later step has to look at."""
        return self._room.left_over

    def as_room_allows(
        self, partitions: Sequence[PartitionImage], is_elected: Callable[[PartitionImage], bool]
    ) -> Iterator[PartitionImage]:
        """As many of these partitions as one step may change, elections first; the rest is left over."""
        return self._room.take(partitions, self._partitions_of, is_elected)

    def going_on(self, left: LeftOver, is_elected: Callable[[PartitionImage], bool]) -> Iterator[PartitionImage]:
        """What earlier steps left over, as much as one step may change; the rest stays left over."""
        return self._room.go_on(left, self.partition, self._partitions_of, is_elected)

    def _partitions_of(self, partition: PartitionImage) -> int:
        return len(self.base.topics[partition.tp.topic_id].partitions)

    def gone(self) -> frozenset[NodeId]:
        """The nodes that no ISR may contain: fenced, or shutting down."""
        return frozenset(r.image.node_id for r in self.nodes() if r.image.fenced or r.image.shutting_down)

    def next_leader_epoch(self, tp: TopicPartition) -> LeaderEpoch:
        """The leader epoch after an election in this step."""
        before = self.base.partition(tp)
        return self._skips.leader_epoch_after(before) if before else LeaderEpoch(0)

    def put_node(self, record: state.NodeRecord) -> None:
        """Add or replace a node."""
        self._nodes[record.image.node_id] = record

    def remove_node(self, removed: state.RemovedNode) -> None:
        """Remove a node and keep its tombstone."""
        self._nodes.pop(removed.node_id, None)
        self._removed[removed.node_id] = removed

    def put_topic(self, record: state.TopicRecord) -> None:
        """Add a topic, or replace everything but its partitions."""
        self._topics[record.topic_id] = record
        self._put_names.add(record.name)

    def delete_topic(self, topic: TopicImage) -> None:
        """Delete a topic with its partitions."""
        self._deleted[topic.topic_id] = None
        self._topics.pop(topic.topic_id, None)
        for partition in topic.partitions:
            self._partitions.pop(partition.tp, None)

    def add_partition(self, partition: PartitionImage) -> None:
        """Add a partition at its first epochs."""
        self._partitions[partition.tp] = partition
        self._reasons[partition.tp] = _Reason("created", "controller", ElectionType.ISR)

    def put_partition(
        self,
        changed: PartitionImage,
        *,
        cause: str,
        initiator: str = "controller",
        election: ElectionType | None = None,
        new_reign: bool = False,
    ) -> PartitionImage:
        """Replace a partition; its epochs follow from the state before this step. Returns it with them.

        ``new_reign`` says that an election was held or a leader lost, even if the same node leads again (M56).
        """
        tp = changed.tp
        before, current = self.base.partition(tp), self.partition(tp)
        assert before is not None and current is not None, f"{tp} does not exist"
        bumped = new_reign or current.leader_epoch > before.leader_epoch or changed.leader != before.leader
        leader_epoch = self._skips.leader_epoch_after(before) if bumped else before.leader_epoch
        epoch = self._skips.partition_epoch_after(before)
        members = {*changed.isr, *changed.elr}
        # A node that has left ISR and ELR returns as leader or counted by one, and either proves it (M64).
        unproven = tuple(node_id for node_id in changed.unproven if node_id in members)
        self._partitions[tp] = replace(changed, leader_epoch=leader_epoch, partition_epoch=epoch, unproven=unproven)
        self._reasons[tp] = _Reason(cause, initiator, election)
        return self._partitions[tp]

    def begin_reign(self, reign_id: str) -> None:
        """Begin a reign with this step's transaction; the header has its controller epoch."""
        self._reigns = state.begun(
            self.base.reigns,
            reign_id=reign_id,
            controller_epoch=self.header.controller_epoch,
            first_offset=self.base.header.metadata_offset + 1,
        )

    def emit(self, tp: TopicPartition | None, event: Stamped) -> None:
        """Report an event after the transaction is durable."""
        self._emits.append((tp, event))

    def emitted(self, *kinds: type[Stamped]) -> set[TopicPartition]:
        """The partitions of which this step reports an event of one of these kinds so far."""
        return {tp for tp, event in self._emits if tp is not None and type(event) in kinds}

    def finish(self) -> tuple[state.ClusterState, list[ControllerEffect]]:
        """The state after this step, and what must be made durable, published and reported for it."""
        partitions = tuple(p for p in self._partitions.values() if self._is_news(p))
        nodes = tuple(n for n in self._nodes.values() if self.base.nodes.get(n.image.node_id) != n)
        acls, removed_acls = _without(self.acls, self.base.acls), _without(self.base.acls, self.acls)
        quotas, removed_quotas = _without(self.quotas, self.base.quotas), _without(self.base.quotas, self.quotas)
        if (
            not (partitions or nodes or self._removed or self._topics or self._deleted)
            and not (acls or removed_acls or quotas or removed_quotas)
            and self.header == self.base.header
        ):
            return self.base, [Emit(tp, event) for tp, event in self._emits]
        self.header = replace(self.header, metadata_offset=self.base.header.metadata_offset + 1)
        transaction = state.Transaction(
            header=self.header,
            removed_nodes=tuple(self._removed.values()),
            nodes=nodes,
            topics=tuple(self._topics.values()),
            partitions=partitions,
            deleted_topic_ids=tuple(self._deleted),
            reigns=self._reigns,
            removed_acls=removed_acls,
            acls=acls,
            removed_quotas=removed_quotas,
            quotas=quotas,
        )
        after = self.base.apply(transaction)
        effects: list[ControllerEffect] = [
            # First: what a node was sent and the store then lost would be given again by the next reign (I23).
            Commit(transaction),
            Publish(change_image(after, transaction), after.header.secret),
        ]
        offset = self.header.metadata_offset
        effects += [Emit(tp, event._replace(meta_offset=offset)) for tp, event in self._emits]
        reported = self.emitted(Reassignment, ConfigChange)
        for partition in partitions:
            effects += self._partition_events(partition, partition.tp in reported)
        return after, effects

    def _is_news(self, changed: PartitionImage) -> bool:
        before = self.base.partition(changed.tp)
        return before is None or _CONTENT(changed) != _CONTENT(before)

    def _partition_events(self, after: PartitionImage, is_reported: bool) -> Iterator[Emit]:
        """``is_reported``: by an event of this step. An epoch without one is a hole to statistics, so a new process of
        a member, or its proof (M64), is an ISR that stays."""
        before = self.base.partition(after.tp)
        is_silent = not is_reported and before is not None and after.leader_epoch == before.leader_epoch
        reason = self._reasons[after.tp]
        meta_offset = self.header.metadata_offset
        if before is None:
            # Neither a shrink nor an expansion: where the partition begins.
            yield partition_snapshot(after, meta_offset=meta_offset)
        elif is_silent or after.isr != before.isr or after.elr != before.elr:
            isr_change = decided_isr_change(
                before.isr,
                after.isr,
                after.elr,
                reason.cause,
                reason.initiator,
                after.leader_epoch,
                after.partition_epoch,
                meta_offset,
            )
            yield Emit(after.tp, isr_change)
        if before is None or after.leader_epoch != before.leader_epoch:
            leader_change = LeaderChange(
                old_leader=before.leader if before else None,
                new_leader=after.leader,
                old_leader_epoch=before.leader_epoch if before else None,
                new_leader_epoch=after.leader_epoch,
                reason=reason.cause,
                election_type=reason.election.value if reason.election else None,
                eligible_set=eligible_set(after, self.is_active),
                leader_epoch=after.leader_epoch,
                partition_epoch=after.partition_epoch,
                meta_offset=meta_offset,
            )
            yield Emit(after.tp, leader_change)


def _without(rows: tuple[state.Row, ...], others: tuple[state.Row, ...]) -> tuple[state.Row, ...]:
    """The elements of the first that are not in the second, in order."""
    left: set[state.Row] = set(rows).difference(others) if rows is not others else set()
    return tuple(sorted(left))


def change_image(after: state.ClusterState, transaction: state.Transaction) -> MetadataImage:
    """The change image of a transaction: changed topics and nodes whole, without what only controllers may see."""
    touched = {partition.tp.topic_id for partition in transaction.partitions}
    touched.update(record.topic_id for record in transaction.topics)
    nodes: tuple[NodeImage, ...] = tuple(record.image for record in transaction.nodes)
    return MetadataImage(
        cluster_id=after.header.cluster_id,
        controller_epoch=after.header.controller_epoch,
        metadata_offset=after.header.metadata_offset,
        is_snapshot=False,
        rules=after.header.rules,
        feature_level=after.header.feature_level,
        nodes=nodes,
        topics=tuple(topic for topic_id, topic in after.topics.items() if topic_id in touched),
        deleted_topic_ids=transaction.deleted_topic_ids,
        removed_node_ids=tuple(removed.node_id for removed in transaction.removed_nodes),
        reigns=state.present(after.reigns),
        # None means that nothing changed; an empty tuple, that the last rule was removed.
        acls=after.acls if transaction.acls or transaction.removed_acls else None,
        quotas=after.quotas if transaction.quotas or transaction.removed_quotas else None,
    )
