"""Measures records per second through the full clients, sent and then read: ours by durability, and against Kafka
aiokafka and Kafka's own clients in Java.

Six partitions, three replicas, acks=all, records of 1 KiB, the same batches and linger for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bars import AIOKAFKA, CLIENT_CACHED, CLIENT_SYNCED, JAVA
from bench import Bench, Row
from child import RUN_GRACE_S, in_words, run_script
from clusters import fresh_topic
from party_kafka import Kafka
from plan import Pace
from records_client import BATCH_BYTES, read_figures, sent_figures

from strandline.cli.local.local_cluster import LocalCluster

PARTITIONS = 6

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


def _ours(cluster: LocalCluster, pace: Pace) -> Mapping[str, Any]:
    pids = in_words({service.name: service.pid for service in cluster.nodes.values()})
    with fresh_topic(cluster.bootstrap, "records", PARTITIONS):
        return _both_ways("strandline", cluster.bootstrap, "records", pids, pace)


def _aiokafka(kafka: Kafka, pace: Pace) -> Mapping[str, Any]:
    with kafka.topic(PARTITIONS) as topic:
        return _both_ways("aiokafka", kafka.bootstrap, topic, in_words(kafka.pids), pace)


def _both_ways(kind: str, bootstrap: str, topic: str, pids: str, pace: Pace) -> Mapping[str, Any]:
    """What a producer does, and a consumer that then reads all of it."""
    limit_s, paces = pace.total_s + RUN_GRACE_S, (pace.warm_s, pace.run_s)
    sent = run_script("records_client.py", "send", kind, bootstrap, topic, pids, *paces, limit_s=limit_s)
    return sent | run_script("records_client.py", "read", kind, bootstrap, topic, sent["held"], limit_s=limit_s)


def _java(kafka: Kafka, pace: Pace) -> Mapping[str, Any]:
    with kafka.topic(PARTITIONS) as topic:
        sent = sent_figures(*kafka.send_records(topic, BATCH_BYTES, pace))
        return sent | read_figures(*kafka.read_records(topic))
