"""One node of a real Apache Kafka, started, asked for a topic, and stopped: its history from its files."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from dump_comparison import compared
from kafka_cluster import LOG_PATTERN, START_S, KafkaCluster, dumped, running
from kafka_jars import KafkaAbsent

from strandline.export.destination import LocalDirectory
from strandline_kafka.brokers.broker_logs import read_logs
from strandline_kafka.brokers.log_layout import layout_of
from strandline_kafka.metadata.importing import Import, cluster_of
from strandline_kafka.metadata.log_files import open_copy

SEGMENT = "__cluster_metadata-0/00000000000000000000.log"


async def create_topic(cluster: KafkaCluster) -> None:
    """A topic of two partitions, as soon as the broker takes one."""
    end = time.monotonic() + START_S
    while True:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        try:
            await admin.start()
            await admin.create_topics([NewTopic("t", 2, 1)])
            return
        except KafkaError:
            assert time.monotonic() < end, "no topic could be created"
        finally:
            await admin.close()
        await asyncio.sleep(0.5)


@pytest.mark.timeout(600)
async def test_a_node_that_was_just_started_is_read(tmp_path: Path) -> None:
    """Every record is what Kafka's tool prints, the log is proved by its one voter, and the logs' lines are known."""
    try:
        with running(tmp_path, 1) as cluster:
            await create_topic(cluster)
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
    assert done.learnt is not None
    assert done.learnt.clocks[1].zone_ms == 19_800_000
    assert done.learnt.versions == ("4.3.1",)
