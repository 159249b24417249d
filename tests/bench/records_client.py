"""A full client: sends records of 1 KiB to six partitions as fast as it takes them, acks=all; or reads them all.

Run as `records_client.py send strandline|aiokafka BOOTSTRAP TOPIC PIDS WARM RUN` with PIDS as `name:pid,...`, and as
`records_client.py read strandline|aiokafka BOOTSTRAP TOPIC RECORDS`. Records count once they are acknowledged: the
measured time ends when the last is, and the topic's end offsets must agree. As many must be read as the topic holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any, NamedTuple

import uvloop
from closed_loop import pids_of
from machine_time import Spent, Watch

from strandline.client import Admin, Consumer, Producer, keep_large_buffers

RECORD_BYTES, BATCH_BYTES, LINGER_MS = 1024, 256 << 10, 5
"""The same for every client, because Kafka's own defaults suit smaller batches."""
MOST_AT_ONCE = 500
"""As both clients' own default."""
_SILENCE_S = 20


class Client(NamedTuple):
    """What is measured: takes one record, waits for all, and says how many the topic holds."""

    send: Callable[[bytes], Awaitable[object]]
    flush: Callable[[], Awaitable[object]]
    count: Callable[[], Awaitable[int]]


async def strandline_client(stack: AsyncExitStack, bootstrap: str, topic: str) -> Client:
    """`strandline.client` as it sends."""
    producer = await stack.enter_async_context(Producer(bootstrap, linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES))
    admin = await stack.enter_async_context(Admin(bootstrap))

    async def count() -> int:
        return sum(found.offset or 0 for found in (await admin.list_offsets(topic)).values())

    return Client(lambda value: producer.send(topic, value), producer.flush, count)


async def strandline_batches(bootstrap: str, topic: str) -> AsyncIterator[list[Any]]:
    """`strandline.client` as it reads."""
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign(topic)
        while True:
            yield await consumer.poll(max_records=MOST_AT_ONCE)


async def aiokafka_client(stack: AsyncExitStack, bootstrap: str, topic: str) -> Client:
    """`aiokafka` as it sends."""
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


async def aiokafka_batches(bootstrap: str, topic: str) -> AsyncIterator[list[Any]]:
    """`aiokafka` as it reads."""
    from aiokafka import AIOKafkaConsumer

    consumer: Any = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    async with consumer:
        while True:
            found = await consumer.getmany(timeout_ms=500, max_records=MOST_AT_ONCE)
            yield [record for records in found.values() for record in records]


CLIENTS = {"strandline": (strandline_client, strandline_batches), "aiokafka": (aiokafka_client, aiokafka_batches)}


async def send_for(client: Client, value: bytes, seconds: float) -> int:
    """Send until the time is over, wait for the last acknowledgement; how many."""
    sent, end = 0, time.monotonic() + seconds
    send = client.send
    while time.monotonic() < end:
        await send(value)
        sent += 1
    await client.flush()
    return sent


async def sent(kind: str, bootstrap: str, topic: str, pids: str, warm_s: str, run_s: str) -> dict[str, object]:
    """The figures of sending."""
    value = os.urandom(RECORD_BYTES)
    async with AsyncExitStack() as stack:
        client = await CLIENTS[kind][0](stack, bootstrap, topic)
        warmed = await send_for(client, value, float(warm_s))
        watch = Watch({**pids_of(pids), "client": os.getpid()})
        count = await send_for(client, value, float(run_s))
        spent = watch.end()
        held = await client.count()
    if held != warmed + count:
        raise SystemExit(f"{warmed + count} records were sent, and the topic holds {held}")
    return {**sent_figures(count, spent), "held": held}


async def read(kind: str, bootstrap: str, topic: str, wanted: str) -> dict[str, int]:
    """The figures of reading."""
    count = size_bytes = 0
    began = None
    async with aclosing(CLIENTS[kind][1](bootstrap, topic)) as batches:
        while count < int(wanted):
            records = await asyncio.wait_for(anext(batches), _SILENCE_S)
            # Joining the group of none and finding the leaders is not what is measured.
            began = time.monotonic() if began is None else began
            count += len(records)
            size_bytes += sum(len(record.value) for record in records)
    assert began is not None
    if count != int(wanted):
        raise SystemExit(f"the topic holds {wanted} records, and {count} came")
    return read_figures(count, size_bytes, time.monotonic() - began)


def sent_figures(records: int, spent: Spent) -> dict[str, object]:
    """The figures of ``records`` of 1 KiB in this interval."""
    per_s = round(records / spent.elapsed_s)
    return {"records_per_s": per_s, "records": records, **spent.figures(records * RECORD_BYTES / 1e6)}


def read_figures(records: int, size_bytes: int, seconds: float) -> dict[str, int]:
    """The figures of records of this size in all, read in this time."""
    return {"read_per_s": round(records / seconds), "read_megabytes": round(size_bytes / 1e6)}


if __name__ == "__main__":
    keep_large_buffers()
    print(json.dumps(uvloop.run({"send": sent, "read": read}[sys.argv[1]](*sys.argv[2:]))), flush=True)
