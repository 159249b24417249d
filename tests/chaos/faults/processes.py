"""Faults of whole processes: killed, stopped, paused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from harness.cluster import STOP_GRACE_MS, Cluster, Place, namespace
from harness.fault import Fault


@dataclass(slots=True)
class Kill(Fault):
    """`kill -9`; undone by starting the process again. ``node`` is any place; 0 is the only controller."""

    node: Place

    async def apply(self, cluster: Cluster) -> None:
        cluster.service(self.node).kill()

    async def undo(self, cluster: Cluster) -> None:
        if not cluster.service(self.node).running:
            await cluster.start_again(self.node)


@dataclass(slots=True)
class Pause(Fault):
    """SIGSTOP: the process is paused, its connections stay open. ``node`` is any place; 0 is the only controller."""

    node: Place

    async def apply(self, cluster: Cluster) -> None:
        assert cluster.service(self.node).running, f"node {self.node} does not run"
        cluster.service(self.node).pause()

    async def undo(self, cluster: Cluster) -> None:
        cluster.service(self.node).resume()


@dataclass(slots=True)
class Stop(Fault):
    """A clean stop (SIGTERM); undone by starting the process again. ``node`` is any place; 0 is the only controller."""

    node: Place

    async def apply(self, cluster: Cluster) -> None:
        end = await cluster.service(self.node).stop(STOP_GRACE_MS)
        assert end is not None and end.code == 0 and not end.forced, f"no clean stop: {end}"

    async def undo(self, cluster: Cluster) -> None:
        if not cluster.service(self.node).running:
            await cluster.start_again(self.node)


@dataclass(slots=True)
class Blackout(Fault):
    """`kill -9` of every data node at once; undone by starting them all."""

    async def apply(self, cluster: Cluster) -> None:
        for node in cluster.nodes.values():
            node.kill()

    async def undo(self, cluster: Cluster) -> None:
        down = [node_id for node_id, node in cluster.nodes.items() if not node.running]
        await asyncio.gather(*(cluster.start_node(node_id) for node_id in down))


@dataclass(slots=True)
class MachineGone(Fault):
    """The cables of ``places`` are pulled and their processes killed, so that no connection is refused."""

    places: list[Place]

    async def apply(self, cluster: Cluster) -> None:
        for place in self.places:
            cluster.namespaces.plug(namespace(place), is_in=False)
        for place in self.places:
            cluster.service(place).kill()

    async def undo(self, cluster: Cluster) -> None:
        for place in self.places:
            cluster.namespaces.plug(namespace(place), is_in=True)
        for place in cluster.places:
            if place in self.places and not cluster.service(place).running:
                await cluster.start_again(place)
