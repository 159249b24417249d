"""Which node was down, cut off or shut down when, and the controller's events for it.

A node that is cut off continues as it was, samples included: it does not know that it was fenced, and is a zombie for
the partitions it led. Every other return is a new incarnation.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from day.shape import CONTROLLER, SECOND, SESSION_TIMEOUT_US, Shape

Row = dict[str, Any]
KINDS = ("session_timeout", "cut", "controlled_shutdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One absence: silent from ``down``, fenced at ``fenced``, serving again at ``back``."""

    node: int
    kind: str
    down: int
    heartbeat: int
    fenced: int
    back: int


@dataclass(slots=True)
class Nodes:
    """All absences in order, and which incarnation wrote rows when."""

    outages: list[Outage]
    rows: list[Row] = field(default_factory=list)
    _births: list[list[int]] = field(default_factory=list)

    def incarnation(self, node: int, at: int) -> int:
        """The incarnation of a node at a time."""
        return max(1, bisect_right(self._births[node], at))

    def births(self, node: int) -> list[int]:
        """The start of each incarnation of a node, the first at 0."""
        return self._births[node]


def make_nodes(shape: Shape, rng: np.random.Generator) -> Nodes:
    """Two absences a day and node, at least one."""
    outages = sorted(
        (outage for node in range(shape.nodes) for outage in _of_node(node, shape, rng)), key=lambda o: o.fenced
    )
    nodes = Nodes(outages, [], [[0] for _ in range(shape.nodes)])
    for node in range(shape.nodes):
        nodes.rows.append(_session(0, node, "register", "new"))
        nodes.rows.append(_session(1, node, "unfence", "new"))
    for o in outages:
        cause = "session_timeout" if o.kind == "cut" else o.kind
        nodes.rows.append(_session(o.fenced, o.node, "fence", cause) | {"last_heartbeat_us": o.heartbeat})
        nodes.rows.append(
            {"t": o.fenced, "node_id": CONTROLLER, "event_type": "CONTROLLER_DECISION", "decision": "fence",
             "live_set": [n for n in range(shape.nodes) if n != o.node], "fenced_set": [o.node], "old_isr": [],
             "elr": [], "outcome": f"{cause}: {o.node}"}
        )  # fmt: skip
        if o.kind != "cut":
            nodes._births[o.node].append(o.back - SECOND)
            nodes.rows.append(_session(o.back - SECOND, o.node, "register", "restart"))
        nodes.rows.append(_session(o.back, o.node, "unfence", "restart"))
    return nodes


def _of_node(node: int, shape: Shape, rng: np.random.Generator) -> list[Outage]:
    found: list[Outage] = []
    free = 0
    for down in sorted(rng.integers(shape.end // 20, shape.end * 9 // 10, max(1, shape.hours // 12)).tolist()):
        kind = str(rng.choice(KINDS, p=[0.6, 0.25, 0.15]))
        heartbeat = down - int(rng.integers(0, SECOND))
        fenced = (
            down if kind == "controlled_shutdown" else heartbeat + SESSION_TIMEOUT_US + int(rng.integers(0, SECOND))
        )
        back = fenced + int(rng.integers(20 * SECOND, 600 * SECOND))
        if down > free and back < shape.end:
            found.append(Outage(node=node, kind=kind, down=down, heartbeat=heartbeat, fenced=fenced, back=back))
            free = back + 60 * SECOND
    return found


def _session(at: int, node: int, phase: str, cause: str) -> Row:
    return {"t": at, "node_id": CONTROLLER, "event_type": "NODE_SESSION", "subject_node_id": node, "phase": phase,
            "cause": cause, "last_heartbeat_us": at, "rack": f"rack-{node % 3}"}  # fmt: skip
