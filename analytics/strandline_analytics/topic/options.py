"""Which options the source takes, and the default of each.

Those that Kafka's Spark source has as well are spelled as there, so that a job moves from it by its format and
address.

Invariant: an option that makes no sense for what is asked, a batch or a stream, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypedDict

from strandline_analytics.topic import ranges, selection
from strandline_analytics.topic.ranges import Where, read_end, read_start
from strandline_analytics.topic.selection import Selection, read_selection

# ---- errors
# How a reader or writer of a topic reports what is wrong: the option or column, what was found, and what helps.
#
# Invariant: the message begins with the name of the option or column as the user spells it.


class TopicFailed(Exception):
    """A topic cannot be read or written as asked."""

    def __init__(self, option: str, found: str, remedy: str, *, kind: str = "option") -> None:
        super().__init__(f"{kind} {option}: {found}; {remedy}")

    @classmethod
    def of_column(cls, column: str, found: str, remedy: str) -> Self:
        """What is wrong with a column of the rows to be written."""
        return cls(column, found, remedy, kind="column")


# ---- given
# Which options a user gave: names count in any case, and Kafka's name for an option of ours is as good as ours.
#
# Invariant: an option that is not known is refused, never ignored: a misspelt limit would be no limit. The few of
# Kafka's options that have nothing to set here are listed by name (`WITHOUT_EFFECT`), and so are those of the query
# itself.

KAFKAS_NAMES = {"kafka.bootstrap.servers": "bootstrap", "kafkaConsumer.pollTimeoutMs": "fetchTimeoutMs"}
"""Names of Kafka's Spark source and sink, and the options of ours that they set."""
WITHOUT_EFFECT = ("groupIdPrefix", "kafka.group.id", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
"""Options of Kafka's source that are taken and set nothing: a reader is in no group, and calls are repeated anyway."""
SPARKS_OWN = (
    "checkpointLocation", "queryName", "asyncProgressTrackingEnabled", "asyncProgressTrackingCheckpointIntervalMs",
)  # fmt: skip
"""Options of a streaming query, which Spark passes on to the sink."""
_KAFKAS_CLIENT = "kafka."


@dataclass(frozen=True, slots=True)
class Given:
    """Options by the name that we use; ``spelled`` has the name that the user used."""

    values: Mapping[str, str]
    spelled: Mapping[str, str]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def wrong(self, name: str, found: str, remedy: str) -> TopicFailed:
        """The error about an option."""
        return TopicFailed(self.spelled.get(name, name), found, remedy)

    def text(self, name: str, default: str = "") -> str:
        """An option without the space around it."""
        return self.values.get(name, default).strip()

    def required(self, name: str, remedy: str) -> str:
        """An option that must be given.

        Raises:
            TopicFailed: it is missing or empty.
        """
        if not self.text(name):
            raise self.wrong(name, "it is missing", remedy)
        return self.text(name)

    def count(self, name: str) -> int | None:
        """A whole number above 0, or None where none is given.

        Raises:
            TopicFailed: it is something else.
        """
        if name not in self:
            return None
        value = self.text(name)
        if not (value.isascii() and value.isdecimal() and int(value)):
            raise self.wrong(name, f"it is {value!r}", "give a whole number above 0")
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            TopicFailed: it is something else.
        """
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of some words, in any case.

        Raises:
            TopicFailed: it is something else.
        """
        value = self.text(name, default).lower()
        if value not in choices:
            raise self.wrong(name, f"it is {self.text(name)!r}", f"give {' or '.join(choices)}")
        return value


def read_given(options: Mapping[str, str], known: Sequence[str], *, what: str) -> Given:
    """Sort what was given by our names.

    Args:
        options: as Spark passes them.
        known: our names that count here.
        what: the source or the sink, for the message.

    Raises:
        TopicFailed: a name is unknown, or one option is given by two names.
    """
    aliases = {alias: name for alias, name in KAFKAS_NAMES.items() if name in known}
    names = {name.lower(): name for name in (*known, *aliases)}
    idle = {name.lower() for name in (*WITHOUT_EFFECT, *SPARKS_OWN)}
    values: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for option, value in options.items():
        if option.lower() in idle:
            continue
        name = names.get(option.lower())
        if name is None:
            raise TopicFailed(option, f"the {what} has no such option", _remedy(option, known, aliases))
        own = aliases.get(name, name)
        if own in spelled:
            raise TopicFailed(name, f"it sets the same as {spelled[own]}", "give one of them")
        values[own], spelled[own] = value, name
    return Given(values, spelled)


def _remedy(option: str, known: Sequence[str], aliases: Mapping[str, str]) -> str:
    if option.lower().startswith(_KAFKAS_CLIENT):
        return f"it sets Kafka's own client; leave it out, or see {', '.join((*known, *aliases))}"
    return f"it has {', '.join((*known, *aliases))}"


# ---- connection
# Where a cluster is and how it is called, as the options of the source and of the sink name it.
#
# Invariant: two connections with equal options are equal, so that clients are kept by them (`pool`).

OPTIONS = ("bootstrap", "tlsCert", "tlsKey", "tlsCa")


class TlsPaths(TypedDict):
    """What `strandline.client`'s classes take."""

    tls_cert: str
    tls_key: str
    tls_ca: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Addresses of a cluster, and the files of a client's certificate; paths count on every worker."""

    bootstrap: str
    """``host:port``, or several with commas between them."""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""

    @property
    def tls(self) -> TlsPaths:
        """As the client library takes them: all three, or none."""
        return TlsPaths(tls_cert=self.tls_cert, tls_key=self.tls_key, tls_ca=self.tls_ca)


def read_connection(given: Given) -> Connection:
    """The connection that options name.

    Raises:
        TopicFailed: no address is given.
    """
    return Connection(
        bootstrap=given.required("bootstrap", "give the address of any process of the cluster, as 127.0.0.1:9092"),
        tls_cert=given.text("tlsCert"),
        tls_key=given.text("tlsKey"),
        tls_ca=given.text("tlsCa"),
    )


def unreachable(connection: Connection, error: Exception) -> TopicFailed:
    """The error when no node answers."""
    return TopicFailed(
        "bootstrap",
        f"{connection.bootstrap}: {error}",
        "give the address that `strandline up` prints, reachable from Spark's workers as well",
    )


KNOWN = (
    *OPTIONS, *selection.OPTIONS, *ranges.STARTING, *ranges.ENDING, "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss",
    "fetchTimeoutMs", "includeHeaders",
)  # fmt: skip

_OF_TRIGGERS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_DELAY = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.ASCII | re.IGNORECASE)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """What a reader was asked for."""

    connection: Connection
    selection: Selection
    starting: Where
    ending: Where
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    """How long fewer records than the minimum may wait."""
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
    for name in ranges.ENDING if streaming else ():
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
