"""Measures what a leader's death costs: the longest silence of acknowledgements per `kill -9`.

One producer, acks=all, small records, one partition; the leader is killed, the gap between the last
acknowledgement before and the first after is taken, the node is started again, and the next kill waits
until all three replicas are in the ISR.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from strandline.cli.local_cluster import LocalCluster, Plan
from strandline.client import Admin, Producer

TOPIC = "failover"
STEP_TIMEOUT_S = 60
SETTLE_S = 0.5
IN_FLIGHT_S = 0.02


async def _until_in_sync(admin: Admin) -> int:
    """Waits until the ISR has three members; returns the leader."""
    async with asyncio.timeout(STEP_TIMEOUT_S):
        while True:
            (topic,) = await admin.describe_topics([TOPIC])
            partition = topic.partitions[0]
            if partition.leader is not None and len(partition.isr) == 3:
                return int(partition.leader)
            await asyncio.sleep(0.1)


class Acknowledgements:
    """When acknowledgements came; somebody may wait for the first one after a moment."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._arrived = asyncio.Condition()

    async def note(self) -> None:
        """One came, now."""
        async with self._arrived:
            self.times.append(time.monotonic())
            self._arrived.notify_all()

    async def after(self, moment: float) -> float:
        """The first one later than ``moment``."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: bool(self.times) and self.times[-1] > moment)
        return min(t for t in self.times if t > moment)


async def _produce(bootstrap: str, acked: Acknowledgements, stop: asyncio.Event) -> None:
    async with Producer(bootstrap, linger_ms=1) as producer:
        while not stop.is_set():
            await (await producer.send(TOPIC, b"x" * 100))
            await acked.note()


async def run(directory: Path, kills: int, session_ms: int, heartbeat_ms: int) -> dict[str, object]:
    """Kill the leader ``kills`` times; gaps in ms."""
    sessions = {"session_timeout_ms": str(session_ms), "heartbeat_interval_ms": str(heartbeat_ms)}
    cluster = LocalCluster(Plan(directory=directory, controller_settings=sessions))
    await cluster.start()
    acked = Acknowledgements()
    gaps: list[float] = []
    stop = asyncio.Event()
    try:
        async with Admin(cluster.bootstrap) as admin, asyncio.TaskGroup() as tasks:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=3)
            await _until_in_sync(admin)
            tasks.create_task(_produce(cluster.bootstrap, acked, stop))
            for _ in range(kills):
                leader = await _until_in_sync(admin)
                async with asyncio.timeout(STEP_TIMEOUT_S):
                    settled_at = await acked.after(time.monotonic() + SETTLE_S)
                    cluster.kill_node(leader)
                    before = acked.times[-1]
                    # An answer may still be on its way when its sender dies; a gap begins after it.
                    first = await acked.after(max(before, settled_at) + IN_FLIGHT_S)
                gaps.append(round(1e3 * (first - max(t for t in acked.times if t < first)), 1))
                await cluster.start_node(leader)
            stop.set()
    finally:
        cluster.kill()
    return {"session_timeout_ms": session_ms, "heartbeat_interval_ms": heartbeat_ms, "gaps_ms": gaps}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Path(sys.argv[1]), *map(int, sys.argv[2:5])))))
