"""Transactions beside a plain producer of acks=all, in rounds by turns: latency of one record, records per second."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from by_turns import by_turns

from strandline.cli.durations import read_duration
from strandline.cli.perf.load import Load
from strandline.cli.perf.measure import measure_producing
from strandline.client import Admin, Producer

ONE, MANY = "one-record", "as-many-as-go"
PARTITIONS = 6
RECORD_BYTES = 1_024
EACH = read_duration("100ms")
"""How long a transaction of many records is."""


class Pair(NamedTuple):
    """The same of both producers, measured one after the other."""

    plain: float
    transactional: float

    @property
    def ratio(self) -> float:
        """Of the transactional figure to the plain one."""
        return self.transactional / self.plain


async def latencies(bootstrap: str, rounds: int, records: int) -> list[Pair]:
    """Of one record at a time, the median of ``records`` in ms: to its acknowledgement, and from the beginning to the
    end of a transaction that holds nothing else."""
    async with (
        Admin(bootstrap) as admin,
        Producer(bootstrap, linger_ms=0) as plain,
        Producer(bootstrap, linger_ms=0, transactional_id=ONE) as transactional,
    ):
        await admin.create_topic(ONE, partitions=1, replication_factor=3)
        value = bytes(RECORD_BYTES)

        async def acknowledged() -> None:
            await plain.send_and_wait(ONE, value)

        async def committed() -> None:
            async with transactional.transaction():
                await transactional.send(ONE, value)

        async def median_ms(once: Callable[[], Awaitable[None]]) -> float:
            times = []
            for _ in range(records):
                began = time.monotonic()
                await once()
                times.append(1e3 * (time.monotonic() - began))
            return statistics.median(times)

        # The first transaction has the topic of coordinators made.
        await acknowledged()
        await committed()
        found = await by_turns(rounds, lambda: median_ms(acknowledged), lambda: median_ms(committed))
        return [Pair(*both) for both in found]


async def rates(bootstrap: str, rounds: int, records: int) -> list[Pair]:
    """Records per second of a producer that sends as many as are taken, all of them acknowledged or committed."""
    of_plain, of_transactional = (Load(topic=MANY, size_bytes=RECORD_BYTES) for _ in range(2))
    async with (
        Admin(bootstrap) as admin,
        Producer(bootstrap, on_delivery=of_plain.batch_ended) as plain,
        Producer(bootstrap, on_delivery=of_transactional.batch_ended, transactional_id=MANY) as transactional,
    ):
        await admin.create_topic(MANY, partitions=PARTITIONS, replication_factor=3)

        async def rate(count: int, *, in_transactions: bool) -> float:
            load, producer = (of_transactional, transactional) if in_transactions else (of_plain, plain)
            each = EACH if in_transactions else None
            measured = await measure_producing(load, producer, count, 0, lambda _: None, each)
            await emptied(admin, MANY, PARTITIONS)
            return measured.records / measured.elapsed_s

        warm = max(1, records // 10)
        await rate(warm, in_transactions=False)
        await rate(warm, in_transactions=True)
        found = await by_turns(
            rounds, lambda: rate(records, in_transactions=False), lambda: rate(records, in_transactions=True)
        )
        return [Pair(*both) for both in found]


async def emptied(admin: Admin, topic: str, partitions: int) -> None:
    """Delete what a round has written, or rounds of gigabytes would fill the disk."""
    await admin.delete_records(topic, dict.fromkeys(range(partitions), -1))
