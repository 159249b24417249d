"""The cost of a leader's loss: the time without acknowledgements that a producer sees, under load, per fault.

Run as `failover_gap.py kill|stop|vanish DIR ROUNDS SESSION_MS HEARTBEAT_MS LOAD_RECORDS_PER_S`; prints one JSON line.

The load is a second producer, `failover_gap.py load BOOTSTRAP PER_SECOND`, that sends 1 KiB records to all six
partitions at a steady rate, whatever happens to their leaders, until its input is closed. The observed producer has one
small record under way at a time, acks=all, to one partition. Then the fault is undone, and the next one waits until all
three replicas of every partition are in the ISR.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from child import helper
from clusters import in_sync, leader_of, until
from failover_faults import FaultyCluster, faulty_cluster
from machine_time import Watch

from strandline.client import Admin, BatchOutcome, Producer

TOPIC, PARTITIONS, PARTITION = "failover", 6, 0
STEP_TIMEOUT_S = 60
SETTLE_S = 0.5
LOAD_EVERY_S, LOAD_LIMIT_S = 0.01, 1_800


class Acknowledgement(NamedTuple):
    """One record's acknowledgement."""

    sent_s: float
    acked_s: float


def gap_ms(acked: Sequence[Acknowledgement], lost_s: float) -> float:
    """From the last acknowledgement before the loss to the first of a record that was sent after it, which only the
    next leader can give: an answer that was in flight when the leader died does not end the gap."""
    last = max(each.acked_s for each in acked if each.acked_s <= lost_s)
    first = min(each.acked_s for each in acked if each.sent_s > lost_s)
    return 1e3 * (first - last)


async def produce_forever(bootstrap: str, acked: list[Acknowledgement]) -> None:
    """The observed producer: one record at a time."""
    async with Producer(bootstrap, linger_ms=1) as producer:
        while True:
            sent_s = time.monotonic()
            await (await producer.send(TOPIC, b"x" * 100, partition=PARTITION))
            acked.append(Acknowledgement(sent_s, time.monotonic()))


async def measure(
    fault: str, directory: Path, rounds: int, session_ms: int, heartbeat_ms: int, load_records_per_s: int
) -> dict[str, object]:
    """Lose the leader again and again; gaps in ms."""
    sessions = {"session_timeout_ms": str(session_ms), "heartbeat_interval_ms": str(heartbeat_ms)}
    with faulty_cluster(fault, directory, sessions) as faulty:
        await faulty.cluster.start()
        bootstrap = faulty.cluster.bootstrap
        async with Admin(bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            await in_sync(admin, TOPIC)
            watch = Watch({})
            command = [__file__, "load", bootstrap, load_records_per_s]
            with helper(command, prefix=faulty.client_prefix) as load:
                # Its first line: a record is acknowledged, so the faults come under load.
                await asyncio.wait_for(asyncio.to_thread(load.stdout.readline), STEP_TIMEOUT_S)
                gaps = await _gaps(rounds, faulty, admin)
                answer, _ = await asyncio.to_thread(load.communicate, timeout=STEP_TIMEOUT_S)
            spent = watch.end()
    done = json.loads(answer)
    return {
        "fault": fault,
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": heartbeat_ms,
        "gaps_ms": gaps,
        "load": {"wanted_per_s": load_records_per_s, **done},
        "steal_percent": spent.steal_percent,
        "machine_percent": spent.others_percent,
    }


async def _gaps(rounds: int, faulty: FaultyCluster, admin: Admin) -> list[float]:
    acked: list[Acknowledgement] = []
    gaps: list[float] = []
    producing = asyncio.create_task(produce_forever(faulty.cluster.bootstrap, acked))

    async def until_acked(since_s: float) -> None:
        await until(lambda: bool(acked) and acked[-1].sent_s > since_s, STEP_TIMEOUT_S)

    try:
        for _ in range(rounds):
            await in_sync(admin, TOPIC)
            leader = await leader_of(admin, TOPIC, PARTITION)
            await until_acked(time.monotonic() + SETTLE_S)
            lost_s = time.monotonic()
            faulty.lose(leader)
            await until_acked(lost_s)
            gaps.append(round(gap_ms(acked, lost_s), 1))
            await faulty.bring_back(leader)
    finally:
        producing.cancel()
        with suppress(asyncio.CancelledError):
            await producing
    return gaps


async def load(bootstrap: str, per_second: int) -> None:
    """Send a few records every 10 ms; ``send`` waits when too many are unacknowledged, and what is late stays late."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    counts = {"acknowledged": 0, "failed": 0}

    def note(outcome: BatchOutcome) -> None:
        if outcome.refusal is None and not counts["acknowledged"]:
            print("begun", flush=True)
        counts["acknowledged" if outcome.refusal is None else "failed"] += outcome.record_count

    value, sent = os.urandom(1024), 0
    began = time.monotonic()
    async with Producer(bootstrap, on_delivery=note) as producer:
        while not ended.is_set() and time.monotonic() < began + LOAD_LIMIT_S:
            for _ in range(max(1, round(per_second * LOAD_EVERY_S))):
                await producer.send(TOPIC, value, partition=sent % PARTITIONS)
                sent += 1
            await asyncio.sleep(LOAD_EVERY_S)
        elapsed_s = time.monotonic() - began
    print(json.dumps({**counts, "per_s": round(counts["acknowledged"] / elapsed_s)}), flush=True)


if __name__ == "__main__":
    # The end of this process must end its cluster, too: an exit, unlike the signal, closes what is open.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    verb, where, *numbers = sys.argv[1:]
    if verb == "load":
        asyncio.run(load(where, int(numbers[0])))
    else:
        print(json.dumps(asyncio.run(measure(verb, Path(where), *map(int, numbers)))))
