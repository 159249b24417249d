"""The example job of docs/SPARK.md against a real Apache Kafka: what it is moved from.

With PySpark 4.2, in an environment of its own: not every Maven repository has Kafka's source for Spark 4.3 yet.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import NewTopic
from kafka_cluster import START_S, running
from kafka_jars import KafkaAbsent
from node_faults import Client
from pair_environment import environment, python_for

JOB = Path(__file__).parents[3] / "examples" / "spark" / "totals.py"
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
PYSPARK = "4.2.1"
CUSTOMERS, ORDERS = 4, 30
_JOB_S = 300


async def order(bootstrap: list[str]) -> None:
    """Write the orders that the test of Strandline's source writes."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for number in range(ORDERS):
            text = b'{"customer": "c%d", "amount": %d}' % (number % CUSTOMERS, number)
            await producer.send_and_wait("orders", text)
    finally:
        await producer.stop()


async def totals(bootstrap: list[str]) -> dict[bytes, int]:
    """Read the sum of each customer."""
    consumer = AIOKafkaConsumer("totals", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(START_S):
            return {record.key: int(record.value) for record in [await anext(consumer) for _ in range(CUSTOMERS)]}
    finally:
        await consumer.stop()


@pytest.mark.timeout(1_200)
def test_the_example_runs_on_kafka(tmp_path: Path) -> None:
    """`totals.py kafka ADDRESS` gives the sums that `totals.py strandline ADDRESS` gives (test_topic_source.py)."""
    python = python_for(PYSPARK, PACKAGE)
    submit = [str(python.with_name("spark-submit")), "--packages", PACKAGE, "--master", "local[2]"]
    try:
        with running(tmp_path / "kafka", 1) as cluster:
            asyncio.run(Client(cluster, [NewTopic("orders", 2, 1), NewTopic("totals", 2, 1)]).create())
            asyncio.run(order(cluster.bootstrap))
            job = [str(JOB), "kafka", cluster.bootstrap[0], str(tmp_path / "checkpoint")]
            given = environment() | {"PYSPARK_PYTHON": str(python)}
            done = subprocess.run(
                [*submit, *job], env=given, capture_output=True, text=True, timeout=_JOB_S, check=False
            )
            assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
            found = asyncio.run(totals(cluster.bootstrap))
    except KafkaAbsent as absent:
        pytest.skip(f"no Kafka: {absent}")

    assert found == {b"c%d" % customer: sum(range(customer, ORDERS, CUSTOMERS)) for customer in range(CUSTOMERS)}
