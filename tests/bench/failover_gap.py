"""The cost of a leader's loss: the time without acknowledgements that a producer sees, under load, per fault.

Run as `failover_gap.py kill|stop|vanish DIR ROUNDS SESSION_MS HEARTBEAT_MS LOAD_RECORDS_PER_S`; prints one JSON line.

The load is a second producer that sends 1 KiB records to all six partitions. The observed producer has one small record
under way at a time, acks=all, to one partition. The gap is from the last acknowledgement before the fault to the first
of a record that was sent after it, which only the next leader can give: an answer that was in flight when the leader
died does not end the gap. It is too long by one round trip at most. Then the fault is undone, and the next one waits
until all three replicas of every partition are in the ISR.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from failover_faults import FaultyCluster, faulty_cluster
from gaps import Acknowledgement, gap_ms
from machine_time import Watch

from strandline.client import Admin, Producer

TOPIC, PARTITIONS, PARTITION = "failover", 6, 0
STEP_TIMEOUT_S = 60
SETTLE_S = 0.5
MEASURE = "sent-after-kill"
"""Which gap this is; figures without this word are from before, and looked from 20 ms after the last answer on."""


async def _until_in_sync(admin: Admin) -> int:
    """Waits until every ISR has three members; returns the leader of the observed partition."""
    async with asyncio.timeout(STEP_TIMEOUT_S):
        while True:
            (topic,) = await admin.describe_topics([TOPIC])
            if all(one.leader is not None and len(one.isr) == 3 for one in topic.partitions):
                return int(topic.partitions[PARTITION].leader)
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
            await (await producer.send(TOPIC, b"x" * 100, partition=PARTITION))
            await acked.note(sent_s)


class Asked(NamedTuple):
    """The command line."""

    fault: str
    directory: Path
    rounds: int
    session_ms: int
    heartbeat_ms: int
    load_records_per_s: int


class Load:
    """The second producer, a process that ends with its input."""

    def __init__(self, cluster: FaultyCluster, records_per_s: int) -> None:
        script = str(Path(__file__).with_name("failover_load.py"))
        command = [*cluster.client_prefix, sys.executable, script, cluster.bootstrap, TOPIC, str(records_per_s)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    async def end(self) -> dict[str, float]:
        """Close its input, and hear what it did."""
        answer, _ = await asyncio.to_thread(self._process.communicate, timeout=STEP_TIMEOUT_S)
        done: dict[str, float] = json.loads(answer)
        return done

    def kill(self) -> None:
        """At once."""
        self._process.kill()
        self._process.wait()


async def run(asked: Asked) -> dict[str, object]:
    """Lose the leader again and again; gaps in ms."""
    sessions = {"session_timeout_ms": str(asked.session_ms), "heartbeat_interval_ms": str(asked.heartbeat_ms)}
    with faulty_cluster(asked.fault, asked.directory, sessions) as cluster:
        await cluster.start()
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            await _until_in_sync(admin)
            watch = Watch({})
            load = Load(cluster, asked.load_records_per_s)
            try:
                gaps = await _gaps(asked, cluster, admin)
                done = await load.end()
            finally:
                load.kill()
            spent = watch.end()
    if not done["acknowledged"]:
        raise SystemExit("no record of the load was acknowledged, so the gaps are not under load")
    return {
        "fault": asked.fault,
        "session_timeout_ms": asked.session_ms,
        "heartbeat_interval_ms": asked.heartbeat_ms,
        "measure": MEASURE,
        "gaps_ms": gaps,
        "load": {"wanted_per_s": asked.load_records_per_s, **done},
        "steal_percent": spent.steal_percent,
        "machine_percent": spent.others_percent,
    }


async def _gaps(asked: Asked, cluster: FaultyCluster, admin: Admin) -> Sequence[float]:
    acked, stop = Acknowledgements(), asyncio.Event()
    gaps: list[float] = []
    producing = asyncio.create_task(_produce(cluster.bootstrap, acked, stop))
    try:
        for _ in range(asked.rounds):
            leader = await _until_in_sync(admin)
            async with asyncio.timeout(STEP_TIMEOUT_S):
                await acked.of_one_sent_after(time.monotonic() + SETTLE_S)
                lost_s = time.monotonic()
                cluster.lose(leader)
                await acked.of_one_sent_after(lost_s)
            gaps.append(round(gap_ms(acked.all, lost_s), 1))
            await cluster.bring_back(leader)
        stop.set()
        await producing
    finally:
        producing.cancel()
        with suppress(asyncio.CancelledError):
            await producing
    return gaps


if __name__ == "__main__":
    # The end of this process must end its cluster, too: an exit, unlike the signal, closes what is open.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    fault, directory, *numbers = sys.argv[1:]
    print(json.dumps(asyncio.run(run(Asked(fault, Path(directory), *map(int, numbers))))))
