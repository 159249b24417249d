"""How exported files become the stream that the machine is fed with: which rows, keyed how, at which time.

An event's time for the watermark is its own, but not later than a minute after its file was written: the watermark
follows the newest time of all, so one node whose clock runs fast would close everybody's windows.
Heartbeats and other rows without a partition move the watermark; they go on without a story, under a key without one.

Invariant: schemas are given, never inferred; what is hidden or no data file is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.export import layout
from strandline.export.schema import COLUMNS, spark_ddl
from strandline_analytics.scope import PARTITION_KEY
from strandline_analytics.sources.places import literal, uri_of
from strandline_analytics.stream.stories import FIELDS, UNUSED_TYPES

AHEAD_US = 60_000_000
"""How far an event's time may lie after the writing of its file before it is taken for a clock's mistake."""

_FORMATS = {layout.PARQUET: "parquet", layout.JSON_LINES: "json"}


def feed(spark: SparkSession, inputs: Sequence[str], *, delay_s: int) -> DataFrame:
    """A stream of ``cluster_id, topic_id, partition, event_ts, story`` over everything that is and will be exported.

    Args:
        inputs: directories or URIs: roots of exports, or folders of clusters below them.
        delay_s: how much later than the newest event one may come.
    """
    frames = [_files(spark, root, suffix) for root in inputs for suffix in _FORMATS]
    rows = reduce(DataFrame.unionByName, frames).where(~F.col("event_type").isin(*UNUSED_TYPES))
    comparable = [c.name for c in COLUMNS if "MAP" not in c.kind.value]
    story = F.to_json(F.struct(*FIELDS, F.xxhash64(*comparable).alias("digest")))
    # Not filtered out: Spark would do so before it looks at the time, and a silent partition would never be closed.
    reported = F.when(F.col("partition").isNotNull(), story)
    marked = rows.withWatermark("event_ts", f"{delay_s} seconds")
    return marked.select(*PARTITION_KEY, "event_ts", reported.alias("story"))


def _files(spark: SparkSession, root: str, suffix: str) -> DataFrame:
    reader = spark.readStream.schema(spark_ddl()).format(_FORMATS[suffix])
    rows = (
        reader.option("recursiveFileLookup", "true").option("pathGlobFilter", f"*{suffix}").load(literal(uri_of(root)))
    )
    written_us = F.unix_micros("_metadata.file_modification_time")
    at = F.timestamp_micros(F.least(F.col("ts_wall_us"), written_us + AHEAD_US))
    return rows.select("*", at.alias("event_ts"))
