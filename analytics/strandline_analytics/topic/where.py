"""Reads the start and the end of a read: an end of each log, offsets by partition, or times.

The syntax is that of Kafka's Spark source: ``earliest``, ``latest``, or JSON by topic and partition, where -2 is
earliest and -1 latest. A time is ms since 1970 and means the first record that is not older. If several options are
given, one time for all takes precedence over times by partition, and these over offsets, as in Kafka's source.

Invariant: a batch neither begins at the end of a log nor ends at its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from strandline.client import TopicPartition
from strandline_analytics.topic.given import Given, TopicFailed
from strandline_analytics.topic.selection import Selection

EARLIEST = -2
LATEST = -1

Offsets = Mapping[TopicPartition, int]
"""An offset, EARLIEST or LATEST, by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """A time in ms since 1970 for each partition, or one for all."""

    option: str
    at_ms: Mapping[TopicPartition, int] | int
    or_latest: bool
    """Whether the end of the log is used if no record is that late; otherwise that is an error."""


Settled = Literal["earliest", "latest"] | Offsets
"""A place without times, for which no leader must be asked."""
Where = Settled | Times

STARTING = (
    "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp", "startingOffsetsByTimestampStrategy",
)  # fmt: skip
ENDING = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")

_LATEST_AT_START = "a batch that starts at the end of the log reads nothing; give earliest, or offsets"


def read_start(given: Given, selection: Selection, *, streaming: bool) -> Where:
    """The start of a read; by default earliest for a batch, latest for a stream.

    Raises:
        TopicFailed: the option is malformed, or a batch would begin at the end.
    """
    or_latest = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"
    times = _times(given, selection, "startingTimestamp", "startingOffsetsByTimestamp", or_latest=or_latest)
    if times is not None:
        return times
    starting = _offsets(given, selection, "startingOffsets", "latest" if streaming else "earliest")
    if not streaming and _names(starting, "latest", LATEST):
        raise given.wrong("startingOffsets", "it is latest", _LATEST_AT_START)
    return starting


def read_end(given: Given, selection: Selection) -> Where:
    """The end of a batch; by default latest.

    Raises:
        TopicFailed: the option is malformed, or names the beginning of a log.
    """
    times = _times(given, selection, "endingTimestamp", "endingOffsetsByTimestamp", or_latest=True)
    if times is not None:
        return times
    ending = _offsets(given, selection, "endingOffsets", "latest")
    if _names(ending, "earliest", EARLIEST):
        raise given.wrong("endingOffsets", "it is earliest", "give latest, or offsets; reading ends before them")
    return ending


def _names(where: Settled, word: str, number: int) -> bool:
    return where == word if isinstance(where, str) else number in where.values()


def _times(given: Given, selection: Selection, of_all: str, by_partition: str, *, or_latest: bool) -> Times | None:
    if of_all in given:
        text = given.text(of_all)
        if not (text.isascii() and text.isdecimal()):
            raise given.wrong(of_all, f"it is {text!r}", "give ms since 1970")
        return Times(option=of_all, at_ms=int(text), or_latest=or_latest)
    if by_partition in given:
        remedy = f'give ms since 1970 by partition: {{"{_example(selection)}": {{"0": 1790000000000}}}}'
        at_ms = _by_partition(given, selection, by_partition, 0, remedy)
        return Times(option=by_partition, at_ms=at_ms, or_latest=or_latest)
    return None


def _offsets(given: Given, selection: Selection, name: str, default: str) -> Settled:
    text = given.text(name, default)
    if text.lower() in ("earliest", "latest"):
        return cast(Literal["earliest", "latest"], text.lower())
    remedy = f'give earliest, latest, or offsets by partition: {{"{_example(selection)}": {{"0": 23, "1": -2}}}}'
    return _by_partition(given, selection, name, EARLIEST, remedy)


def _by_partition(given: Given, selection: Selection, name: str, least: int, remedy: str) -> dict[TopicPartition, int]:
    text = given.text(name)
    wrong = given.wrong(name, f"it is {text!r}", remedy)
    try:
        by_topic = json.loads(text)
        numbers = {
            TopicPartition(topic, int(partition)): number
            for topic, partitions in by_topic.items()
            for partition, number in partitions.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise wrong from None
    if not all(type(number) is int and number >= least for number in numbers.values()):
        raise wrong
    topics = selection.topics
    if topics is not None and set(by_topic) != set(topics):
        raise wrong
    return numbers


def _example(selection: Selection) -> str:
    return (selection.topics or ("tides",))[0]


def check_partitions(option: str, given: Mapping[TopicPartition, int], there: Mapping[TopicPartition, object]) -> None:
    """Refuse offsets or times that are not given for exactly the partitions that are read.

    Raises:
        TopicFailed: they are not; the message names the partitions given and those expected.
    """
    if given.keys() != there.keys():
        raise TopicFailed(
            option,
            f"it names partitions {named(given)}, read are {named(there)}",
            "give a number for each of them",
        )


def named(partitions: Mapping[TopicPartition, object]) -> str:
    """Partitions in the form used in messages."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"
