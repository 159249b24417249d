"""A fresh run of three real Kafka nodes: paused, killed, stopped in order, an unclean election, a topic deleted.

Run by `make test-with WHAT=kafka`, for minutes; the name keeps it out of `make test`. What is asserted is what was
done: no number of it is from an earlier run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from dump_comparison import compared
from kafka_cluster import LOG_PATTERN, START_S, KafkaCluster, dumped, running
from kafka_export import Row, rows_of
from kafka_jars import KafkaAbsent

from strandline.export.destination import LocalDirectory
from strandline.export.verify import verify
from strandline_kafka.brokers.broker_logs import read_logs
from strandline_kafka.brokers.log_layout import layout_of
from strandline_kafka.metadata.importing import Import, cluster_of
from strandline_kafka.metadata.log_files import open_copy

PAUSED, KILLED, STOPPED = 1, 2, 3
PAUSE_S = 7.0
SEGMENT = "__cluster_metadata-0/00000000000000000000.log"
# Placed by hand, so that every node leads and each of the others loses a follower by its faults.
TOPICS = [
    NewTopic("orders", -1, -1, {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}),
    NewTopic("loose", -1, -1, {0: [2, 1]}, {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}),
    NewTopic("scratch", 1, 3),
]


class Client:
    """Asks the brokers that run, again until one answers."""

    def __init__(self, cluster: KafkaCluster, topics: Sequence[NewTopic]) -> None:
        self._cluster = cluster
        self._topics = topics

    async def create(self) -> None:
        async with asyncio.timeout(START_S):
            while True:
                described = await self.ask("describe cluster", lambda admin: admin.describe_cluster())
                if len(described["brokers"]) == len(self._cluster.nodes):
                    break
                await asyncio.sleep(0.5)
        await self.ask("create topics", lambda admin: admin.create_topics(self._topics))

    async def delete(self, topic: str) -> None:
        await self.ask(f"delete {topic}", lambda admin: admin.delete_topics([topic]))

    async def isrs(self) -> dict[tuple[str, int], tuple[int, list[int], int]]:
        """Leader, ISR and number of replicas of each partition."""
        described = await self.ask("describe", lambda admin: admin.describe_topics(["orders", "loose"]))
        return {
            (topic["topic"], part["partition"]): (part["leader"], part["isr"], len(part["replicas"]))
            for topic in described
            for part in topic["partitions"]
        }

    async def wait_for(self, what: str, holds: Any) -> None:
        """Look until the partitions are as they should be."""
        async with asyncio.timeout(START_S):
            while True:
                seen = await self.isrs()
                if holds(seen):
                    break
                await asyncio.sleep(0.3)
        print(f"{what}: {seen}")

    async def wait_until_full(self, what: str) -> None:
        """Look until every replica is in its ISR."""
        await self.wait_for(what, lambda seen: seen and all(len(isr) == rf for _, isr, rf in seen.values()))

    async def ask(self, what: str, question: Any) -> Any:
        """Ask a broker, again until one answers."""
        async with asyncio.timeout(START_S):
            while True:
                admin = AIOKafkaAdminClient(bootstrap_servers=self._cluster.bootstrap, request_timeout_ms=5_000)
                try:
                    await admin.start()
                    return await question(admin)
                except (KafkaError, OSError) as error:
                    print(f"{what}: {error!r}, again")
                finally:
                    await admin.close()
                await asyncio.sleep(0.5)


@asynccontextmanager
async def load(
    cluster: KafkaCluster, topics: Sequence[tuple[str, int]] = (("orders", 3), ("loose", 1))
) -> AsyncIterator[None]:
    """Some records a second into each partition, whatever is the matter with the brokers."""
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks=1, request_timeout_ms=5_000)
    await producer.start()

    is_over = asyncio.Event()

    async def send() -> None:
        while not is_over.is_set():
            for topic, partitions in topics:
                for partition in range(partitions):
                    with suppress(KafkaError, TimeoutError):
                        await asyncio.wait_for(producer.send(topic, b"x" * 100, partition=partition), 1)
            await asyncio.sleep(0.05)

    sending = asyncio.create_task(send())
    try:
        yield
    finally:
        # Not cancelled: a wait that ends at that moment would swallow it.
        is_over.set()
        await sending
        with suppress(TimeoutError):
            await asyncio.wait_for(producer.stop(), 30)


async def do_it(cluster: KafkaCluster) -> None:
    client = Client(cluster, TOPICS)
    await client.create()
    await client.wait_until_full("created")
    async with load(cluster):
        await asyncio.sleep(10)
        cluster.pause(PAUSED)
        await asyncio.sleep(PAUSE_S)
        cluster.resume(PAUSED)
        await client.wait_until_full("after the pause")
        await asyncio.sleep(6)
        cluster.kill(KILLED)
        await client.wait_for("fenced", lambda seen: all(KILLED not in isr for _, isr, _ in seen.values()))
        await client.delete("scratch")
        # The last member of the loose ISR goes while the other one is away: that one is elected uncleanly.
        cluster.kill(PAUSED)
        cluster.start(KILLED)
        await client.wait_for("unclean", lambda seen: seen.get(("loose", 0), (0,))[0] == KILLED)
        cluster.start(PAUSED)
        await client.wait_until_full("all are back")
        cluster.stop(STOPPED)
        cluster.start(STOPPED)
        await client.wait_until_full("after the orderly stop")
    cluster.stop(PAUSED)
    cluster.stop(KILLED)
    # Alone it has no quorum that would let it stop in order.
    cluster.kill(STOPPED)


def inferred(rows: Iterable[Row]) -> set[tuple[str, str]]:
    return {
        (one["rule"], one["subject"]) for row in rows for one in json.loads(row.get("ext", {}).get("inferred", "[]"))
    }


@pytest.mark.timeout(1_800)
async def test_what_was_done_to_three_nodes_is_in_their_history(tmp_path: Path) -> None:
    """Every record of every log is what Kafka's tool prints; pause, kill, unclean election and deletion are named."""
    try:
        with running(tmp_path, 3) as cluster:
            await do_it(cluster)
            for node in cluster.nodes:
                count = compared(cluster.data(node), dumped(cluster.data(node) / SEGMENT))
                print(f"node {node}: {count} records are what Kafka's tool prints")
                assert count > 100
    except KafkaAbsent as absent:
        pytest.skip(f"no Kafka: {absent}")
    copies = [open_copy(cluster.data(node)) for node in cluster.nodes]
    logs = [read_logs(node, cluster.log(node), layout_of(LOG_PATTERN)) for node in cluster.nodes]
    cluster_id = cluster_of(copies, None)
    done = Import(copies, cluster_id, logs=logs).write(LocalDirectory(tmp_path / "out"))
    rows = rows_of(tmp_path / "out")
    print(f"{done.records} records, {done.rows} events, left out {done.left_out}, inferred {inferred(rows)}")
    assert [log.unknown.total() for log in logs] == [0, 0, 0]
    assert done.unknown.total() == 0
    assert verify(LocalDirectory(tmp_path / "out"), cluster_id).is_sound
    assert {clock.zone_ms for clock in (done.learnt.clocks.values() if done.learnt else ())} == {19_800_000}
    assert ("node_paused", f"node {PAUSED}") in inferred(rows)
    assert ("node_stopped", f"node {KILLED}") in inferred(rows)
    unclean = [row for row in rows if row.get("election_type") == "unclean"]
    assert [(row["topic"], row["new_leader"]) for row in unclean] == [("loose", KILLED)]
    assert {row["topic"] for row in rows if row.get("topic_deleted")} == {"scratch"}
    assert any(row.get("decision") == "controlled_shutdown" for row in rows)
    cuts = [row for row in rows if row["event_type"] == "TRUNCATION" and row["topic"] == "loose"]
    assert cuts, "the node that came back behind an unclean election cut its log"
