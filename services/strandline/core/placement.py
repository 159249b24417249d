"""Decides which nodes hold a new partition: spread by load, across racks where there are some.

Invariant: every partition has as many different nodes as it has replicas; observers are never among them
(M60); the first one, its preferred leader, is one that can lead now if there is any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from strandline.core.controller_state import NodeRecord
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId


class Placement:
    """Counts what every node holds and leads, and gives the next partition to those with least."""

    def __init__(self, nodes: Iterable[NodeRecord], partitions: Iterable[PartitionImage]) -> None:
        self._nodes = {record.image.node_id: record.image for record in nodes if not record.image.is_observer}
        self._held: Counter[NodeId] = Counter()
        self._preferred: Counter[NodeId] = Counter()
        for partition in partitions:
            self._count(partition.replicas)

    @property
    def usable(self) -> int:
        """How many nodes a partition may be placed on, fenced ones included."""
        return len(self._nodes)

    @property
    def active(self) -> int:
        """How many of them can lead now."""
        return sum(not self._is_away(node_id) for node_id in self._nodes)

    def check_factor(self, replication_factor: int) -> Refusal | None:
        """Refuse a number of replicas that cannot be placed."""
        if 1 <= replication_factor <= self.usable:
            return None
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication_factor {replication_factor} is not between 1 and {self.usable}, "
            f"the number of registered nodes that may lead",
        )

    def place(self, replication_factor: int) -> tuple[NodeId, ...]:
        """The nodes of one new partition, the preferred leader first."""
        assert 1 <= replication_factor <= self.usable
        chosen = [min(self._nodes, key=self._leader_rank)]
        while len(chosen) < replication_factor:
            racks = Counter(self._nodes[node_id].rack for node_id in chosen)
            rest = [node_id for node_id in self._nodes if node_id not in chosen]
            chosen.append(min(rest, key=lambda node_id: self._follower_rank(node_id, chosen[0], racks)))
        self._count(chosen)
        return tuple(chosen)

    def check_assignment(self, replicas: Sequence[NodeId]) -> Refusal | None:
        """Refuse an explicit assignment that breaks the invariant."""
        if not replicas or len(set(replicas)) < len(replicas):
            return _bad(f"assignment {list(replicas)} must name each replica once, and at least one")
        unknown = [node_id for node_id in replicas if node_id not in self._nodes]
        if unknown:
            return _bad(f"assignment names {unknown}, which are not registered or are observers")
        return None

    def accept(self, replicas: Sequence[NodeId]) -> None:
        """Count an explicit assignment, so that what is placed beside it spreads."""
        self._count(replicas)

    def _count(self, replicas: Sequence[NodeId]) -> None:
        self._held.update(replicas)
        self._preferred[replicas[0]] += 1

    def _leader_rank(self, node_id: NodeId) -> tuple[bool, int, int, NodeId]:
        return self._is_away(node_id), self._preferred[node_id], self._held[node_id], node_id

    def _follower_rank(
        self, node_id: NodeId, leader: NodeId, racks: Counter[str | None]
    ) -> tuple[int, bool, int, int, NodeId]:
        # Behind the leader in a ring: partitions that share a leader get different followers.
        distance = (list(self._nodes).index(node_id) - list(self._nodes).index(leader)) % len(self._nodes)
        rack = self._nodes[node_id].rack
        crowd = racks[rack] if rack is not None else 0
        return crowd, self._is_away(node_id), self._held[node_id], distance, node_id

    def _is_away(self, node_id: NodeId) -> bool:
        image = self._nodes[node_id]
        return image.fenced or image.shutting_down or image.disk_nearly_full


def _bad(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
