"""A process that sends COUNT records at a steady rate to one partition, each with the time of its sending in front.

Run as `paced_producer.py BOOTSTRAP TOPIC COUNT PER_SECOND BYTES`. It never catches up in a burst: a late record delays
the following ones. Prints how many it sent per second.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import uvloop
from fan_out_readers import STAMP

from strandline.client import Producer, keep_large_buffers


async def run(bootstrap: str, topic: str, count: int, per_second: int, size_bytes: int) -> None:
    """Send and wait for every record."""
    keep_large_buffers()
    body = os.urandom(size_bytes - STAMP.size)
    async with Producer(bootstrap, linger_ms=0) as producer:
        began = time.monotonic()
        for _ in range(count):
            next_s = time.monotonic() + 1 / per_second
            await producer.send_and_wait(topic, STAMP.pack(time.monotonic()) + body, partition=0)
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
        elapsed_s = time.monotonic() - began
    print(json.dumps({"records_per_s": round(count / elapsed_s, 1)}), flush=True)


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])))
