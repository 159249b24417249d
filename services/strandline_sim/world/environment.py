"""What every part of a simulated cluster shares: time, network, draws, timings, counts and notes.

Invariant: nothing here knows of machines, clients or a controller, so that all of them may be built on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from strandline.core.control.controller import ControllerCore
from strandline.core.control.election import Elected, ElectionType
from strandline.core.control.events import ControllerEffect
from strandline.core.control.leadership import install
from strandline.core.control.state import ClusterState, ControllerTimings
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.types import NodeId, Rules, TopicPartition
from strandline.observe.reporting import Reporting
from strandline_sim.runs.shape import Shape
from strandline_sim.world.clock import Timeline
from strandline_sim.world.network import Network
from strandline_sim.world.virtual_loop import VirtualLoop

# ---- coverage
# Counts how often each thing happened in all runs of a campaign, to see whether the campaign saw what it promises.
#
# Invariant: only what happened in the cores or on the wire is counted, never what was only planned.


class Coverage:
    """Counts of what happened in one run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def saw(self, what: str, times: int = 1) -> None:
        """Something happened."""
        self.counts[what] += times


def missing(counts: Mapping[str, int], promises: Iterable[str]) -> list[str]:
    """The promised things that were never seen."""
    return [promise for promise in promises if not counts.get(promise)]


# ---- build
# Chooses the cores that a world runs: the production ones, or ones with one rule exchanged.
#
# Invariant: a world never names a core class itself, so a mutant is a `Build` and nothing else changes.


class ElectableController(ControllerCore):
    """The production controller, with a way to hold an election that only a schedule asks for (churn)."""

    def elect(self, tp: TopicPartition, node_id: NodeId) -> list[ControllerEffect]:
        """Make an active and proven member of the ISR leader, by the production rules of an election."""
        draft = self._draft()
        partition = draft.partition(tp)
        proven = () if partition is None else set(partition.isr) - set(partition.unproven)
        if partition is not None and node_id in proven and draft.is_active(node_id):
            install(draft, partition, Elected(node_id, ElectionType.ISR), "requested")
        return self._commit(draft)


OBSERVED_NODE = partial(NodeCore, observe=Reporting)
"""A data node's core as the services create it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Creates the cores of a world."""

    node_core: Callable[..., NodeCore] = OBSERVED_NODE
    controller_core: Callable[[ClusterState | None, Rules, ControllerTimings], ElectableController] = (
        ElectableController
    )


PRODUCTION = Build()

TOPIC_ID = "00000000-0000-0000-0000-000000000001"

NODE_TIMINGS = NodeTimings(
    replica_lag_time_max_ms=700,
    replica_fetch_wait_max_ms=120,
    replica_fetch_response_max_bytes=4_096,
    replica_fetch_max_bytes=2_048,
    replica_fetch_backoff_ms=20,
    replica_fetch_backoff_max_ms=200,
    alter_partition_retry_ms=30,
    high_watermark_checkpoint_interval_ms=400,
    pause_grace_after_ms=200,
)
CONTROLLER_TIMINGS = ControllerTimings(
    # Steps are cut wherever a node leaves two partitions.
    partitions_per_step=1,
    session_timeout_ms=600,
    heartbeat_interval_ms=150,
    # So that a second one on the same nodes waits.
    moves_per_node=1,
    leader_imbalance_check_interval_ms=3_000,
)


class Environment:
    """The state that the parts of one run share."""

    def __init__(self, shape: Shape, build: Build) -> None:
        self.shape = shape
        self.build = build
        self.rules = Rules(durability=shape.durability, truncation=shape.truncation)
        self.node_timings = NODE_TIMINGS
        self.controller_timings = CONTROLLER_TIMINGS
        self.timeline = Timeline()
        self.loop = VirtualLoop(self.timeline)
        self.events = 0
        self.coverage = Coverage()
        self.network = Network(
            self.timeline, shape.seed, delay_us=shape.delay_us, lost_per_mille=shape.lost_per_mille, sticky=shape.sticky
        )
        self.topic_id = TOPIC_ID
        self.tps = [TopicPartition(TOPIC_ID, index) for index in range(shape.partitions)]

    @property
    def outcast(self) -> NodeId | None:
        """The node that is left broken at the end (L8)."""
        return None if self.shape.outcast is None else NodeId(self.shape.outcast)

    def note(self, lane: str, text: str) -> None:
        """A line for the reader of a replay."""
