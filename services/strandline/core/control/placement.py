"""Decides which nodes hold a new partition: spread by load, and across racks if nodes have racks.

Invariant: every replica of a partition is on a different node; observers are never used (M60); the first node, the
preferred leader, is one that can lead now if there is any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from strandline.core.control.draft import Draft
from strandline.core.control.messages import NewTopic
from strandline.core.control.state import ControllerTimings, NodeRecord
from strandline.core.control.topic_configs import MIN_ISR, SEGMENT_BYTES
from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import PartitionImage
from strandline.core.types import GROUPS, TRANSACTIONS, NodeId

MOST_AT_ONCE = 10_000
"""Partitions that one request may add, as in Kafka: every heartbeat waits for the step that adds them."""


class Placement:
    """Counts what each node holds and leads, and places the next partition on the nodes with the least."""

    def __init__(self, nodes: Iterable[NodeRecord], partitions: Iterable[PartitionImage]) -> None:
        images = [record.image for record in nodes]
        self._nodes = {each.node_id: each for each in images if not (each.is_observer or each.draining)}
        self._place = {node_id: place for place, node_id in enumerate(self._nodes)}
        self._held: Counter[NodeId] = Counter()
        self._preferred: Counter[NodeId] = Counter()
        for partition in partitions:
            self._count(partition.target)
        self._before = self._preferred.total()

    @property
    def usable(self) -> int:
        """How many nodes a partition may be placed on, fenced ones included."""
        return len(self._nodes)

    @property
    def active(self) -> int:
        """How many of them can lead now."""
        return sum(not self._is_away(node_id) for node_id in self._nodes)

    def check_number(self, partitions: int) -> Refusal | None:
        """Refuse more partitions than one request may add."""
        if self._preferred.total() - self._before + partitions <= MOST_AT_ONCE:
            return None
        why = f"this request would add more than {MOST_AT_ONCE} partitions; send some of its topics in another"
        return Refusal(ErrorCode.POLICY_VIOLATION, why)

    def check_factor(self, replication_factor: int) -> Refusal | None:
        """Refuse a number of replicas that cannot be placed."""
        if 1 <= replication_factor <= self.usable:
            return None
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication_factor {replication_factor} is not between 1 and {self.usable}, "
            f"the number of registered nodes that may lead and are not drained",
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

    def check_assignment(self, replicas: Sequence[NodeId], also: Collection[NodeId] = ()) -> Refusal | None:
        """Refuse an explicit assignment that breaks the invariant; ``also``: nodes that hold the partition already."""
        if not replicas or len(set(replicas)) < len(replicas):
            return _bad(f"assignment {list(replicas)} must name each replica once, and at least one")
        unknown = [node_id for node_id in replicas if node_id not in self._nodes and node_id not in also]
        if unknown:
            return _bad(f"assignment names {unknown}, which are not registered, are drained, or are observers")
        return None

    def accept(self, replicas: Sequence[NodeId]) -> None:
        """Count an explicit assignment, so that later placements take it into account."""
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
        distance = (self._place[node_id] - self._place[leader]) % len(self._nodes)
        rack = self._nodes[node_id].rack
        crowd = racks[rack] if rack is not None else 0
        return crowd, self._is_away(node_id), self._held[node_id], distance, node_id

    def _is_away(self, node_id: NodeId) -> bool:
        image = self._nodes[node_id]
        return image.fenced or image.shutting_down or image.disk_nearly_full


def _bad(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


# ---- internal_topic_shape
# Decides the shape of a topic that holds coordinators' state, and when the controller may create one (G1).
#
# Invariant: such a topic never has fewer replicas than the controller's setting: one that was created while too few
# nodes were alive would keep too few.

STATE_SEGMENT_BYTES = 1 << 20
"""Only whole segments below the log start are removed, so a sweep would free nothing of a log of one large segment."""
STATE_MIN_ISR = 2


def internal_topic(draft: Draft, timings: ControllerTimings, placement: Placement, new: NewTopic) -> NewTopic | Refusal:
    """The topic to create, or why it cannot be created now."""
    if new.assignments or new.configs or new.num_partitions is not None or new.replication_factor is not None:
        message = f"topic '{new.name}' is internal: the controller shapes it; name no partitions, replicas or settings"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    what, level, partitions = _kind_of(new.name, timings)
    if (refusal := draft.below(level, what)) is not None:
        return refusal
    factor = timings.internal_replication_factor
    if placement.active < factor:
        return Refusal(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{placement.active} nodes are alive, and internal.replication.factor is {factor}: topic '{new.name}' is "
            "created when as many live; start more nodes, or start the controller with a smaller factor",
        )
    configs = ((MIN_ISR, str(min(STATE_MIN_ISR, factor))), (SEGMENT_BYTES, str(STATE_SEGMENT_BYTES)))
    return new._replace(num_partitions=partitions, replication_factor=factor, configs=configs)


def _kind_of(name: str, timings: ControllerTimings) -> tuple[str, int, int]:
    """Whose state a topic holds, which feature level that needs, and how many partitions it has."""
    if name == GROUP_STATE:
        return "groups", GROUPS, timings.group_state_partitions
    assert name == TRANSACTION_STATE, f"{name} is not an internal topic"
    return "transactions", TRANSACTIONS, timings.transaction_state_partitions
