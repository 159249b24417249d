"""Turns exported files into the stream that feeds the machine: selects the rows, and gives them keys and times.

An event's time for the watermark is its own, but not later than a minute after its file was written: the watermark
follows the newest time of all, so otherwise one node with a fast clock would close the windows of all.
Heartbeats and other rows without a partition move the watermark; they are passed on without a story or a partition.

Invariant: schemas are given, never inferred; hidden files and those without data are never read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from strandline.export import layout
from strandline.export.schema import COLUMNS, CONTROLLER_NODE_ID, EVENT_TYPES, spark_ddl
from strandline_analytics.scope import PARTITION_KEY
from strandline_analytics.silver.control import CONTROL_TYPES
from strandline_analytics.silver.events import ConflictingEvents
from strandline_analytics.sources.places import literal, uri_of

# ---- stories
# Reads the parts of an event that the machine needs, and ensures that each event is used once.
#
# An event comes as a story: a JSON object with the columns of `FIELDS` that are not null, and ``digest``, which differs
# if any column differs.
#
# Invariant: one identity has one content; a second one is an error of the data, as in the batch.

Story = Mapping[str, Any]
Identity = tuple[int, int, int]

FIELDS = (
    "event_type", "node_id", "incarnation", "seq", "ts_wall_us", "topic", "leader_epoch", "partition_epoch",
    "meta_offset", "new_leader", "old_isr", "new_isr", "min_isr", "replicas", "topic_deleted", "sample_id",
    "interval_ms", "replica_id", "durable_leo", "leader_leo", "hw", "in_maximal_isr", "old_hw", "new_hw", "first_us",
    "last_us", "cause", "phase", "adding_replicas", "original_replicas",
)  # fmt: skip

UNUSED_TYPES = ("FETCH_STATS", "LOCAL_SAMPLE", "GROUP_OFFSETS")
"""Frequent types that no figure here needs."""


def is_control(story: Story) -> bool:
    """Whether it is a controller's report of the partition's state: a decision, a snapshot, or an unknown type."""
    if story["node_id"] != CONTROLLER_NODE_ID:
        return False
    return story["event_type"] in CONTROL_TYPES or (not is_known(story) and "partition_epoch" in story)


def is_known(story: Story) -> bool:
    """Whether this version knows the type of the event."""
    return story["event_type"] in EVENT_TYPES


def identity(story: Story) -> Identity:
    """The identity of an event: the emitter, its incarnation, and the number."""
    return (story["node_id"], story["incarnation"], story["seq"])


def distinct(texts: Iterable[str]) -> tuple[dict[Identity, Story], dict[Identity, str], Counter[Identity]]:
    """Each story once, with its text and the number of its copies.

    Raises:
        ConflictingEvents: an identity has two contents.
    """
    stories: dict[Identity, Story] = {}
    kept: dict[Identity, str] = {}
    copies: Counter[Identity] = Counter()
    for text in texts:
        story = json.loads(text)
        who = identity(story)
        copies[who] += 1
        known = stories.setdefault(who, story)
        kept.setdefault(who, text)
        if known.get("digest") != story.get("digest"):
            raise ConflictingEvents(
                f"event {who[0]}:{who[1]}:{who[2]} is there with two different contents ({story['event_type']}); an "
                "event id names one event. Most likely two clusters, or two runs of a simulation, were written into "
                "one directory: remove the files of one of them, and begin with a new checkpoint."
            )
    return stories, kept, copies


AHEAD_US = 60_000_000
"""How far an event's time may be after the writing of its file before it counts as a clock error."""

_FORMATS = {layout.PARQUET: "parquet", layout.JSON_LINES: "json"}


def feed(spark: SparkSession, inputs: Sequence[str], *, delay_s: int) -> DataFrame:
    """A stream of ``cluster_id, topic_id, partition, event_ts, story`` over all present and future exported files.

    Args:
        inputs: directories or URIs: roots of exports, or folders of clusters below them.
        delay_s: how late an event may come after the newest one.
    """
    frames = [_files(spark, root, suffix) for root in inputs for suffix in _FORMATS]
    rows = reduce(DataFrame.unionByName, frames).where(~F.col("event_type").isin(*UNUSED_TYPES))
    comparable = [c.name for c in COLUMNS if "MAP" not in c.kind.value]
    story = F.to_json(F.struct(*FIELDS, F.xxhash64(*comparable).alias("digest")))
    # Not filtered out: Spark would filter before it reads the time, and a silent partition would never be closed.
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
