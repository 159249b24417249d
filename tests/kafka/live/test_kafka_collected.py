"""A real Apache Kafka: a collection from it, and one node's history from its files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from dump_comparison import compared
from kafka_cluster import CLUSTER_ID, LOG_PATTERN, KafkaCluster, Secured, dumped, running
from kafka_export import rows_of
from kafka_jars import KafkaAbsent
from node_faults import SEGMENT, Client

from strandline.cli.local.certificate_folder import add, begin
from strandline.export.destination import LocalDirectory
from strandline.export.reading import clusters
from strandline.export.verify import Completeness, verify
from strandline.rpc.permissions import CallerRole, Identity
from strandline_kafka.brokers.broker_logs import read_logs
from strandline_kafka.brokers.checkpoints import read_checkpoints
from strandline_kafka.brokers.log_layout import layout_of
from strandline_kafka.collector.cluster import Broker
from strandline_kafka.collector.collecting import Collected, Collection, WantedCollection, reach
from strandline_kafka.collector.connection import Login, Refused, Security, tls_context
from strandline_kafka.metadata.importing import Import, cluster_of
from strandline_kafka.metadata.log_files import open_copy

RECORDS = 7
USER, PASSWORD = "ann", "correct-horse"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an authority, and of a certificate for the node with its key in one file."""
    folder = tmp_path_factory.mktemp("certs")
    own = begin(folder, "kafka", 2)
    add(folder, own, Identity("kafka", CallerRole.CONTROLLER, "broker"), ("127.0.0.1",), 2)
    (home,) = {path.parent for path in folder.glob("*broker*/tls.crt")}
    (home / "both.pem").write_bytes((home / "tls.key").read_bytes() + (home / "tls.crt").read_bytes())
    return home


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, authority: Path) -> Iterator[KafkaCluster]:
    """A node that was started and may not answer yet."""
    login = Secured(authority / "both.pem", USER, PASSWORD)
    try:
        with running(tmp_path_factory.mktemp("kafka"), 1, login) as cluster:
            yield cluster
    except KafkaAbsent as absent:
        pytest.skip(f"no Kafka: {absent}")


def plain(kafka: KafkaCluster) -> Broker:
    host, _, port = kafka.bootstrap[0].partition(":")
    return Broker(host, int(port))


async def fill(kafka: KafkaCluster) -> None:
    """A topic with some records, as soon as the node serves clients."""
    await Client(kafka, [NewTopic("orders", 2, 1)]).create()
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, acks="all") as producer:
        for _ in range(RECORDS):
            await producer.send_and_wait("orders", b"value", partition=1)


async def collected(
    broker: Broker, security: Security, out: Path, enough: Callable[[], bool] = lambda: True, **more: Any
) -> Collected:
    """At least three looks, and as many more as it takes until that is ``enough``."""
    stop = asyncio.Event()

    def said(so_far: Collected) -> None:
        if so_far.looks >= 3 and enough():
            stop.set()

    wanted = WantedCollection(**{"topics": ("orders",), "period_ms": 50, "wait_s": 30.0, **more})
    reached = await reach([broker], security, wanted.topics)
    return await Collection(reached, security, LocalDirectory(out), wanted, said).run(stop)


def appended_twice(metadata_log: Path) -> Callable[[], bool]:
    """Whether the log grew twice since this was asked first: then what it grew by first is committed.

    The node appends twice a second even if nothing happens; a collection that ends earlier has nothing of the log.
    """
    sizes: set[int] = set()

    def is_so() -> bool:
        sizes.add(sum(file.stat().st_size for file in metadata_log.glob("__cluster_metadata-0/*.log")))
        return len(sizes) > 2

    return is_so


@pytest.mark.timeout(600)
async def test_a_real_node_is_looked_at(kafka: KafkaCluster, authority: Path, tmp_path: Path) -> None:
    """The end of each log, its HW, leader, ISR and minimum are those of the node, in plain and by TLS and SCRAM.

    The node says up to where its metadata log is committed, and its checkpoint files are read as those of the logs.
    """
    await fill(kafka)
    log = kafka.data(1)
    done = await collected(plain(kafka), Security(), tmp_path / "plain", appended_twice(log), metadata_logs=(log,))
    assert (done.notes, done.silent, done.voided) == ([], (), {})
    samples = rows_of(tmp_path / "plain", "REPLICA_SAMPLE")
    found = {(row["partition"], row["node_id"], row["leo"], row["hw"], row["log_start"]) for row in samples}
    assert found == {(0, 1, 0, 0, 0), (1, 1, RECORDS, RECORDS, 0)}
    states = rows_of(tmp_path / "plain", "STATE_SNAPSHOT")
    assert {(row["new_leader"], *row["new_isr"], row["min_isr"], row["topic"]) for row in states} == {
        (1, 1, 1, "orders")
    }
    assert {"partition_epoch" in row for row in states} == {True, False}, "of the log, and of the looks"
    assert clusters(LocalDirectory(tmp_path / "plain")) == [CLUSTER_ID]
    assert {one.completeness for one in verify(LocalDirectory(tmp_path / "plain"), CLUSTER_ID).incarnations} == {
        Completeness.COMPLETE
    }
    await secured(Broker("127.0.0.1", kafka.secured_port), authority, tmp_path)
    kafka.stop(1)
    replicas = read_checkpoints(1, kafka.data(1), CLUSTER_ID).replicas
    assert {place: (len(one.epochs), one.hw) for place, one in replicas.items()} == {
        ("orders", 0): (1, 0), ("orders", 1): (1, RECORDS),
    }  # fmt: skip


async def secured(broker: Broker, authority: Path, out: Path) -> None:
    """The same looks by TLS and SCRAM-SHA-512; a wrong password and an authority that is not trusted are refused."""
    tls = tls_context(authority / "ca.crt", None, None)
    done = await collected(broker, Security(tls, Login("SCRAM-SHA-512", USER, PASSWORD)), out / "secured")
    assert (done.notes, done.voided) == ([], {})
    with pytest.raises(Refused, match="the login of 'ann' was refused"):
        await reach([broker], Security(tls, Login("SCRAM-SHA-512", USER, "guessed")), None)
    with pytest.raises(Refused, match="the broker's certificate is not trusted"):
        await reach([broker], Security(tls_context(None, None, None), Login("SCRAM-SHA-512", USER, PASSWORD)), None)


# One node of a real Apache Kafka, started, asked for a topic, and stopped: its history from its files.


@pytest.mark.timeout(600)
async def test_a_node_that_was_just_started_is_read(tmp_path: Path) -> None:
    """Every record is what Kafka's tool prints, the log is proved by its one voter, and the logs' lines are known."""
    try:
        with running(tmp_path, 1) as cluster:
            await Client(cluster, [NewTopic("t", 2, 1)]).create()
            # Read while it is written.
            open_copy(cluster.data(1))
            cluster.stop(1)
            assert compared(cluster.data(1), dumped(cluster.data(1) / SEGMENT)) > 20
            copies = [open_copy(cluster.data(1))]
            log = read_logs(1, cluster.log(1), layout_of(LOG_PATTERN))
            done = Import(copies, cluster_of(copies, None), logs=[log]).write(LocalDirectory(tmp_path / "out"))
    except KafkaAbsent as absent:
        pytest.skip(f"no Kafka: {absent}")
    assert (done.proof.proved_end, done.unknown.total(), log.unknown.total()) == (done.proof.end_offset, 0, 0)
    assert done.learnt.clocks[1].zone_ms == 19_800_000
    assert done.learnt.versions == ("4.3.1",)
