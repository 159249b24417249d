"""A process with N consumers that read the tail of one topic, and say how old each record is when they get it.

Run as `fan_out_readers.py BOOTSTRAP TOPIC READERS COUNT LIMIT_S`. Prints "ready" when all of them are at the end of the
topic; then, when each has COUNT records, the ages in seconds as one JSON list, and waits until its input is closed, so
that its counters can be read. A record begins with the time of its sending on the clock that all processes of a machine
share.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time

import uvloop

from strandline.client import Consumer, keep_large_buffers

STAMP = struct.Struct(">d")


async def read(bootstrap: str, topic: str, count: int, ready: asyncio.Barrier) -> list[float]:
    """One consumer's ages."""
    ages: list[float] = []
    async with Consumer(bootstrap) as consumer:
        await consumer.assign([(topic, 0)], start="end")
        while consumer.position(topic, 0) is None:
            await consumer.fetch_batches(timeout_ms=10)
        await ready.wait()
        while len(ages) < count:
            for fetched in await consumer.fetch_batches():
                now = time.monotonic()
                ages += [now - STAMP.unpack_from(record.value or b"")[0] for record in fetched.records]
    return ages


async def run(bootstrap: str, topic: str, readers: int, count: int, limit_s: float) -> None:
    """All consumers of this process."""
    keep_large_buffers()
    ready = asyncio.Barrier(readers + 1)
    async with asyncio.timeout(limit_s), asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(read(bootstrap, topic, count, ready)) for _ in range(readers)]
        await ready.wait()
        print("ready", flush=True)
    print(json.dumps([round(age, 6) for task in reading for age in task.result()]), flush=True)


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]), float(sys.argv[5])))
    sys.stdin.read()
