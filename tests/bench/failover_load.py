"""A process that sends 1 KiB records to all partitions of a topic at a steady rate, whatever happens to their leaders.

Run as `failover_load.py BOOTSTRAP TOPIC PER_SECOND`. It ends when its input is closed, at the latest after LIMIT_S, and
prints how many records were acknowledged and how many failed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from strandline.client import BatchOutcome, Producer

RECORD_BYTES = 1024
PARTITIONS = 6
EVERY_S = 0.01
LIMIT_S = 1_800


async def run(bootstrap: str, topic: str, per_second: int) -> None:
    """Send a few records every 10 ms; ``send`` waits when too many are unacknowledged, and what is late stays late."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    counts = {"acknowledged": 0, "failed": 0}

    def note(outcome: BatchOutcome) -> None:
        counts["acknowledged" if outcome.refusal is None else "failed"] += outcome.record_count

    value, sent = os.urandom(RECORD_BYTES), 0
    began = time.monotonic()
    async with Producer(bootstrap, on_delivery=note) as producer:
        while not ended.is_set() and time.monotonic() < began + LIMIT_S:
            for _ in range(max(1, round(per_second * EVERY_S))):
                await producer.send(topic, value, partition=sent % PARTITIONS)
                sent += 1
            await asyncio.sleep(EVERY_S)
        elapsed_s = time.monotonic() - began
    print(json.dumps({**counts, "per_s": round(counts["acknowledged"] / elapsed_s)}), flush=True)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
