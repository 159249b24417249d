"""The options of the source, and their defaults.

Options that Kafka's Spark source also has are spelled as there, so that a job needs only a new format and address.

Invariant: an option that makes no sense for the given kind of read, batch or stream, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from strandline_analytics.topic import connection, selection, where
from strandline_analytics.topic.connection import Connection, read_connection
from strandline_analytics.topic.given import Given, read_given
from strandline_analytics.topic.selection import Selection, read_selection
from strandline_analytics.topic.where import Where, read_end, read_start

KNOWN = (
    *connection.OPTIONS, *selection.OPTIONS, *where.STARTING, *where.ENDING, "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss",
    "fetchTimeoutMs", "includeHeaders",
)  # fmt: skip

_OF_TRIGGERS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_DELAY = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.ASCII | re.IGNORECASE)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """The options of a reader."""

    connection: Connection
    selection: Selection
    starting: Where
    ending: Where
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    """The maximum time that fewer records than the minimum wait."""
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    fetch_timeout_ms: int = 60_000
    include_headers: bool = True


def read_options(options: Mapping[str, str], *, streaming: bool) -> TopicOptions:
    """Read the options of a batch or of a stream.

    Raises:
        TopicFailed: one is unknown, missing, or has no such value.
    """
    given = read_given(options, KNOWN, what="source")
    _check_use(given, streaming=streaming)
    selected = read_selection(given)
    most, least = given.count("maxOffsetsPerTrigger"), given.count("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise given.wrong("minOffsetsPerTrigger", f"it is {least}", f"give at most maxOffsetsPerTrigger, {most}")
    return TopicOptions(
        connection=read_connection(given),
        selection=selected,
        starting=read_start(given, selected, streaming=streaming),
        ending=read_end(given, selected),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_delay_ms(given),
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        fetch_timeout_ms=given.count("fetchTimeoutMs") or 60_000,
        include_headers=with_headers(given),
    )


def with_headers(given: Given) -> bool:
    """Whether rows have the column ``headers``."""
    return given.flag("includeHeaders", default=True)


def _check_use(given: Given, *, streaming: bool) -> None:
    for name in where.ENDING if streaming else ():
        if name in given:
            raise given.wrong(name, "a stream has no end", "leave it out, or use spark.read")
    for name in () if streaming else _OF_TRIGGERS:
        if name in given:
            raise given.wrong(name, "a batch has no triggers", "leave it out, or use minPartitions")


def _delay_ms(given: Given) -> int:
    text = given.text("maxTriggerDelay", "15m")
    found = _DELAY.fullmatch(text)
    if found is None:
        raise given.wrong("maxTriggerDelay", f"it is {text!r}", "give a time with its unit: 30s, 15m, 2h")
    return int(found[1]) * _UNIT_MS[(found[2] or "ms").lower()]
