"""What one data node knows: who it is, what the cluster looks like, and its part in every partition.

Invariant: a partition with an open log is in exactly one of ``leaders`` and ``followers`` once its
metadata was applied; ``images`` holds the newest metadata, whether or not the log is open yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import Effect, SaveReconciledEpochs
from strandline.core.log.follower import FollowerReplica
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.log.saving_order import NodeTimings
from strandline.core.log.truncation import rule_for
from strandline.core.messages import LeaderHint, NodeImage, PartitionImage, ReplicaState, TopicImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, Rules, TopicPartition

NOTHING = -1
"""A limit of batches below every batch's size."""


class NodeState:
    """Shared by the parts of `NodeCore`; each part changes only what its own docstring says."""

    def __init__(self, node_id: NodeId, rules: Rules, timings: NodeTimings) -> None:
        self.node_id = node_id
        self.rules = rules
        self.truncation = rule_for(rules.truncation)
        self.timings = timings
        self.cluster_id = ""
        # None until this process registered; until then it neither leads nor follows.
        self.node_epoch: NodeEpoch | None = None
        self.controller_epoch = 0
        self.nodes: dict[NodeId, NodeImage] = {}
        self.images: dict[TopicPartition, PartitionImage] = {}
        self.topic_names: dict[str, str] = {}
        # Every topic of the cluster, also those this node has no part in, by id; `MetadataFollower` keeps it.
        self.topics: dict[str, TopicImage] = {}
        # Topic id -> max.message.bytes, for topics that set it; every other takes what the format allows. An internal
        # topic takes `NOTHING`, so that no produce request to another pays for the question.
        self.batch_limits: dict[str, int] = {}
        self.logs: dict[TopicPartition, ReplicaLog] = {}
        self.leaders: dict[TopicPartition, LeaderReplica] = {}
        self.followers: dict[TopicPartition, FollowerReplica] = {}
        # Logs whose reconciled epoch is newer than the one on disk; written once at the end of the step (M66).
        self.unsaved_reconciled: dict[TopicPartition, LeaderEpoch] = {}
        # Logs that the controller may have to know for an election; `LogReporter` looks at them and empties this.
        self.unreported: dict[TopicPartition, None] = {}
        self._correlations = self._count()

    @property
    def identity(self) -> ReplicaState:
        """This process as it names itself in requests."""
        assert self.node_epoch is not None
        return ReplicaState(self.node_id, self.node_epoch)

    def next_correlation_id(self) -> int:
        """A number that no other request of this process has."""
        return next(self._correlations)

    def reconcile(self, tp: TopicPartition, epoch: LeaderEpoch) -> None:
        """This log leads in ``epoch``, or agrees with the log of that epoch's leader (M66)."""
        log = self.logs[tp]
        if log.reconciled_epoch != epoch:
            log.reconciled_epoch = self.unsaved_reconciled[tp] = epoch

    def save_reconciled(self, out: list[Effect]) -> None:
        """One durable write for all logs that came to lead or to agree, before any of them is counted in the epoch."""
        if self.unsaved_reconciled:
            out.append(SaveReconciledEpochs(dict(self.unsaved_reconciled)))
            self.unsaved_reconciled.clear()

    @staticmethod
    def _count() -> Iterator[int]:
        number = 1
        while True:
            yield number
            number += 1

    def hint(self, tp: TopicPartition) -> LeaderHint | None:
        """The leader that this node knows of, for a caller that asked the wrong node."""
        image = self.images.get(tp)
        return LeaderHint(image.leader, image.leader_epoch) if image else None

    def unknown(self, tp: TopicPartition) -> Refusal:
        """The refusal of a partition that this node does not know."""
        if tp.topic_id not in self.topic_names:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {tp.topic_id!r}; refresh metadata")
        name = self.topic_names[tp.topic_id]
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {name!r} has no partition {tp.partition}; ask for one that DescribeTopics lists",
        )

    def check_epoch(self, tp: TopicPartition, current: LeaderEpoch | None) -> Refusal | None:
        """Compare the leader epoch a request carries with the one this node knows (KIP-320)."""
        image = self.images[tp]
        if current is None or current == image.leader_epoch:
            return None
        if current < image.leader_epoch:
            return Refusal(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"current_leader_epoch {current} is older than {image.leader_epoch}; refresh metadata",
            )
        return Refusal(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"current_leader_epoch {current} is newer than {image.leader_epoch}, which this node knows; "
            "back off and ask again",
        )

    def check_asker_epoch(self, tp: TopicPartition, current: LeaderEpoch | None, *, by_replica: bool) -> Refusal | None:
        """As `check_epoch`, but under a historic rule a replica's leader epoch is not compared: the hole of TR4."""
        if by_replica and not self.truncation.fenced:
            return None
        return self.check_epoch(tp, current)

    def not_leader(self, tp: TopicPartition) -> Refusal:
        """The refusal of a call for a partition that this node does not lead."""
        leader = self.images[tp].leader
        known = f"node {leader} leads it" if leader is not None else "it has no leader now"
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self.node_id} does not lead this partition: {known}")
