"""A disk that is replaced: the node is away, counts nowhere any more, and returns with an empty directory.

Invariant: only a node that is in no ISR and no ELR is wiped, so that assumption A5 of the promises holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.cluster import Cluster
from harness.fault import Fault
from running_cluster import Probe, until

_LEFT_S = 20.0


@dataclass(slots=True)
class Wipe(Fault):
    """`kill -9`, and another, empty data directory; the old one is kept beside it for diagnosis."""

    node: int

    async def apply(self, cluster: Cluster) -> None:
        service = cluster.service(self.node)
        service.kill()
        async with Probe(cluster) as probe:

            async def look() -> bool:
                topics = (await probe.metadata()).topics
                return not any(self.node in {*each.isr, *each.elr} for topic in topics for each in topic.partitions)

            await until(look, f"node {self.node} is in no ISR and no ELR", timeout_s=_LEFT_S)
        count = sum(1 for _ in service.directory.parent.glob(f"{service.name}.wiped-*"))
        service.directory.rename(service.directory.with_name(f"{service.name}.wiped-{count + 1}"))

    async def undo(self, cluster: Cluster) -> None:
        if not cluster.service(self.node).running:
            await cluster.start_node(self.node)
