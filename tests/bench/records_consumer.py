"""A process that reads a topic of records of 1 KiB from its beginning to its end, as fast as a full client gives them.

Run as `records_consumer.py strandline|aiokafka BOOTSTRAP TOPIC RECORDS`. Every record's value is looked at, and as many
must come as the topic holds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import uvloop

from strandline.client import Consumer, keep_large_buffers

MOST_AT_ONCE = 500
"""As both clients' own default."""
_SILENCE_S = 20


async def by_strandline(bootstrap: str, topic: str) -> AsyncIterator[list[Any]]:
    """`strandline.client`."""
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign(topic)
        while True:
            yield await consumer.poll(max_records=MOST_AT_ONCE)


async def by_aiokafka(bootstrap: str, topic: str) -> AsyncIterator[list[Any]]:
    """`aiokafka`."""
    from aiokafka import AIOKafkaConsumer

    consumer: Any = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    async with consumer:
        while True:
            found = await consumer.getmany(timeout_ms=500, max_records=MOST_AT_ONCE)
            yield [record for records in found.values() for record in records]


CLIENTS = {"strandline": by_strandline, "aiokafka": by_aiokafka}


async def measure(kind: str, bootstrap: str, topic: str, wanted: int) -> None:
    """Measure and print one JSON line."""
    keep_large_buffers()
    read = size_bytes = 0
    began = None
    async with aclosing(CLIENTS[kind](bootstrap, topic)) as batches:
        while read < wanted:
            records = await asyncio.wait_for(anext(batches), _SILENCE_S)
            # Joining the group of none and finding the leaders is not what is measured.
            began = time.monotonic() if began is None else began
            read += len(records)
            size_bytes += sum(len(record.value) for record in records)
    assert began is not None
    if read != wanted:
        raise SystemExit(f"the topic holds {wanted} records, and {read} came")
    seconds = time.monotonic() - began
    print(json.dumps(read_figures(read, size_bytes, seconds)), flush=True)


def read_figures(records: int, size_bytes: int, seconds: float) -> dict[str, int]:
    """The figures of records of this size in all, read in this time."""
    return {"read_per_s": round(records / seconds), "read_megabytes": round(size_bytes / 1e6)}


if __name__ == "__main__":
    uvloop.run(measure(*sys.argv[1:4], int(sys.argv[4])))
