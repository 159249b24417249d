"""Faults of whole processes: killed, standing still."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cluster import Cluster
from harness.fault import Fault


@dataclass(slots=True)
class Kill(Fault):
    """`kill -9`; undone by starting the process again. ``node`` 0 is the controller."""

    node: int

    async def apply(self, cluster: Cluster) -> None:
        cluster.service(self.node).kill()

    async def undo(self, cluster: Cluster) -> None:
        if not cluster.service(self.node).running:
            await cluster.start_node(self.node)


@dataclass(slots=True)
class Pause(Fault):
    """SIGSTOP: the process stands still, its connections stay open. ``node`` 0 is the controller."""

    node: int

    async def apply(self, cluster: Cluster) -> None:
        assert cluster.service(self.node).running, f"node {self.node} does not run"
        cluster.service(self.node).pause()

    async def undo(self, cluster: Cluster) -> None:
        cluster.service(self.node).resume()
