"""What a scrape of the controller reads from its state, and what is counted of the events that leave it.

Invariant: reads only; the state is what was committed or is about to be, never a half of a step.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.core.control.state import ClusterState
from strandline.core.messages import PartitionImage
from strandline.core.state_events import IsrChange, LeaderChange, NodeSession, StateEvent
from strandline.metrics import families as f
from strandline.metrics.figures import Figure, Histogram, Tally

_CAUSES = ("lag", "node_fenced", "controlled_shutdown")
_ENDS = ("session_timeout", "connection_refused", "controlled_shutdown", "requested")


def controller_figures(state: ClusterState) -> Iterator[Figure]:
    """Gauges over nodes and partitions."""
    partitions = list(state.partitions())
    fenced = sum(node.image.fenced for node in state.nodes.values())
    yield Figure(f.OFFLINE, sum(one.leader is None for one in partitions))
    yield Figure(f.AWAITING_LOGS, sum(one.leader is None and _has_a_live_member(state, one) for one in partitions))
    for node_id, node in sorted(state.nodes.items()):
        yield Figure(f.FENCED_NODES, node.image.fenced, (str(node_id),))
    yield Figure(f.ACTIVE_NODES, len(state.nodes) - fenced)
    yield Figure(f.CLUSTER_TOPICS, len(state.topics))
    yield Figure(f.CLUSTER_PARTITIONS, len(partitions))
    yield Figure(f.CLUSTER_UNDER_REPLICATED, sum(len(one.isr) < len(one.replicas) for one in partitions))
    yield Figure(f.CLUSTER_UNDER_MIN_ISR, sum(len(one.isr) < one.min_isr for one in partitions))
    yield Figure(f.IMBALANCED, sum(map(_is_imbalanced, partitions)))
    yield Figure(f.METADATA_OFFSET, state.header.metadata_offset)
    yield Figure(f.CONTROLLER_EPOCH, state.header.controller_epoch)


def _has_a_live_member(state: ClusterState, partition: PartitionImage) -> bool:
    nodes = (state.nodes.get(member) for member in (*partition.isr, *partition.elr))
    return any(node is not None and not node.image.fenced for node in nodes)


def _is_imbalanced(partition: PartitionImage) -> bool:
    return partition.leader is not None and partition.leader != partition.replicas[0]


class ControllerCounts:
    """What one reign did, according to its events."""

    def __init__(self) -> None:
        self.commits = Histogram()
        self._elections = Tally(f.LEADER_ELECTIONS, *_CAUSES)
        self._shrinks = Tally(f.CONTROLLER_SHRINKS, *_CAUSES)
        self._sessions_ended = Tally(f.SESSIONS_ENDED, *_ENDS)
        self._expands = self._unclean = 0

    def count(self, event: StateEvent) -> None:
        """An event left the controller, after its transaction."""
        match event:
            case IsrChange():
                if event.removed:
                    self._shrinks.add(str(event.cause))
                self._expands += bool(event.added)
            case LeaderChange() if event.new_leader is not None and event.old_leader_epoch is not None:
                self._elections.add(event.reason)
                self._unclean += event.election_type == "unclean"
            case NodeSession(phase="fence"):
                self._sessions_ended.add(event.cause)

    def figures(self) -> Iterator[Figure]:
        """The present values."""
        yield from self._elections.figures()
        yield from self._shrinks.figures()
        yield from self._sessions_ended.figures()
        yield Figure(f.CONTROLLER_EXPANDS, self._expands)
        yield Figure(f.UNCLEAN_ELECTIONS, self._unclean)
        yield Figure(f.METADATA_COMMIT, self.commits.spread())
