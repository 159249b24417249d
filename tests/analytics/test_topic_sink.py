"""The topic sink: which rows it takes, and that they are records of a real cluster afterwards."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructType
from tests.cluster.running_cluster import Probe, plan, started, stopped

from strandline.cli.local.local_cluster import LocalCluster
from strandline.client import Consumer, Producer
from strandline.client.produce.routes import partition_for_key
from strandline_analytics.topic.errors import TopicFailed
from strandline_analytics.topic.pool import close_idle
from strandline_analytics.topic.sink import sink_of

pytestmark = [pytest.mark.timeout(300)]

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node and a controller, real processes, with the topics of this file."""
    running = started(plan(tmp_path_factory.mktemp("cluster"), nodes=1))

    async def create() -> None:
        async with Probe(running) as probe:
            await probe.everybody()
            for topic in ("written", "streamed", "orders", "totals"):
                await probe.create_topic(topic, partitions=PARTITIONS, replication_factor=1)

    try:
        asyncio.run(create())
        yield running
        close_idle()
        ends = stopped(running)
    finally:
        running.kill()
    assert ends == []


async def consumed(cluster: LocalCluster, topic: str) -> list[Any]:
    """Every record of a topic."""
    async with Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        await consumer.assign([topic])
        return [record async for record in consumer]


KINDS: dict[str, DataType] = {"STRING": StringType(), "INT": IntegerType(), "BIGINT": LongType()}


def columns_of(words: str) -> StructType:
    """Columns by name and type, without asking a session."""
    columns = StructType()
    for name, kind in (column.split() for column in words.split(", ")):
        columns.add(name, KINDS[kind])
    return columns


@pytest.mark.parametrize(
    ("options", "columns", "reported"),
    [
        ({}, "key STRING", "column value: it is missing; select what is written AS value"),
        ({}, "value INT", "column value: it is int; cast it to string or binary"),
        ({}, "value STRING, partition BIGINT", "column partition: it is bigint; cast it to integer"),
        ({}, "value STRING, headers STRING", "column headers: it is string; make it array<struct<key:string,value:bin"),
        ({"topic": ""}, "value STRING", "option topic: it is missing; name the topic by it, or in a column of this"),
        ({"kafka.acks": "1"}, "value STRING", "option kafka.acks: it is '1'; give all or -1"),
        ({"topics": "t"}, "value STRING", "option topics: the sink has no such option; it has bootstrap"),
        ({"startingOffsets": "earliest"}, "value STRING", "option startingOffsets: the sink has no such option"),
    ],
)
def test_what_cannot_be_written_is_refused(options: dict[str, str], columns: str, reported: str) -> None:
    """The message begins with the option or column and ends with the remedy."""
    with pytest.raises(TopicFailed) as caught:
        sink_of(NEEDED | options, columns_of(columns), overwrite=False)

    assert str(caught.value).startswith(reported)


def test_options_of_the_query_are_no_options_of_the_sink() -> None:
    """Spark passes the options of a streaming query on, and the sink is made without them."""
    sparks = {"checkpointlocation": "/tmp/c", "queryname": "q"}
    columns = columns_of("value STRING")

    assert sink_of(NEEDED | sparks, columns, overwrite=False) == sink_of(NEEDED, columns, overwrite=False)


def test_a_topic_is_not_overwritten() -> None:
    """The mode overwrite is refused, with the mode that works."""
    with pytest.raises(
        TopicFailed, match=r'option mode: it is overwrite; a topic is only appended to: .mode\("append"'
    ):
        sink_of(NEEDED, columns_of("value STRING"), overwrite=True)


@pytest.mark.cluster
def test_every_row_is_a_record(spark: SparkSession, cluster: LocalCluster) -> None:
    """Keys decide the partition as Kafka's default does, unless the row names one; null values are tombstones."""
    rows = [
        (f"k{number}", None if number == 7 else f"v{number}".encode(), None if number % 2 else number % PARTITIONS,
         [("n", str(number).encode())] if number % 3 else None, "not written")
        for number in range(40)
    ]  # fmt: skip
    columns = "key STRING, value BINARY, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, more STRING"
    frame = spark.createDataFrame(rows, columns).repartition(2)

    # Nothing was registered: Spark finds the format by itself.
    writer = frame.write.format("strandline").option("kafka.bootstrap.servers", cluster.bootstrap)
    writer.option("topic", "written").mode("append").save()
    found = asyncio.run(consumed(cluster, "written"))

    assert len(found) == len(rows)
    assert {record.key: (record.value, [*record.headers]) for record in found} == {
        key.encode(): (value, [*(headers or ())]) for key, value, _, headers, _ in rows
    }
    assert {record.key: record.partition for record in found} == {
        key.encode(): partition_for_key(key.encode(), PARTITIONS) if partition is None else partition
        for key, _, partition, _, _ in rows
    }


@pytest.mark.cluster
def test_a_missing_topic_is_named(spark: SparkSession, cluster: LocalCluster) -> None:
    """Rows for a topic that does not exist fail their task, with the topic in the message."""
    frame = spark.createDataFrame([("nowhere", "v")], "topic STRING, value STRING").coalesce(1)
    options = {"bootstrap": cluster.bootstrap, "kafka.max.block.ms": "500"}

    with pytest.raises(Exception, match="nowhere"):
        frame.write.format("strandline").options(**options).mode("append").save()


def job() -> ModuleType:
    """The example that reads either system."""
    path = Path(__file__).parents[2] / "examples" / "spark" / "totals.py"
    spec = importlib.util.spec_from_file_location("totals_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.cluster
def test_rows_of_a_stream_are_records(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    """Two runs of availableNow from one checkpoint write every row once, the second only what came since the first."""
    files = tmp_path / "in"
    files.mkdir()
    options = {"bootstrap": cluster.bootstrap, "topic": "streamed", "checkpointLocation": str(tmp_path / "check")}
    writer = spark.readStream.text(str(files)).writeStream.format("strandline").options(**options)

    for name, text in {"first": "a\nb\nc\n", "second": "d\ne\n"}.items():
        (files / name).write_text(text)
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    found = asyncio.run(consumed(cluster, "streamed"))
    assert sorted(record.value for record in found) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.reads_stream
@pytest.mark.cluster
def test_a_job_moves_from_kafka_by_format_and_address(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """The example, written with the options of Kafka's source and sink, runs with format and address exchanged."""

    async def order() -> None:
        async with Producer(cluster.bootstrap) as producer:
            for number in range(30):
                await producer.send("orders", b'{"customer": "c%d", "amount": %d}' % (number % 4, number))
            await producer.flush()

    asyncio.run(order())
    query = job().totals(spark, "strandline", cluster.bootstrap, str(tmp_path / "checkpoint"))
    assert query.awaitTermination(120)
    found = asyncio.run(consumed(cluster, "totals"))

    assert {record.key: int(record.value) for record in found} == {
        b"c%d" % customer: sum(range(customer, 30, 4)) for customer in range(4)
    }
