"""Measures what transactions cost beside a plain producer of acks=all, in rounds by turns, and how long a commit waits
when the node of its coordinator, which has a thousand open ones, is killed."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from bench import Bench, Row
from child import in_loop
from clusters import back_row, back_s, cluster, names_beside
from report import size_row

from strandline.cli.durations import read_duration
from strandline.cli.local.local_cluster import LocalCluster
from strandline.cli.perf.load import Load
from strandline.cli.perf.measure import measure_producing
from strandline.client import Admin, Producer
from strandline.client.cluster.metadata import Cluster
from strandline.client.produce.transactional_id import TransactionCoordinator
from strandline.core.coordinator.internal_topics import TRANSACTION_STATE
from strandline.core.types import ProducerStamp, TopicPartition
from strandline.records.batch import sealed
from strandline.records.codec import NewRecord, encode_batch
from strandline.v1 import leader_service_pb2 as pb
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

MOST_LATENCY, LEAST_RATE, MOST_BACK_S = 4.0, 0.9, 2.0
ONE, MANY, KILLED, MINE = "one-record", "as-many-as-go", "killed", "killed-0"
PARTITIONS, RECORD_BYTES = 6, 1_024
EACH = read_duration("100ms")
"""How long a transaction of many records is."""
_SEGMENT_BYTES = 16 << 20
"""Small, so that the records of a round leave the disk when they are deleted."""
_TIMEOUT_MS, _CALL_MS, _WAIT_S, _AT_A_TIME = 900_000, 10_000, 60.0, 100
"""A transaction's time-out is longer than a run, so that no coordinator ends one in the middle of it."""

Measured = Callable[[], Awaitable[float]]
Pairs = Sequence[tuple[float, float]]
"""The figure of the plain producer and that of the transactional one."""


def rows(bench: Bench) -> Iterator[Row]:
    """Latency, rate, kills."""
    plan = bench.plan
    settings = {"segment_bytes": str(_SEGMENT_BYTES)}
    with cluster(bench.directory / "transactions", node_settings=settings) as running:
        bench.say("transactions: latency of one record")
        pairs = in_loop(_latencies(running.bootstrap, plan.transaction_rounds, plan.single_transactions))
        name = f"latency of a transaction of one record, of that of a plain record ({_both(pairs, 'ms', 2)})"
        yield _ratio_row(name, pairs, f"at most {MOST_LATENCY:.0f} x", lambda ratio: ratio <= MOST_LATENCY)
        bench.say("transactions: records per second")
        pairs = in_loop(_rates(running.bootstrap, plan.transaction_rounds, plan.transaction_records))
        name = f"records/s in transactions of 100 ms, of those of a plain producer ({_both(pairs, 'records/s')})"
        yield _ratio_row(name, pairs, f"at least {LEAST_RATE:.2f} x", lambda ratio: ratio >= LEAST_RATE)
        bench.say("transactions: kills of the coordinator's node")
        times = in_loop(_commits_back(running, plan.members, plan.kills))
        yield back_row(f"{plan.members:,} open transactions, the next commit done", times, "longest", MOST_BACK_S)


def _ratio_row(name: str, pairs: Pairs, wanted: str, is_met: Callable[[float], bool]) -> Row:
    """A ratio is taken in each round."""
    ratios = [transactional / plain for plain, transactional in pairs]
    middle = statistics.median(ratios)
    return size_row(name, f"{middle:.2f} x (from {min(ratios):.2f} to {max(ratios):.2f})", wanted, is_met(middle))


def _both(pairs: Pairs, unit: str, digits: int = 0) -> str:
    plain, transactional = (statistics.median(values) for values in zip(*pairs, strict=True))
    return f"{transactional:,.{digits}f} and {plain:,.{digits}f} {unit}"


async def by_turns(count: int, one: Measured, other: Measured) -> list[tuple[float, float]]:
    """So many pairs, each the figure of ``one`` and that of ``other``; the other one is measured first each time, so
    that what changes on the machine meanwhile meets both alike."""
    found = []
    for number in range(count):
        if number % 2 == 0:
            first = await one()
            found.append((first, await other()))
        else:
            second = await other()
            found.append((await one(), second))
    return found


async def _latencies(bootstrap: str, rounds: int, records: int) -> Pairs:
    """Of one record at a time, the median in ms: to its acknowledgement, and from the beginning to the end of a
    transaction that holds nothing else."""
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
        return await by_turns(rounds, lambda: median_ms(acknowledged), lambda: median_ms(committed))


async def _rates(bootstrap: str, rounds: int, records: int) -> Pairs:
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
            # Rounds of gigabytes would fill the disk.
            await admin.delete_records(MANY, dict.fromkeys(range(PARTITIONS), -1))
            return measured.records / measured.elapsed_s

        for in_transactions in (False, True):
            await rate(max(1, records // 10), in_transactions=in_transactions)
        return await by_turns(
            rounds, lambda: rate(records, in_transactions=False), lambda: rate(records, in_transactions=True)
        )


async def _commits_back(running: LocalCluster, ids: int, times: int) -> list[float]:
    """Seconds from the kill of the coordinator's node to the end of the commit, after each of several kills.

    All ``ids`` are of one coordinator, and all have a transaction open. The records of the one that commits are
    acknowledged before, so that only its coordinator is waited for.
    """
    view = Cluster(running.bootstrap)
    await view.start()
    try:
        async with (
            Admin(running.bootstrap, timeout_ms=60_000) as admin,
            Producer(running.bootstrap, transactional_id=MINE) as producer,
        ):
            await admin.create_topic(KILLED, partitions=PARTITIONS, replication_factor=3)
            await _open(view, await names_beside(admin, TRANSACTION_STATE, MINE, ids - 1))
            return [await _killed(running, admin, producer) for _ in range(times)]
    finally:
        await view.close()


async def _killed(running: LocalCluster, admin: Admin, producer: Producer) -> float:
    transaction = producer.transaction()
    async with transaction:
        await producer.send_and_wait(KILLED, b"kept")
        return await back_s(running, admin, TRANSACTION_STATE, MINE, transaction.commit)


async def _open(view: Cluster, names: Sequence[str]) -> None:
    """Each of these ids begins a transaction of one record, over connections that they share."""
    record, turns = encode_batch([NewRecord(None, b"open", 1)]), asyncio.Semaphore(_AT_A_TIME)

    async def begin(number: int, name: str) -> None:
        index = number % PARTITIONS
        async with turns:
            coordinator = TransactionCoordinator(view, name, transaction_timeout_ms=_TIMEOUT_MS)
            by = await coordinator.init(None, deadline_ms=int(_WAIT_S * 1000))
            batch = b"".join(sealed(record, ProducerStamp(*by, 0), transactional=True))
            data = pb.ProduceTopic(name=KILLED, partition_data=[pb.ProducePartition(index=index, records=batch)])
            topic = await view.topic(KILLED)
            leader = view.view.leader_of(TopicPartition(topic.topic_id, index))
            assert leader is not None, "no node is killed while transactions begin"
            stub = LeaderServiceStub(view.channels.to(leader.endpoint))
            request = pb.ProduceRequest(topic_data=[data], transactional_id=name)
            answer = await view.ask(stub.Produce, request, deadline_ms=_CALL_MS)
        (response,) = answer.responses[0].partition_responses
        if response.error_code:
            raise RuntimeError(f"{name} could not begin a transaction: {response.error_message}")

    await asyncio.gather(*(begin(number, name) for number, name in enumerate(names)))
