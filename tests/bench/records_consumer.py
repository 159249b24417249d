"""A process that reads a topic of 1 KiB records from its beginning to its end, once, with a full client.

Run as `records_consumer.py strandline|aiokafka BOOTSTRAP TOPIC PIDS COUNT`; PIDS is `name:pid,...`. The time is from
the assignment to the last of COUNT records; connecting is not measured.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from typing import Any

import uvloop
from machine_time import Spent, Watch
from records_producer import pids_of, records_figures

from strandline.client import Consumer, keep_large_buffers

LIMIT_S = 60


async def read_strandline(bootstrap: str, topic: str, pids: dict[str, int], count: int) -> Spent:
    """Lists of records, as `fetch_batches` gives them."""
    async with Consumer(bootstrap) as consumer:
        watch, got = Watch(pids), 0
        await consumer.assign([topic], start="beginning")
        while got < count:
            for fetched in await consumer.fetch_batches():
                got += len(fetched.records)
        return watch.end()


async def read_aiokafka(bootstrap: str, topic: str, pids: dict[str, int], count: int) -> Spent:
    """Lists of records, as `getmany` gives them."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer: Any = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    async with consumer:
        partitions = [TopicPartition(topic, n) for n in range(6)]
        watch, got = Watch(pids), 0
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        while got < count:
            got += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
        return watch.end()


READERS = {"strandline": read_strandline, "aiokafka": read_aiokafka}


async def measure(kind: str, bootstrap: str, topic: str, pids: dict[str, int], count: int) -> None:
    """Measure and print one JSON line."""
    keep_large_buffers()
    # Modules are no garbage: without this the collector looks through them for every few thousand records.
    gc.collect()
    gc.freeze()
    async with asyncio.timeout(LIMIT_S):
        spent = await READERS[kind](bootstrap, topic, {**pids, "client": os.getpid()}, count)
    print(json.dumps(records_figures(count, spent)), flush=True)


if __name__ == "__main__":
    uvloop.run(measure(*sys.argv[1:4], pids_of(sys.argv[4]), int(sys.argv[5])))
