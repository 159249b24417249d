"""The cost of a leader's death: the time without acknowledgements that a producer sees per `kill -9`.

One producer, acks=all, small records, one partition, one record in flight at a time. The gap is from the last
acknowledgement before the kill to the first of a record that was sent after it, which only the next leader can give: an
answer that was in flight when the leader died does not end the gap. It is too long by one round trip at most. Then the
node is started again, and the next kill waits until all three replicas are in the ISR.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from strandline.cli.local_cluster import LocalCluster, Plan
from strandline.client import Admin, Producer

TOPIC = "failover"
STEP_TIMEOUT_S = 60
SETTLE_S = 0.5
MEASURE = "sent-after-kill"
"""Which gap this is; figures without this word are from before, and looked from 20 ms after the last answer on."""


class Acknowledgement(NamedTuple):
    """One record's acknowledgement."""

    sent_s: float
    acked_s: float


def gap_ms(acked: Sequence[Acknowledgement], killed_s: float) -> float:
    """The gap around a kill, once a record that was sent after it is acknowledged."""
    last = max(each.acked_s for each in acked if each.acked_s <= killed_s)
    first = min(each.acked_s for each in acked if each.sent_s > killed_s)
    return 1e3 * (first - last)


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
    """The acknowledgements and their times; a caller may wait for the first record that was sent after a moment."""

    def __init__(self) -> None:
        self.all: list[Acknowledgement] = []
        self._arrived = asyncio.Condition()

    async def note(self, sent_s: float) -> None:
        """Note the acknowledgement of a record with its send time."""
        async with self._arrived:
            self.all.append(Acknowledgement(sent_s, time.monotonic()))
            self._arrived.notify_all()

    async def of_one_sent_after(self, moment_s: float) -> None:
        """Wait for it."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: bool(self.all) and self.all[-1].sent_s > moment_s)


async def _produce(bootstrap: str, acked: Acknowledgements, stop: asyncio.Event) -> None:
    async with Producer(bootstrap, linger_ms=1) as producer:
        while not stop.is_set():
            sent_s = time.monotonic()
            await (await producer.send(TOPIC, b"x" * 100))
            await acked.note(sent_s)


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
                    await acked.of_one_sent_after(time.monotonic() + SETTLE_S)
                    killed_s = time.monotonic()
                    cluster.kill_node(leader)
                    await acked.of_one_sent_after(killed_s)
                gaps.append(round(gap_ms(acked.all, killed_s), 1))
                await cluster.start_node(leader)
            stop.set()
    finally:
        cluster.kill()
    return {
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": heartbeat_ms,
        "measure": MEASURE,
        "gaps_ms": gaps,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Path(sys.argv[1]), *map(int, sys.argv[2:5])))))
