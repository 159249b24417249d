"""One case: a load of its own on the common cluster, a fault of the cluster meanwhile, and the verdict.

Invariant: every case ends with the same checks, based on what clients saw and on the files: whether the history is one
of a correct log, and whether the copies are equal to the last byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from container_cluster import NODES, ContainerCluster
from harness.counters import rows
from harness.load import Load
from running_cluster import Probe, until
from settled_logs import assert_settled

from strandline.client import Admin
from strandline_sim.checks.history import anomalies

_SEED = 20_26
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A running load, and the queries that are possible meanwhile."""

    cluster: ContainerCluster
    probe: Probe
    load: Load
    topic_ids: dict[str, str]

    async def do(self, deed: Callable[..., _Result], *words: Any) -> _Result:
        """Run a slow call of the engine in a thread, while the load continues."""
        return await asyncio.to_thread(deed, *words)

    def events(self, kind: str, topic: str | None = None) -> list[dict[str, Any]]:
        """The state events of one type of one topic, from every process, read from the data directories."""
        topic_id = self.topic_ids[topic or self.load.strict]
        directories = [self.cluster.directory_of(0), *(self.cluster.directory_of(node) for node in NODES)]
        found = (row for directory in directories for row in rows(directory))
        return [row for row in found if row["event_type"] == kind and row.get("topic_id") == topic_id]

    async def settle(self) -> int:
        """Ends the load, checks everything; returns how many records the topics hold."""
        for topic in self.load.topics:
            await self.probe.in_sync(topic)
        await self.load.acked(5)
        await self.load.stop_producing()
        records = sum([await assert_settled(self.probe, topic) for topic in self.load.topics])
        await self.load.read_everything()

        assert anomalies(self.load.history()) == []
        assert self.load.deaths == []
        return records


@asynccontextmanager
async def case(cluster: ContainerCluster, name: str, directory: Path) -> AsyncIterator[Case]:
    """A case with topics of its own, which are deleted in the end; begins when the cluster is whole."""
    await asyncio.to_thread(cluster.heal)
    async with Probe(cluster) as probe:  # type: ignore[arg-type]
        await everybody(probe)
        load = Load(cluster=cluster, probe=probe, directory=directory, seed=_SEED, strict=name, loose=f"{name}-one-ack")
        await load.create_topics()
        ids = {topic: (await probe.topic(topic)).topic_id for topic in load.topics}
        try:
            await load.start()
            await load.acked(10)
            yield Case(cluster=cluster, probe=probe, load=load, topic_ids=ids)
        finally:
            await load.close()
            await asyncio.to_thread(cluster.heal)
            await _delete(cluster, list(load.topics))


async def serving(cluster: ContainerCluster) -> None:
    """Waits until a cluster that was started serves.

    Raises:
        AssertionError: it did not in time, or a container has ended; its last lines are in the message.
    """
    async with Probe(cluster) as probe:  # type: ignore[arg-type]
        await everybody(probe, cluster.epitaphs)


async def everybody(probe: Probe, epitaphs: Callable[[], list[str]] = list) -> None:
    """Waits until every node is registered and unfenced, unless ``epitaphs`` reports a dead container."""

    async def look() -> bool:
        dead = await asyncio.to_thread(epitaphs)
        assert not dead, dead
        nodes = (await probe.metadata()).nodes
        return len(nodes) == len(NODES) and not any(node.fenced for node in nodes)

    await until(look, "every node is unfenced", timeout_s=60)


async def _delete(cluster: ContainerCluster, topics: list[str]) -> None:
    async def look() -> bool:
        async with Admin(cluster.bootstrap, timeout_ms=5_000, **cluster.client_tls("admin")) as admin:
            present = {topic.name for topic in (await admin.metadata()).topics} & set(topics)
            for topic in present:
                await admin.delete_topic(topic)
        return True

    await until(look, f"{topics} are deleted")
