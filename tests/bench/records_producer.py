"""A process that sends records of 1 KiB to six partitions as fast as a full client takes them, acks=all.

Run as `records_producer.py strandline|aiokafka BOOTSTRAP TOPIC PIDS WARM RUN`; PIDS is `name:pid,...`. Records count
once they are acknowledged: the measured time ends when the last is. The topic's end offsets must agree.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import uvloop
from closed_loop import pids_of
from machine_time import Spent, Watch

from strandline.client import Admin, Producer, keep_large_buffers

RECORD_BYTES, BATCH_BYTES, LINGER_MS = 1024, 256 << 10, 5
"""The same for every client, because Kafka's own defaults suit smaller batches."""


class Client(NamedTuple):
    """What is measured: takes one record, waits for all, and says how many the topic holds."""

    send: Callable[[bytes], Awaitable[object]]
    flush: Callable[[], Awaitable[object]]
    count: Callable[[], Awaitable[int]]


async def strandline_client(stack: AsyncExitStack, bootstrap: str, topic: str) -> Client:
    """`strandline.client`."""
    producer = await stack.enter_async_context(Producer(bootstrap, linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES))
    admin = await stack.enter_async_context(Admin(bootstrap))

    async def count() -> int:
        return sum(found.offset or 0 for found in (await admin.list_offsets(topic)).values())

    return Client(lambda value: producer.send(topic, value), producer.flush, count)


async def aiokafka_client(stack: AsyncExitStack, bootstrap: str, topic: str) -> Client:
    """`aiokafka`."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    settings = {"acks": "all", "enable_idempotence": True, "linger_ms": LINGER_MS, "max_batch_size": BATCH_BYTES}
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    await stack.enter_async_context(producer)
    consumer: Any = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap)
    await stack.enter_async_context(consumer)

    async def count() -> int:
        partitions = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic)]
        return sum((await consumer.end_offsets(partitions)).values())

    return Client(lambda value: producer.send(topic, value), producer.flush, count)


CLIENTS = {"strandline": strandline_client, "aiokafka": aiokafka_client}


async def send_for(client: Client, value: bytes, seconds: float) -> int:
    """Send until the time is over, wait for the last acknowledgement; how many."""
    sent, end = 0, time.monotonic() + seconds
    send = client.send
    while time.monotonic() < end:
        await send(value)
        sent += 1
    await client.flush()
    return sent


async def measure(kind: str, bootstrap: str, topic: str, pids: dict[str, int], warm_s: float, run_s: float) -> None:
    """Measure and print one JSON line."""
    keep_large_buffers()
    value = os.urandom(RECORD_BYTES)
    async with AsyncExitStack() as stack:
        client = await CLIENTS[kind](stack, bootstrap, topic)
        warmed = await send_for(client, value, warm_s)
        watch = Watch({**pids, "client": os.getpid()})
        sent = await send_for(client, value, run_s)
        spent = watch.end()
        held = await client.count()
    if held != warmed + sent:
        raise SystemExit(f"{warmed + sent} records were sent, and the topic holds {held}")
    print(json.dumps(records_figures(sent, spent) | {"held": held}), flush=True)


def records_figures(records: int, spent: Spent) -> dict[str, object]:
    """The figures of ``records`` of 1 KiB in this interval."""
    megabytes = records * RECORD_BYTES / 1e6
    return {
        "records_per_s": round(records / spent.elapsed_s),
        "megabytes_per_s": round(megabytes / spent.elapsed_s, 1),
        "records": records,
        "cpu_ms_per_mb": spent.per_mb(megabytes),
        **spent.machine(),
    }


if __name__ == "__main__":
    uvloop.run(measure(*sys.argv[1:4], pids_of(sys.argv[4]), *map(float, sys.argv[5:7])))
