"""The placement of replicas while a plan is made, and where each of them may move.

Invariant: what `may_move` allows never puts two replicas of a partition on one node, or more of them into a rack than
C90 allows; what nodes hold, lead and store is counted with every change.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from strandline.core.planning.values import Goal, PlannedNode, PlannedPartition

# One, and what is lost where shares are divided.
_NEAR = 1 + 1e-9

Held = tuple[int, int]
"""Size and index of a partition that a node holds."""


class Band(NamedTuple):
    """A node's share, with the bounds that count as balanced."""

    low: float
    share: float
    high: float


class Layout:
    """The replicas of all partitions, which are known by their index in `partitions`."""

    def __init__(self, nodes: Iterable[PlannedNode], partitions: Iterable[PlannedPartition]) -> None:
        self.nodes = {node.node_id: node for node in sorted(nodes, key=lambda node: node.node_id)}
        # By number first: of equal candidates the first is taken, and one topic's must not all go to one node.
        self.partitions = sorted(partitions, key=lambda each: (each.partition, each.topic))
        for node_id in sorted({node_id for each in self.partitions for node_id in each.replicas} - set(self.nodes)):
            # Not among the nodes, so it takes nothing; what it holds stays, as on a node that may come back (C87).
            self.nodes[node_id] = PlannedNode(node_id=node_id, away=True)
        self.members = [node_id for node_id, node in self.nodes.items() if not (node.draining or node.away)]
        self.takers = [node_id for node_id in self.members if not self.nodes[node_id].full]
        self.are_sizes_known = all(each.size_bytes is not None for each in self.partitions)
        # If some were known and others counted as 0, the known ones would move to mend no real imbalance.
        self.sizes = [(each.size_bytes or 0) if self.are_sizes_known else 0 for each in self.partitions]
        self.replicas: list[list[int]] = [[] for _ in self.partitions]
        self.held: dict[int, list[Held]] = {node_id: [] for node_id in self.nodes}
        self.led: dict[int, list[int]] = {node_id: [] for node_id in self.nodes}
        self.bytes = dict.fromkeys(self.nodes, 0)
        self.reasons: dict[int, list[str]] = {}
        """Why partitions change, in the order in which that was decided."""
        self.racks = {node_id: node.rack for node_id, node in self.nodes.items()}
        # A rack that is being emptied takes nothing, so it must not lower the limit of the others.
        self._rack_count = len({node.rack for node in self.nodes.values() if node.rack and not node.draining})
        alive = {node_id for node_id, node in self.nodes.items() if not node.away}
        self.pinned = {index for index, each in enumerate(self.partitions) if alive.isdisjoint(each.in_sync)}
        """Partitions with no copy in sync on a node that is there: nothing can be copied."""
        for index, each in enumerate(self.partitions):
            self.put(index, list(each.replicas))
        # Replicas on nodes that are down cannot be moved, so they are not shared out (C87).
        staying = sum(self.count(node_id) for node_id, node in self.nodes.items() if node.away and not node.draining)
        self._final_shares = self._shares(sum(map(self.wanted_factor, range(len(self.partitions)))) - staying)

    def put(self, index: int, replicas: list[int], *reasons: str) -> None:
        """Give a partition these replicas, for these reasons."""
        before, size = self.replicas[index], self.sizes[index]
        for node_id in set(before) - set(replicas):
            held = self.held[node_id]
            del held[bisect_left(held, (size, index))]
            self.bytes[node_id] -= size
        for node_id in set(replicas) - set(before):
            insort(self.held[node_id], (size, index))
            self.bytes[node_id] += size
        if before:
            led = self.led[before[0]]
            del led[bisect_left(led, index)]
        insort(self.led[replicas[0]], index)
        self.replicas[index] = replicas
        if reasons:
            # Each once, in their order.
            self.reasons[index] = list(dict.fromkeys([*self.reasons.get(index, []), *reasons]))

    def move(self, index: int, source: int, target: int, reason: str) -> None:
        """Put a replica on another node, at its place in the order."""
        assert self.may_move(index, source, target), f"{self.partitions[index].name} cannot go to node {target}"
        self.put(index, [target if node_id == source else node_id for node_id in self.replicas[index]], reason)

    def may_move(self, index: int, source: int, target: int) -> bool:
        """Whether the replica on ``source`` can be on ``target`` instead; ``target`` is known to take replicas."""
        replicas = self.replicas[index]
        if target in replicas or index in self.pinned:
            return False
        rack = self.racks[target]
        if rack is None or rack == self.racks[source]:
            return True
        return self.crowd(replicas, rack) < self.rack_limit(len(replicas))

    def wanted_factor(self, index: int) -> int:
        """How many replicas the partition should have."""
        return self.partitions[index].replication_factor or len(self.partitions[index].replicas)

    def leaving(self, index: int, goals: Collection[Goal]) -> list[int]:
        """Its replicas on nodes that must be emptied."""
        if Goal.DRAINED not in goals:
            return []
        return [node_id for node_id in self.replicas[index] if self.nodes[node_id].draining]

    def crowd(self, replicas: Iterable[int | None], rack: str | None) -> int:
        """How many of these are in the rack; no rack is never crowded."""
        if rack is None:
            return 0
        return sum(node_id is not None and self.racks[node_id] == rack for node_id in replicas)

    def crowded_rack(self, index: int) -> str | None:
        """The first rack that holds more of the partition than it may."""
        replicas = self.replicas[index]
        limit = self.rack_limit(len(replicas))
        racks = [self.racks[node_id] for node_id in replicas]
        return next((rack for rack in racks if rack is not None and racks.count(rack) > limit), None)

    def rack_limit(self, replication_factor: int) -> int:
        """How many replicas of a partition one rack may hold."""
        return rack_limit(replication_factor, self._rack_count)

    def count(self, node_id: int) -> int:
        """How many replicas the node holds."""
        return len(self.held[node_id])

    def leads(self, node_id: int) -> int:
        """Of how many partitions the node is the first replica."""
        return len(self.led[node_id])

    def surplus(self, node_id: int) -> float:
        """What the node holds beyond its share of what there is to be; below 0: what it lacks."""
        return self.count(node_id) - self._final_shares.get(node_id, 0)

    def bands(self, load: Callable[[int], int]) -> dict[int, Band]:
        """Each member's share of what is counted, within 1; a node that takes nothing need not be filled up to it."""
        return {
            node_id: Band(share - _NEAR if node_id in self.takers else 0, share, share + _NEAR)
            for node_id, share in self._shares(sum(map(load, self.members))).items()
        }

    def byte_bands(self) -> dict[int, Band]:
        """Each member's share of bytes, within 10 %."""
        shares = self._shares(sum(self.bytes[node_id] for node_id in self.members))
        return {node_id: Band(0.9 * share, share, 1.1 * share) for node_id, share in shares.items()}

    def _shares(self, total: int) -> dict[int, float]:
        weights = {node_id: self.nodes[node_id].weight for node_id in self.members}
        return {node_id: total * own / sum(weights.values()) for node_id, own in weights.items()}


def rack_limit(replication_factor: int, racks: int) -> int:
    """How many replicas of a partition each of so many racks may hold."""
    return -(-replication_factor // max(1, racks))


def nearest(held: list[Held], size: float) -> Iterator[Held]:
    """What is held, the nearest to this size first."""
    right = bisect_left(held, (size, -1))
    left = right - 1
    while left >= 0 or right < len(held):
        if left < 0 or (right < len(held) and held[right][0] - size <= size - held[left][0]):
            yield held[right]
            right += 1
        else:
            yield held[left]
            left -= 1
