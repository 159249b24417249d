"""Which cores a world runs: the production ones, or ones with one rule exchanged.

Invariant: a world never names a core class itself, so a mutant is a `Build` and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from strandline.core.control.controller import ControllerCore
from strandline.core.control.election import Elected, ElectionType
from strandline.core.control.events import ControllerEffect
from strandline.core.control.leadership import install
from strandline.core.control.state import ClusterState, ControllerTimings
from strandline.core.log.node import NodeCore
from strandline.core.types import NodeId, Rules, TopicPartition
from strandline.observe.reporting import Reporting


class ElectableController(ControllerCore):
    """The production controller, and a way to hold an election that nothing but a schedule asks for (churn)."""

    def elect(self, tp: TopicPartition, node_id: NodeId) -> list[ControllerEffect]:
        """Make an active and proven member of the ISR leader, by the production rules of an election."""
        draft = self._draft()
        partition = draft.partition(tp)
        proven = () if partition is None else set(partition.isr) - set(partition.unproven)
        if partition is not None and node_id in proven and draft.is_active(node_id):
            install(draft, partition, Elected(node_id, ElectionType.ISR), "requested")
        return self._commit(draft)


OBSERVED_NODE = partial(NodeCore, observe=Reporting)
"""A data node's core as services make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """How to make the cores of a world."""

    node_core: Callable[..., NodeCore] = OBSERVED_NODE
    controller_core: Callable[[ClusterState | None, Rules, ControllerTimings], ElectableController] = (
        ElectableController
    )


PRODUCTION = Build()
