"""A collection from a real Apache Kafka: one combined KRaft node of 4.3.1, skipped by name where its jars are not."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strandline.export.destination import LocalDirectory
from strandline.export.reading import clusters, find_files, read_rows
from strandline.export.verify import Completeness, verify
from strandline.kafka.collector.cluster import Broker
from strandline.kafka.collector.collecting import Collected, Collection, Wanted, reach
from strandline.kafka.collector.refusals import Unreachable
from strandline.kafka.collector.security import Security

LIBRARIES = Path.home() / ".cache" / "strandline" / "kafka-4.3.1"
CLUSTER = "MDAwMDAwMDAwMDAwMDAwMA"
RECORDS = 7
START_S = 90.0
_JAVA = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{LIBRARIES}/*"]

pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
    pytest.mark.skipif(
        not (LIBRARIES / "complete").exists(),
        reason=f"Kafka's jars are not in {LIBRARIES}; python tests/bench/party_kafka.py fetches them by Maven",
    ),
]


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node that was started and may not answer yet."""
    home = tmp_path_factory.mktemp("kafka")
    port, quorum = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{quorum}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{quorum}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": home / "data",
        "min.insync.replicas": 1,
    }
    config = home / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    log = home / "log"
    with log.open("w") as output:
        formatting = [*_JAVA, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(config)]
        subprocess.run(formatting, stdout=output, stderr=output, timeout=START_S, check=True)
        node = subprocess.Popen([*_JAVA, "kafka.Kafka", str(config)], stdout=output, stderr=output, cwd=home)
        try:
            yield Broker("127.0.0.1", port)
        finally:
            os.kill(node.pid, signal.SIGKILL)
            node.wait(30)


async def answering(broker: Broker) -> None:
    """Returns when the node serves clients."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                connection, _, cluster = await reach([broker], Security(), None)
            except Unreachable:
                # Nothing else says when a process begins to listen.
                await asyncio.sleep(0.2)
                continue
            connection.close()
            if cluster.brokers:
                return


async def fill(broker: Broker) -> None:
    """A topic with some records."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    address = f"{broker.host}:{broker.port}"
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("orders", 2, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=address, acks="all") as producer:
        for _ in range(RECORDS):
            await producer.send_and_wait("orders", b"value", partition=1)


def rows_of(out: Path) -> list[dict[str, Any]]:
    place = LocalDirectory(out)
    folder = f"{CLUSTER}/v1"
    return [
        row for file in find_files(place, CLUSTER) for row in read_rows(file.path, place.get(f"{folder}/{file.path}"))
    ]


@pytest.mark.timeout(240)
async def test_a_real_node_is_looked_at(kafka: Broker, tmp_path: Path) -> None:
    """The end of each log, its HW, leader, ISR and minimum are those of the node; every look is exact."""
    await answering(kafka)
    await fill(kafka)
    stop = asyncio.Event()

    def said(so_far: Collected) -> None:
        if so_far.looks >= 3:
            stop.set()

    wanted = Wanted(topics=("orders",), period_ms=50, wait_s=30.0)
    reached = await reach([kafka], Security(), wanted.topics)
    done = await Collection(reached, Security(), LocalDirectory(tmp_path), wanted, said).run(stop)
    assert (done.notes, done.voided, done.silent) == ([], {}, ())
    samples = [row for row in rows_of(tmp_path) if row["event_type"] == "REPLICA_SAMPLE"]
    found = {(row["partition"], row["node_id"], row["leo"], row["hw"], row["log_start"]) for row in samples}
    assert found == {(0, 1, 0, 0, 0), (1, 1, RECORDS, RECORDS, 0)}
    states = [row for row in rows_of(tmp_path) if row["event_type"] == "STATE_SNAPSHOT"]
    assert {(row["new_leader"], *row["new_isr"], row["min_isr"], row["topic"]) for row in states} == {
        (1, 1, 1, "orders")
    }
    assert clusters(LocalDirectory(tmp_path)) == [CLUSTER]
    assert {one.completeness for one in verify(LocalDirectory(tmp_path), CLUSTER).incarnations} == {
        Completeness.COMPLETE
    }
