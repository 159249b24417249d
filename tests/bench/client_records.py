"""Measures records per second through the full clients: ours by durability, aiokafka and Kafka's Java producer against
Kafka.

Six partitions, three replicas, acks=all, records of 1 KiB, the same batches and linger for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bars import AIOKAFKA, CLIENT_CACHED, CLIENT_SYNCED, JAVA
from bench import Bench, Row
from child import RUN_GRACE_S, run_script
from parties import fresh_topic, in_words
from party_kafka import Kafka
from plan import Pace, Plan
from records_producer import BATCH_BYTES, records_figures

from strandline.cli.local.local_cluster import LocalCluster

PARTITIONS = 6
_PER_MEASUREMENT_S = 3.0

Contender = tuple[str, Callable[[Pace], Mapping[str, Any]]]


def rows(bench: Bench) -> Iterator[Row]:
    """The client that is first changes from round to round."""
    servers = bench.servers
    contenders: list[Contender] = [
        (CLIENT_CACHED, partial(_ours, servers.cached)),
        (CLIENT_SYNCED, partial(_ours, servers.synced)),
    ]
    if (kafka := servers.kafka) is not None:
        contenders += [(AIOKAFKA, partial(_aiokafka, kafka)), (JAVA, partial(_java, kafka))]
    for number in range(bench.plan.rounds):
        first = number % len(contenders)
        for name, measure in contenders[first:] + contenders[:first]:
            yield from bench.row(partial(measure, bench.plan.records_pace), round=number, client=name)


def expected_s(plan: Plan) -> float:
    """Seconds."""
    return plan.rounds * 4 * (plan.records_pace.total_s + _PER_MEASUREMENT_S)


def _ours(cluster: LocalCluster, pace: Pace) -> Mapping[str, Any]:
    pids = in_words({service.name: service.pid for service in cluster.nodes.values()})
    with fresh_topic(cluster.bootstrap, "records", PARTITIONS) as topic:
        return _producer("strandline", cluster.bootstrap, topic, pids, pace)


def _aiokafka(kafka: Kafka, pace: Pace) -> Mapping[str, Any]:
    with kafka.topic(PARTITIONS) as topic:
        return _producer("aiokafka", kafka.bootstrap, topic, in_words(kafka.pids), pace)


def _producer(kind: str, bootstrap: str, topic: str, pids: str, pace: Pace) -> Mapping[str, Any]:
    limit_s = pace.total_s + RUN_GRACE_S
    return run_script("records_producer.py", kind, bootstrap, topic, pids, pace.warm_s, pace.run_s, limit_s=limit_s)


def _java(kafka: Kafka, pace: Pace) -> Mapping[str, Any]:
    with kafka.topic(PARTITIONS) as topic:
        return records_figures(*kafka.send_records(topic, BATCH_BYTES, pace))
