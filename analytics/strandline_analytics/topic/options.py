"""Which options the source takes, what they mean, and what stands where one is left out.

Those that Kafka's Spark source has as well are spelled as there: ``startingOffsets`` and ``endingOffsets`` take
``earliest``, ``latest`` or JSON by topic and partition, where -2 is earliest and -1 is latest. Names count in any case,
as everywhere in Spark.

Invariant: an option that is not known is refused, never ignored: a misspelt limit would be no limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict, cast

from strandline_analytics.topic.errors import TopicReadFailed

EARLIEST = -2
LATEST = -1

Offsets = Mapping[int, int]
"""Offset, EARLIEST or LATEST by partition."""

Where = Literal["earliest", "latest"] | Offsets

KNOWN = (
    "bootstrap", "topic", "startingOffsets", "endingOffsets", "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss",
    "fetchTimeoutMs", "tlsCert", "tlsKey", "tlsCa",
)  # fmt: skip

_LATEST_AT_START = "a batch that starts at the end of the log reads nothing; give earliest, or offsets"


class TlsPaths(TypedDict):
    """What `strandline.client`'s classes take."""

    tls_cert: str
    tls_key: str
    tls_ca: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """What a reader was asked for."""

    bootstrap: str
    topic: str
    starting: Where
    ending: Where
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    fetch_timeout_ms: int
    tls_cert: str = ""
    """Paths on every worker: a client's certificate, its key, the authority; all three or none."""
    tls_key: str = ""
    tls_ca: str = ""

    @property
    def tls(self) -> TlsPaths:
        """As the client library takes them."""
        return TlsPaths(tls_cert=self.tls_cert, tls_key=self.tls_key, tls_ca=self.tls_ca)


def read_options(given: Mapping[str, str], *, streaming: bool) -> TopicOptions:
    """Read the options of a batch or of a stream.

    Raises:
        TopicReadFailed: one is unknown, missing, or has no such value.
    """
    names = {name.lower(): name for name in KNOWN}
    for name in given:
        if name.lower() not in names:
            raise TopicReadFailed(name, "the source has no such option", f"it has {', '.join(KNOWN)}")
    said = {names[name.lower()]: value for name, value in given.items()}
    topic = _required(said, "topic", "name the topic to read")
    if streaming and "endingOffsets" in said:
        raise TopicReadFailed("endingOffsets", "a stream has no end", "leave it out, or use spark.read")
    if not streaming and "maxOffsetsPerTrigger" in said:
        raise TopicReadFailed("maxOffsetsPerTrigger", "a batch has no triggers", "leave it out, or use minPartitions")
    starting = _where(said, "startingOffsets", topic, "latest" if streaming else "earliest")
    if not streaming and (starting == "latest" or (not isinstance(starting, str) and LATEST in starting.values())):
        raise TopicReadFailed("startingOffsets", "it is latest", _LATEST_AT_START)
    ending = _where(said, "endingOffsets", topic, "latest")
    if ending == "earliest" or (not isinstance(ending, str) and EARLIEST in ending.values()):
        raise TopicReadFailed("endingOffsets", "it is earliest", "give latest, or offsets; reading ends before them")
    return TopicOptions(
        bootstrap=_required(said, "bootstrap", "give the controller's address, for example 127.0.0.1:9092"),
        topic=topic,
        starting=starting,
        ending=ending,
        max_offsets_per_trigger=_count(said, "maxOffsetsPerTrigger"),
        min_partitions=_count(said, "minPartitions"),
        fail_on_data_loss=_flag(said, "failOnDataLoss", default=True),
        fetch_timeout_ms=_count(said, "fetchTimeoutMs") or 60_000,
        tls_cert=said.get("tlsCert", ""),
        tls_key=said.get("tlsKey", ""),
        tls_ca=said.get("tlsCa", ""),
    )


def _required(said: Mapping[str, str], name: str, remedy: str) -> str:
    value = said.get(name, "").strip()
    if not value:
        raise TopicReadFailed(name, "it is missing", remedy)
    return value


def _count(said: Mapping[str, str], name: str) -> int | None:
    if name not in said:
        return None
    try:
        value = int(said[name])
    except ValueError:
        value = 0
    if value < 1:
        raise TopicReadFailed(name, f"it is {said[name]!r}", "give a whole number above 0")
    return value


def _flag(said: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = said.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise TopicReadFailed(name, f"it is {said[name]!r}", "give true or false")
    return value == "true"


def _where(said: Mapping[str, str], name: str, topic: str, default: str) -> Where:
    text = said.get(name, default).strip()
    if text.lower() in ("earliest", "latest"):
        return cast(Literal["earliest", "latest"], text.lower())
    remedy = f'give earliest, latest, or offsets by partition: {{"{topic}": {{"0": 23, "1": -2}}}}'
    try:
        by_topic = json.loads(text)
        offsets = {int(partition): offset for partition, offset in by_topic[topic].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise TopicReadFailed(name, f"it is {text!r}", remedy) from None
    if set(by_topic) != {topic} or not all(type(offset) is int and offset >= EARLIEST for offset in offsets.values()):
        raise TopicReadFailed(name, f"it is {text!r}", remedy)
    return offsets
