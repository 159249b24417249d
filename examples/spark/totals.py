r"""A Spark job over a topic of orders, for Kafka or for Strandline: only the format and the address differ.

    spark-submit totals.py strandline 127.0.0.1:9092 /tmp/totals-checkpoint
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 \
        totals.py kafka 127.0.0.1:9092 /tmp/totals-checkpoint

It reads ``orders`` (`{"customer": "c1", "amount": 7}`), adds up the amounts of each customer, and writes the sums to
``totals``, a record for each customer by its key. It ends when it has read what was there.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery


def totals(spark: SparkSession, source: str, address: str, checkpoint: str) -> StreamingQuery:
    """Start the job; ``source`` is the format: ``kafka`` or ``strandline``."""
    orders = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 10_000)
        .load()
    )
    order = F.from_json(F.col("value").cast("string"), "customer STRING, amount BIGINT").alias("order")
    sums = orders.select(order).groupBy("order.customer").agg(F.sum("order.amount").alias("total"))
    return (
        sums.select(F.col("customer").alias("key"), F.col("total").cast("string").alias("value"))
        .writeStream.format(source)
        .option("kafka.bootstrap.servers", address)
        .option("topic", "totals")
        .option("checkpointLocation", checkpoint)
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    _, source, address, checkpoint = sys.argv
    totals(SparkSession.builder.appName("totals").getOrCreate(), source, address, checkpoint).awaitTermination()
