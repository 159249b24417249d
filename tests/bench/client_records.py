"""Measures records/s through the full clients: ours by durability, aiokafka and Kafka's Java producer against Kafka.

Six partitions, three replicas, acks=all, records of 1 KiB, the same batches and linger for everybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench import Bench, Row
from parties import RUN_GRACE_S, fresh_topic, run_script
from party_kafka import Kafka
from plan import Pace, Plan
from records_producer import BATCH_BYTES, records_figures

from strandline.cli.local.local_cluster import LocalCluster
from strandline.client import Admin

PARTITIONS = 6
OURS, OURS_SYNCED = "strandline.client, page-cache", "strandline.client, fsync"
AIOKAFKA, JAVA = "aiokafka to Kafka", "Kafka's Java producer"
_PER_MEASUREMENT_S = 3.0
_IN_SYNC_S = 30

Contender = tuple[str, Callable[[Pace], Mapping[str, Any]]]


def rows(bench: Bench) -> Iterator[Row]:
    """The client that is first changes from round to round."""
    contenders = _contenders(bench)
    for number in range(bench.plan.rounds):
        first = number % len(contenders)
        for name, measure in contenders[first:] + contenders[:first]:
            yield from bench.row(lambda measure=measure: measure(bench.plan.records_pace), round=number, client=name)


def expected_s(plan: Plan) -> float:
    """Seconds."""
    return plan.rounds * 4 * (plan.records_pace.total_s + _PER_MEASUREMENT_S)


def _contenders(bench: Bench) -> list[Contender]:
    servers = bench.servers
    cached, synced, kafka = servers.cached, servers.synced, servers.kafka
    found: list[Contender] = [
        (OURS, lambda pace: _ours(cached, pace)),
        (OURS_SYNCED, lambda pace: _ours(synced, pace)),
    ]
    if kafka is not None:
        found += [(AIOKAFKA, lambda pace: _aiokafka(kafka, pace)), (JAVA, lambda pace: _java(kafka, pace))]
    return found


def _ours(cluster: LocalCluster, pace: Pace) -> Mapping[str, Any]:
    pids = ",".join(f"{service.name}:{service.pid}" for service in cluster.nodes.values())
    with fresh_topic(cluster.bootstrap, "records", PARTITIONS) as topic:
        wait_in_sync(cluster.bootstrap, topic)
        return _producer("strandline", cluster.bootstrap, topic, pids, pace)


def _aiokafka(kafka: Kafka, pace: Pace) -> Mapping[str, Any]:
    pids = ",".join(f"{name}:{pid}" for name, pid in kafka.pids.items())
    with kafka.topic(PARTITIONS) as topic:
        return _producer("aiokafka", kafka.bootstrap, topic, pids, pace)


def _producer(kind: str, bootstrap: str, topic: str, pids: str, pace: Pace) -> Mapping[str, Any]:
    limit_s = pace.total_s + RUN_GRACE_S
    return run_script("records_producer.py", kind, bootstrap, topic, pids, pace.warm_s, pace.run_s, limit_s=limit_s)


def _java(kafka: Kafka, pace: Pace) -> Mapping[str, Any]:
    with kafka.topic(PARTITIONS) as topic:
        return records_figures(*kafka.send_records(topic, BATCH_BYTES, pace))


def wait_in_sync(bootstrap: str, *topics: str) -> None:
    """Wait until every partition of these topics has a leader and three replicas in its ISR.

    Raises:
        TimeoutError: it does not happen.
    """

    async def wait() -> None:
        async with Admin(bootstrap) as admin, asyncio.timeout(_IN_SYNC_S):
            while True:
                partitions = [one for topic in await admin.describe_topics(topics) for one in topic.partitions]
                if all(one.leader is not None and len(one.isr) == 3 for one in partitions):
                    return
                await asyncio.sleep(0.1)

    asyncio.run(wait())
