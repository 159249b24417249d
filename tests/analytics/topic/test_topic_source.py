"""The topic source and the topic sink against a real cluster."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructType
from tests.cluster.running_cluster import Probe, plan, running, with_topics

from strandline.cli.local.local_cluster import LocalCluster
from strandline.client import Admin, Consumer, Producer
from strandline.client.produce.routes import partition_for_key
from strandline_analytics.topic import register
from strandline_analytics.topic.connection import close_idle
from strandline_analytics.topic.given import TopicFailed
from strandline_analytics.topic.options import read_options
from strandline_analytics.topic.ranges import OffsetRange
from strandline_analytics.topic.reading import read_range
from strandline_analytics.topic.sink import sink_of

PARTITIONS = 2
COUNT = 400


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes and a controller, real processes."""
    with running(plan(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster
        close_idle()


async def create(cluster: LocalCluster, topic: str, partitions: int = PARTITIONS) -> None:
    """A topic whose replicas are all in sync."""
    async with Probe(cluster) as probe:
        await probe.everybody()
        await probe.create_topic(topic, partitions=partitions, min_insync_replicas="2")


async def write(
    cluster: LocalCluster, topic: str, start: int, count: int, *, size: int = 10, partitions: int = PARTITIONS
) -> None:
    """Numbered records with keys, headers and times, over all partitions; all of them acknowledged."""
    async with Producer(cluster.bootstrap) as producer:
        for number in range(start, start + count):
            await producer.send(
                topic,
                b"%d" % number + b"." * size,
                key=None if number % 3 else b"k%d" % number,
                partition=number % partitions,
                headers=[("n", b"%d" % number), ("none", None)] if number % 2 else (),
                timestamp_ms=1_790_000_000_000 + number,
            )
        await producer.flush()


async def consumed(cluster: LocalCluster, topic: str) -> list[tuple[Any, ...]]:
    """The client's records, in the columns of the source except the epoch."""
    async with Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        await consumer.assign([topic])
        return sorted(
            [(r.partition, r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) async for r in consumer]
        )


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The same for Spark's records."""
    found = frame.selectExpr("*", "unix_millis(timestamp) ms").collect()
    return sorted(
        (r.partition, r.offset, r.ms, _bytes(r.key), _bytes(r.value), [(h.key, _bytes(h.value)) for h in r.headers])
        for r in found
    )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_a_batch_is_what_the_client_consumes(spark: SparkSession, cluster: LocalCluster) -> None:
    """Every record once with key, value, headers, time and epoch; ranges and offsets select among them."""
    asyncio.run(create(cluster, "batch"))
    asyncio.run(write(cluster, "batch", 0, COUNT))
    register(spark)
    options = {"bootstrap": cluster.bootstrap, "topic": "batch"}
    whole = spark.read.format("strandline").options(**options).load()
    expected = asyncio.run(consumed(cluster, "batch"))

    assert len(expected) == COUNT
    assert rows(whole) == expected
    assert [
        (row.topic, row.timestampType, row.leader_epoch)
        for row in whole.select("topic", "timestampType", "leader_epoch").distinct().collect()
    ] == [("batch", 0, 0)]
    assert whole.rdd.getNumPartitions() == PARTITIONS

    part = spark.read.format("strandline").options(**options, minPartitions="5")
    part = part.option("startingOffsets", '{"batch": {"0": 7, "1": -2}}')
    some = part.option("endingOffsets", '{"batch": {"0": 90, "1": 0}}').load()

    assert [row[:2] for row in rows(some)] == [(0, offset) for offset in range(7, 90)]
    assert some.rdd.getNumPartitions() >= 5


@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.reads_stream
def test_a_stream_gives_every_record_once(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    """Two runs of availableNow, the second from the checkpoint of the first: no record twice, none left out."""
    asyncio.run(create(cluster, "stream"))
    asyncio.run(write(cluster, "stream", 0, COUNT))
    register(spark)

    def run() -> int:
        source = spark.readStream.format("strandline").option("bootstrap", cluster.bootstrap)
        source = source.option("topic", "stream").option("startingOffsets", "earliest")
        frame = source.option("maxOffsetsPerTrigger", COUNT // 3).load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return len([progress for progress in query.recentProgress if progress.numInputRows])

    first = run()
    asyncio.run(write(cluster, "stream", COUNT, COUNT // 4))
    run()

    assert first >= 3
    assert rows(spark.read.parquet(str(tmp_path / "out"))) == asyncio.run(consumed(cluster, "stream"))


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_a_leader_that_dies_during_a_read_is_followed(cluster: LocalCluster) -> None:
    """The rest of the range comes from the next leader, in the old epoch for records written in it."""
    count = 6_000
    asyncio.run(create(cluster, "moved", 1))
    asyncio.run(write(cluster, "moved", 0, count, size=1_000, partitions=1))
    options = read_options({"bootstrap": cluster.bootstrap, "topic": "moved"}, streaming=False)
    reading = read_range(options, OffsetRange("moved", 0, 0, count))
    offsets = next(reading).column("offset").to_pylist()

    async def kill_leader() -> None:
        async with Probe(cluster) as probe:
            cluster.nodes[await probe.leader("moved")].kill()

    asyncio.run(kill_leader())
    for batch in reading:
        offsets += batch.column("offset").to_pylist()

    assert offsets == list(range(count))


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_what_is_wrong_is_reported_by_option(spark: SparkSession, cluster: LocalCluster) -> None:
    """A wrong topic and a wrong address are reported with the option that sets it, and with the remedy."""
    register(spark)

    def failure(**options: str) -> str:
        with pytest.raises(Exception, match="option") as caught:
            spark.read.format("strandline").options(**options).load().collect()
        return str(caught.value)

    assert "option topic: no topic is named 'absent'" in failure(bootstrap=cluster.bootstrap, topic="absent")
    assert "option bootstrap: it is missing" in failure(topic="t")


@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.reads_stream
def test_a_topic_made_anew_is_not_continued(cluster: LocalCluster) -> None:
    """An offset of a deleted topic is rejected, although a topic of the same name exists."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from strandline_analytics.topic.stream_source import TopicStreamReader

    options = {"bootstrap": cluster.bootstrap, "topic": "again", "startingOffsets": "earliest"}
    reader = TopicStreamReader(read_options(options, streaming=True))

    async def delete() -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.delete_topic("again")

    asyncio.run(create(cluster, "again", 1))
    asyncio.run(write(cluster, "again", 0, 3, partitions=1))
    start = reader.initialOffset()
    before = reader.latestOffset(start, ReadAllAvailable())
    asyncio.run(delete())
    asyncio.run(create(cluster, "again", 1))
    asyncio.run(write(cluster, "again", 0, 5, partitions=1))

    assert before["again"]["offsets"] == {"0": 3}
    with pytest.raises(TopicFailed, match="deleted and created again: begin with a new checkpointLocation"):
        reader.latestOffset(before, ReadAllAvailable())
    with pytest.raises(TopicFailed, match="deleted and created again: begin with a new checkpointLocation"):
        reader.partitions(start, before)


@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.reads_stream
def test_times_select_records(cluster: LocalCluster) -> None:
    """A time means the first record that is not older; where none is, that is an error or the end, as asked."""
    from strandline_analytics.topic.stream_source import TopicStreamReader

    asyncio.run(create(cluster, "timed"))
    asyncio.run(write(cluster, "timed", 0, 20))
    asyncio.run(write(cluster, "timed", 1_000, 2))

    def begins(**options: str) -> dict[str, int]:
        given = {"bootstrap": cluster.bootstrap, "topic": "timed"} | options
        return dict(TopicStreamReader(read_options(given, streaming=True)).initialOffset()["timed"]["offsets"])

    by_partition = '{"timed": {"0": 1790000000007, "1": 1790000000007}}'
    late = str(1_790_000_001_001)

    # Even numbers are in partition 0, odd ones in 1.
    assert begins(startingOffsetsByTimestamp=by_partition) == {"0": 4, "1": 3}
    assert begins(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == {"0": 11, "1": 10}
    with pytest.raises(TopicFailed, match="option startingTimestamp: partition timed-0 has no record at or after"):
        begins(startingTimestamp=late)


@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.reads_stream
def test_several_topics_are_one_stream(cluster: LocalCluster) -> None:
    """A pattern takes a topic that is made later, and a least number of records holds a micro-batch back."""
    from pyspark.sql.streaming.datasource import ReadMinRows

    from strandline_analytics.topic.stream_source import TopicStreamReader

    asyncio.run(create(cluster, "sea-1", 1))
    asyncio.run(write(cluster, "sea-1", 0, 3, partitions=1))
    options = {"bootstrap": cluster.bootstrap, "subscribePattern": "sea-.*", "startingOffsets": "earliest"}
    reader = TopicStreamReader(read_options(options | {"minOffsetsPerTrigger": "3"}, streaming=True))
    limit = reader.getDefaultReadLimit()

    first = reader.latestOffset(reader.initialOffset(), limit)
    asyncio.run(create(cluster, "sea-2", 1))
    asyncio.run(write(cluster, "sea-2", 0, 2, partitions=1))
    held = reader.latestOffset(first, limit)
    asyncio.run(write(cluster, "sea-1", 3, 1, partitions=1))
    then = reader.latestOffset(held, limit)

    assert limit == ReadMinRows(3)
    assert held == first
    assert {topic: own["offsets"] for topic, own in then.items()} == {"sea-1": {"0": 4}, "sea-2": {"0": 2}}
    assert [one.range for one in reader.partitions(first, then)] == [  # type: ignore[attr-defined]
        OffsetRange("sea-1", 0, 3, 4),
        OffsetRange("sea-2", 0, 0, 2),
    ]


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_tasks_of_a_process_share_their_clients(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second range that a process reads opens no connection; one whose reading failed leaves no client behind."""
    asyncio.run(create(cluster, "shared", 1))
    asyncio.run(write(cluster, "shared", 0, 6, partitions=1))
    options = read_options({"bootstrap": cluster.bootstrap, "topic": "shared"}, streaming=False)
    close_idle()
    started = 0
    start = Consumer.start

    async def counted(self: Consumer) -> None:
        nonlocal started
        started += 1
        await start(self)

    monkeypatch.setattr(Consumer, "start", counted)

    def offsets(begin: int, end: int) -> list[int]:
        found = read_range(options, OffsetRange("shared", 0, begin, end))
        return [offset for batch in found for offset in batch.column("offset").to_pylist()]

    # The second lies before the first, so nothing may be left of where the first one was.
    assert (offsets(3, 6), offsets(1, 4)) == ([3, 4, 5], [1, 2, 3])
    assert started == 1
    with pytest.raises(TopicFailed, match="failOnDataLoss"):
        offsets(9, 10)
    assert offsets(0, 2) == [0, 1]
    assert started == 2


# The topic sink: which rows it takes, and that they are records of a real cluster afterwards.


NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
PARTITIONS_SINK = 3


@pytest.fixture(scope="module")
def cluster_sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A node and a controller, real processes, with the topics of this file."""
    with running(plan(tmp_path_factory.mktemp("cluster"), nodes=1)) as cluster:
        asyncio.run(with_topics(cluster, "written", "streamed", "orders", "totals", partitions=PARTITIONS_SINK))
        yield cluster
        close_idle()


async def consumed_sink(cluster: LocalCluster, topic: str) -> list[Any]:
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


@pytest.mark.timeout(300)
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


@pytest.mark.timeout(300)
def test_options_of_the_query_are_no_options_of_the_sink() -> None:
    """Spark passes the options of a streaming query on, and the sink is made without them."""
    sparks = {"checkpointlocation": "/tmp/c", "queryname": "q"}
    columns = columns_of("value STRING")

    assert sink_of(NEEDED | sparks, columns, overwrite=False) == sink_of(NEEDED, columns, overwrite=False)


@pytest.mark.timeout(300)
def test_a_topic_is_not_overwritten() -> None:
    """The mode overwrite is refused, with the mode that works."""
    with pytest.raises(
        TopicFailed, match=r'option mode: it is overwrite; a topic is only appended to: .mode\("append"'
    ):
        sink_of(NEEDED, columns_of("value STRING"), overwrite=True)


@pytest.mark.timeout(300)
@pytest.mark.cluster
def test_every_row_is_a_record(spark: SparkSession, cluster_sink: LocalCluster) -> None:
    """Keys decide the partition as Kafka's default does, unless the row names one; null values are tombstones."""
    rows = [
        (f"k{number}", None if number == 7 else f"v{number}".encode(), None if number % 2 else number % PARTITIONS_SINK,
         [("n", str(number).encode())] if number % 3 else None, "not written")
        for number in range(40)
    ]  # fmt: skip
    columns = "key STRING, value BINARY, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, more STRING"
    frame = spark.createDataFrame(rows, columns).repartition(2)

    # Nothing was registered: Spark finds the format by itself.
    writer = frame.write.format("strandline").option("kafka.bootstrap.servers", cluster_sink.bootstrap)
    writer.option("topic", "written").mode("append").save()
    found = asyncio.run(consumed_sink(cluster_sink, "written"))

    assert len(found) == len(rows)
    assert {record.key: (record.value, [*record.headers]) for record in found} == {
        key.encode(): (value, [*(headers or ())]) for key, value, _, headers, _ in rows
    }
    assert {record.key: record.partition for record in found} == {
        key.encode(): partition_for_key(key.encode(), PARTITIONS_SINK) if partition is None else partition
        for key, _, partition, _, _ in rows
    }


@pytest.mark.timeout(300)
@pytest.mark.cluster
def test_a_missing_topic_is_named(spark: SparkSession, cluster_sink: LocalCluster) -> None:
    """Rows for a topic that does not exist fail their task, with the topic in the message."""
    frame = spark.createDataFrame([("nowhere", "v")], "topic STRING, value STRING").coalesce(1)
    options = {"bootstrap": cluster_sink.bootstrap, "kafka.max.block.ms": "500"}

    with pytest.raises(Exception, match="nowhere"):
        frame.write.format("strandline").options(**options).mode("append").save()


def job() -> ModuleType:
    """The example that reads either system."""
    path = Path(__file__).parents[3] / "examples" / "spark" / "totals.py"
    spec = importlib.util.spec_from_file_location("totals_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(300)
@pytest.mark.cluster
def test_rows_of_a_stream_are_records(spark: SparkSession, cluster_sink: LocalCluster, tmp_path: Path) -> None:
    """Two runs of availableNow from one checkpoint write every row once, the second only what came since the first."""
    files = tmp_path / "in"
    files.mkdir()
    options = {"bootstrap": cluster_sink.bootstrap, "topic": "streamed", "checkpointLocation": str(tmp_path / "check")}
    writer = spark.readStream.text(str(files)).writeStream.format("strandline").options(**options)

    for name, text in {"first": "a\nb\nc\n", "second": "d\ne\n"}.items():
        (files / name).write_text(text)
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    found = asyncio.run(consumed_sink(cluster_sink, "streamed"))
    assert sorted(record.value for record in found) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.timeout(300)
@pytest.mark.reads_stream
@pytest.mark.cluster
def test_a_job_moves_from_kafka_by_format_and_address(
    spark: SparkSession, cluster_sink: LocalCluster, tmp_path: Path
) -> None:
    """The example, written with the options of Kafka's source and sink, runs with format and address exchanged."""

    async def order() -> None:
        async with Producer(cluster_sink.bootstrap) as producer:
            for number in range(30):
                await producer.send("orders", b'{"customer": "c%d", "amount": %d}' % (number % 4, number))
            await producer.flush()

    asyncio.run(order())
    query = job().totals(spark, "strandline", cluster_sink.bootstrap, str(tmp_path / "checkpoint"))
    assert query.awaitTermination(120)
    found = asyncio.run(consumed_sink(cluster_sink, "totals"))

    assert {record.key: int(record.value) for record in found} == {
        b"c%d" % customer: sum(range(customer, 30, 4)) for customer in range(4)
    }
