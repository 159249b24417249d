"""What a deployment needs, from costs that were fitted to measurements: nodes, cores, bytes of metadata, and the first
limit that it meets.

Every cost is a straight line over the quantity that causes it. Two measured points that no line was fitted to are kept
aside and compared with what the lines predict there (`Check`).

Invariant: a prediction is a function of the fitted costs and of the limits in `strandline.rpc.channels`; no figure
of it is written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strandline.rpc.channels import MAX_MESSAGE_BYTES

Points = Sequence[tuple[float, float]]
"""What was caused by how much: (quantity, cost)."""

BUSY_SHARE = 0.7
"""The share of its one core that a node is planned to use: the rest is for failovers, restarts and bursts."""


HEARTBEAT_S = 2.0
"""The default interval of heartbeats: a controller that decides for longer without a pause answers some of them
late."""


@dataclass(frozen=True, slots=True)
class Line:
    """``at_nothing + slope * quantity``, fitted by least squares."""

    at_nothing: float
    slope: float

    @classmethod
    def through(cls, points: Points) -> Line:
        """Fit.

        Raises:
            ValueError: all points have the same quantity, so no slope can be known.
        """
        xs, ys = [x for x, _ in points], [y for _, y in points]
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        spread = sum((each - x) ** 2 for each in xs)
        if not spread:
            raise ValueError("a line needs points of at least two quantities")
        slope = sum((a - x) * (b - y) for a, b in points) / spread
        return cls(y - slope * x, slope)

    def at(self, quantity: float) -> float:
        """The cost of a quantity."""
        return self.at_nothing + self.slope * quantity


@dataclass(frozen=True, slots=True)
class Check:
    """A measured point that no line was fitted to, and what the line says there."""

    what: str
    predicted: float
    measured: float
    unit: str

    @property
    def off_by(self) -> float:
        """The error of the prediction as a share of what was measured."""
        return (self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """All lines. Processor time in us; quantities as named."""

    leader_batch: Line
    """Of a leader per acknowledged batch, over its KiB."""
    follower_batch: Line
    """Of one follower per batch, over its KiB."""
    idle_partitions: Line
    """Of a data node per second, over the partitions of the cluster, each on three nodes of three."""
    idle_clients: Line
    """Of a leader per second, over consumers that wait at the end of a partition."""
    idle_nodes: Line
    """Of the controller per second, over the data nodes."""
    watching_clients: Line
    """Of the controller per second, over clients, each of which watches the metadata."""
    changes: Line
    """Of the controller per change of a topic, over those that watch: all data nodes and all clients."""
    controller_elections: Line
    """Of the controller, over the partitions whose leader died."""
    node_elections: Line
    """Of a surviving node, over the partitions whose leader died."""
    partition_kib: Line
    """Resident memory of a data node, KiB, over partitions."""
    client_kib: Line
    """Resident memory of a leader, KiB, over waiting consumers."""
    metadata_by_partitions: Line
    """Bytes of the encoded cluster state, over partitions."""
    metadata_by_nodes: Line
    """Bytes of the encoded cluster state, over nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What is to be built: payload per second over all partitions, bytes; size of a batch, KiB."""

    name: str
    bytes_per_s: float
    batch_kib: int
    partitions: int
    nodes: int
    clients: int


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a resource a deployment uses, and how much of it there is."""

    resource: str
    used: float
    limit: float
    unit: str

    @property
    def share(self) -> float:
        """Above 1: this breaks."""
        return self.used / self.limit


REPLICAS = 3
_SECOND_US = 1e6


def uses(costs: Costs, wanted: Deployment) -> list[Use]:
    """Every resource that has a limit, the one that breaks first at the head."""
    found = [
        Use("core of a data node", node_us_per_s(costs, wanted) / _SECOND_US, BUSY_SHARE, "cores"),
        Use("core of the controller", controller_us_per_s(costs, wanted) / _SECOND_US, BUSY_SHARE, "cores"),
        Use("one message with the whole state", metadata_bytes(costs, wanted), MAX_MESSAGE_BYTES, "bytes"),
        Use("controller's time for one dead node", dead_node_s(costs, wanted), HEARTBEAT_S, "s"),
    ]
    return sorted(found, key=lambda use: -use.share)


def node_us_per_s(costs: Costs, wanted: Deployment) -> float:
    """Processor time of one data node per second, us, with everything spread evenly."""
    batches_per_s = wanted.bytes_per_s / (wanted.batch_kib * 1024) / wanted.nodes
    leading = batches_per_s * costs.leader_batch.at(wanted.batch_kib)
    following = batches_per_s * (REPLICAS - 1) * costs.follower_batch.at(wanted.batch_kib)
    # The line was fitted where every node has every partition.
    held = wanted.partitions * min(1.0, REPLICAS / wanted.nodes)
    waiting = costs.idle_clients.slope * wanted.clients / wanted.nodes
    return leading + following + costs.idle_partitions.at(held) + waiting


def nodes_for(costs: Costs, wanted: Deployment) -> int:
    """The fewest nodes whose cores suffice, at least three."""
    low, high = REPLICAS, REPLICAS
    while not _suffices(costs, wanted, high):
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        if _suffices(costs, wanted, middle):
            high = middle
        else:
            low = middle + 1
    return high


def machines_for(costs: Costs, wanted: Deployment, workers: int) -> int:
    """The fewest machines with so many workers each (`--workers`), at least one for each replica: the rack of a worker
    is its machine."""
    return max(REPLICAS, -(-nodes_for(costs, wanted) // workers))


def dead_machine_s(costs: Costs, wanted: Deployment, workers: int) -> float:
    """The controller's processor time for the elections after a machine's death, whose workers are as many dead nodes.

    What it led is what its workers led together; every one of them is a change of its own that all receive.
    """
    machines = machines_for(costs, wanted, workers)
    return workers * dead_node_s(costs, replace(wanted, nodes=machines * workers))


def _suffices(costs: Costs, wanted: Deployment, nodes: int) -> bool:
    planned = Deployment(
        name=wanted.name, bytes_per_s=wanted.bytes_per_s, batch_kib=wanted.batch_kib, partitions=wanted.partitions,
        nodes=nodes, clients=wanted.clients,
    )  # fmt: skip
    return node_us_per_s(costs, planned) <= BUSY_SHARE * _SECOND_US


def metadata_bytes(costs: Costs, wanted: Deployment) -> float:
    """The encoded state of the cluster."""
    return costs.metadata_by_partitions.at(wanted.partitions) + costs.metadata_by_nodes.slope * wanted.nodes


def controller_us_per_s(costs: Costs, wanted: Deployment) -> float:
    """Processor time of the controller per second while nothing changes, us: heartbeats, and signs of life."""
    return costs.idle_nodes.at(wanted.nodes) + costs.watching_clients.slope * wanted.clients


def _change_us(costs: Costs, wanted: Deployment) -> float:
    return costs.changes.at(wanted.nodes + wanted.clients)


def dead_node_s(costs: Costs, wanted: Deployment) -> float:
    """The controller's processor time for the elections after one node's death, and to send them to all that watch."""
    led = wanted.partitions / wanted.nodes
    return (costs.controller_elections.slope * led + _change_us(costs, wanted)) / _SECOND_US


def changes_per_s(costs: Costs, wanted: Deployment) -> float:
    """How many single changes (an ISR, a setting, a leader) the controller can decide and send to all that watch."""
    left_us = BUSY_SHARE * _SECOND_US - controller_us_per_s(costs, wanted)
    return max(0.0, left_us / _change_us(costs, wanted))


def most_partitions(costs: Costs, nodes: int) -> int:
    """How many partitions one message with the whole state can hold."""
    rest = MAX_MESSAGE_BYTES - costs.metadata_by_partitions.at_nothing - costs.metadata_by_nodes.slope * nodes
    return max(0, int(rest / costs.metadata_by_partitions.slope))
