"""Faults of whole processes: killed, stopped, paused, on another disk; also of the members of a consumer group."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.cluster import STOP_GRACE_MS, Cluster, Place, namespace
from harness.scenario import Fault
from running_cluster import Probe, until

if TYPE_CHECKING:
    from harness.members import Members

_LEFT_S = 20.0


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
        # A member of etcd cleans up, and then ends by the signal.
        clean = (0, -signal.SIGTERM) if self.node in cluster.members else (0,)
        assert end is not None and end.code in clean and not end.forced, f"no clean stop: {end}"

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


@dataclass(slots=True)
class Wipe(Fault):
    """`kill -9`, and another, empty data directory; the old one is kept beside it for diagnosis.

    Only a node that is in no ISR and no ELR is wiped, so that assumption A5 of the promises holds.
    """

    node: int

    async def apply(self, cluster: Cluster) -> None:
        service = cluster.service(self.node)
        service.kill()
        async with Probe(cluster) as probe:
            await probe.active()

            async def look() -> bool:
                topics = (await probe.metadata()).topics
                return not any(self.node in {*each.isr, *each.elr} for topic in topics for each in topic.partitions)

            await until(look, f"node {self.node} is in no ISR and no ELR", timeout_s=_LEFT_S)
        count = sum(1 for _ in service.directory.parent.glob(f"{service.name}.wiped-*"))
        service.directory.rename(service.directory.with_name(f"{service.name}.wiped-{count + 1}"))

    async def undo(self, cluster: Cluster) -> None:
        if not cluster.service(self.node).running:
            await cluster.start_node(self.node)


@dataclass(slots=True, eq=False)
class _OfMember(Fault):
    group: Members
    slot: int

    def described(self) -> str:
        return f"{self.kind}({self.group.member(self.slot).name})"


@dataclass(slots=True, eq=False)
class MemberKilled(_OfMember):
    """`kill -9` of a member; undone by starting another one in its place."""

    async def apply(self, cluster: Cluster) -> None:
        await self.group.member(self.slot).kill()

    async def undo(self, cluster: Cluster) -> None:
        await self.group.begin(self.slot)


@dataclass(slots=True, eq=False)
class MemberPaused(_OfMember):
    """SIGSTOP of a member: it sends no heartbeats, and goes on later where it was."""

    async def apply(self, cluster: Cluster) -> None:
        self.group.member(self.slot).pause()

    async def undo(self, cluster: Cluster) -> None:
        self.group.member(self.slot).resume()
