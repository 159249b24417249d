"""The smallest controller that keeps the rules of the ISR: fences, elects, answers AlterPartition by compare-and-set.

It shares no code with the product's controller, so that a mistake in the one is not a mistake in the other. It has no
ELR: the last member stays in the ISR, and the partition waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from core_builders import TP, node_epoch, node_image, partition_image

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch


@dataclass
class NaiveController:
    """One partition on nodes 1 to 3."""

    min_isr: int = 2
    replicas: tuple[int, ...] = (1, 2, 3)
    isr: tuple[int, ...] = (1, 2, 3)
    leader: int | None = 1
    leader_epoch: int = 0
    version: int = 1
    lives: dict[int, int] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), 1))
    fenced: set[int] = field(default_factory=set)
    sequences: dict[NodeEpoch, int] = field(default_factory=dict)
    history: list[tuple[messages.PartitionImage, list[messages.NodeImage]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._committed()

    def _committed(self) -> None:
        image = partition_image(
            leader=self.leader, epoch=self.leader_epoch, version=self.version, isr=self.isr,
            replicas=self.replicas, min_isr=self.min_isr,
        )  # fmt: skip
        nodes = [node_image(n, life=self.lives[n], fenced=n in self.fenced) for n in self.replicas]
        self.history.append((image, nodes))

    def register(self, node: int, life: int) -> None:
        """M56: a new incarnation keeps its places within its session, and ends the leader epoch of the old one."""
        self.lives[node] = life
        if self.leader == node:
            self._elect()
        self._committed()

    def fence(self, node: int) -> None:
        """The session ended: out of the ISR unless it is the last member, and no longer leader."""
        self.fenced.add(node)
        if node in self.isr and len(self.isr) > 1:
            self.isr = tuple(n for n in self.isr if n != node)
            self.version += 1
        if self.leader == node:
            self._elect()
        self._committed()

    def unfence(self, node: int) -> None:
        """The node sends heartbeats again."""
        self.fenced.discard(node)
        if self.leader is None:
            self._elect()
        self._committed()

    def prefer(self, node: int) -> None:
        """Move leadership to a member, like the check for preferred leaders."""
        if node in self.isr and node not in self.fenced:
            self.leader, self.leader_epoch, self.version = node, self.leader_epoch + 1, self.version + 1
            self._committed()

    def _elect(self) -> None:
        electable = [n for n in self.replicas if n in self.isr and n not in self.fenced]
        self.leader = electable[0] if electable else None
        self.leader_epoch += 1
        self.version += 1

    def alter(self, request: messages.AlterPartitionRequest) -> messages.AlterPartitionAnswer:
        """Check one attempt in the order of PROTOCOL.md#the-wire and apply it."""
        if request.node_epoch != node_epoch(request.node_id, self.lives[request.node_id]):
            return messages.AlterPartitionAnswer(refusal=Refusal(ErrorCode.STALE_BROKER_EPOCH))
        if request.request_sequence <= self.sequences.get(request.node_epoch, 0):
            return messages.AlterPartitionAnswer(refusal=Refusal(ErrorCode.INVALID_REQUEST))
        self.sequences[request.node_epoch] = request.request_sequence
        (proposal,) = request.partitions
        code = self._verdict(request.node_id, proposal)
        if code is None:
            self.isr = tuple(n for n in self.replicas if n in dict(proposal.new_isr))
            self.version += 1
            self._committed()
        return messages.AlterPartitionAnswer(partitions=(self._decision(code),))

    def _verdict(self, sender: NodeId, proposal: messages.ProposedIsr) -> ErrorCode | None:
        if proposal.leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        assert proposal.leader_epoch == self.leader_epoch and sender == self.leader
        if proposal.partition_epoch < self.version:
            return ErrorCode.INVALID_UPDATE_VERSION
        assert proposal.partition_epoch == self.version
        for member, known in proposal.new_isr:
            added = member not in self.isr
            if member in self.fenced or (added and known != node_epoch(member, self.lives[member])):
                return ErrorCode.INELIGIBLE_REPLICA
        return None

    def _decision(self, code: ErrorCode | None) -> messages.IsrDecision:
        leader = None if self.leader is None else NodeId(self.leader)
        return messages.IsrDecision(
            TP,
            Refusal(code) if code else None,
            leader,
            LeaderEpoch(self.leader_epoch),
            tuple(map(NodeId, self.isr)),
            PartitionEpoch(self.version),
        )
