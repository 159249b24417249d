"""Reads the log ends of replicas as Prometheus recorded them: the times of scrapes, and the values.

It reads answers of Prometheus's API (a matrix) and texts with a time in each line, as `promtool tsdb
dump-openmetrics` prints them.

Invariant: at most `MOST_SAMPLES` are held. Moments are those of scrapes: a series that was evaluated at steps, as
query_range does, repeats old values at times of its own, and is refused.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping as Map
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from strandline_kafka.metadata.wire import Unreadable

# ---- mapping
# Maps time series of a Prometheus to the ends of replicas' logs, which exporters name by their own rules (A29).
#
# Two rule sets are known: that of the examples of jmx_exporter, which most charts and operators use, and its format
# without any rule. Case does not matter. Any other rule set is given in a file:
#
#     metric = "kafka_log_end"        # the name of the metric
#     topic = "topic"                 # the labels that say which log it is
#     partition = "partition"
#     node = "instance"               # the label that says of which broker
#
#     [where]                         # only series with these labels
#     cluster = "orders"
#
#     [nodes]                         # values of that label, and the brokers' numbers
#     "kafka-1:7071" = 1
#
# Invariant: the broker of a series is its number, or named in the file; it is never guessed from a host's name.

Labels = Map[str, str]
Place = tuple[str, int]
"""Topic and partition."""

NAME = "__name__"
"""The label of the metric's name."""
_NODE_LABELS = ("node_id", "broker_id", "node", "broker")
"""The labels that may have a broker's number, if the file does not name one."""
_INSTANCE = "instance"
_TEXTS = ("metric", "topic", "partition", "node")
_MOST_NODE = 1 << 31
_MOST_DIGITS = 10
_NAME_FORM = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


class Form(NamedTuple):
    """One rule set: the metric's name in lower case, and the other labels that it must have."""

    metric: str
    where: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        labels = ", ".join(f'{name}="{value}"' for name, value in self.where)
        return f"{self.metric}{{{labels}}}" if labels else self.metric


DEFAULTS = (Form("kafka_log_log_logendoffset"), Form("kafka_log_log_value", (("name", "LogEndOffset"),)))
"""The rule of jmx_exporter's examples, and its format if no rule fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """The rules for reading series."""

    forms: tuple[Form, ...] = DEFAULTS
    topic: str = "topic"
    partition: str = "partition"
    node: str | None = None
    """None for the first of some usual labels whose value is a number."""
    nodes: Map[str, int] = field(default_factory=dict)

    def is_end(self, labels: Labels) -> bool:
        """Whether a series is the end of a log."""
        name = labels.get(NAME, "").lower()
        return any(
            name == form.metric and all(labels.get(label) == value for label, value in form.where)
            for form in self.forms
        )

    def place_of(self, labels: Labels) -> Place:
        """The partition of a series.

        Raises:
            Unreadable: a label is missing, or the partition is not a number.
        """
        topic, partition = labels.get(self.topic), labels.get(self.partition)
        if topic is None or partition is None or not _is_number(partition):
            raise Unreadable(
                f"a series of {labels.get(NAME)} has no labels {self.topic} and {self.partition} with a topic and a "
                "number; name those that it has in --prometheus-mapping"
            )
        # Without a rule the exporter quotes values as the JMX name has them.
        return topic.removeprefix('"').removesuffix('"'), int(partition)

    def node_of(self, labels: Labels) -> int:
        """The broker of a series.

        Raises:
            Unreadable: nothing identifies it.
        """
        named = (self.node,) if self.node is not None else (*_NODE_LABELS, _INSTANCE)
        for label in named:
            value = labels.get(label)
            if value is not None and value in self.nodes:
                return self.nodes[value]
            if value is not None and _is_number(value):
                return int(value)
        shown = next(
            (f"{label}={labels[label]!r:.80}" for label in reversed(named) if label in labels), "no such label"
        )
        raise Unreadable(
            f"which broker a series of {labels.get(NAME)} is of is not known ({shown}); name it under [nodes] in "
            "--prometheus-mapping"
        )


def read_mapping(path: Path) -> Mapping:
    """The mapping of a file.

    Raises:
        Unreadable: it cannot be read, or has an unknown entry.
    """
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Unreadable(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if unknown := said.keys() - {*_TEXTS, "where", "nodes"}:
        raise Unreadable(f"{path}: {min(unknown)!r} is not known; known are {', '.join((*_TEXTS, 'where', 'nodes'))}")
    for name in _TEXTS:
        if name in said and not (isinstance(said[name], str) and _NAME_FORM.fullmatch(said[name])):
            raise Unreadable(f'{path}: {name} must be the name of a metric or label, as {name} = "{name}"')
    where = tuple(sorted(_table(path, said, "where", str).items()))
    nodes = _table(path, said, "nodes", int)
    if not all(0 <= node < _MOST_NODE for node in nodes.values()):
        raise Unreadable(f"{path}: a broker's number is not negative and has 31 bits")
    bare = (Form(said["metric"].lower()),) if "metric" in said else DEFAULTS
    texts = {name: said[name] for name in ("topic", "partition", "node") if name in said}
    return Mapping(forms=tuple(Form(form.metric, (*form.where, *where)) for form in bare), nodes=nodes, **texts)


def _table(path: Path, said: dict[str, Any], name: str, kind: type) -> dict[str, Any]:
    table = said.get(name, {})
    if not isinstance(table, dict) or not all(type(value) is kind for value in table.values()):
        word = "numbers" if kind is int else "texts"
        raise Unreadable(f"{path}: [{name}] must be a table of {word}")
    return table


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) < _MOST_NODE


MOST_SAMPLES = 10_000_000
"""Some 80 minutes of 10,000 partitions in three replicas at 15 s."""
_MOST_OFFSET = float(1 << 53)
"""Above this a float does not represent every whole number."""
_LEAST_MS = 1e11
"""A larger time is in milliseconds, as in Prometheus's own format; OpenMetrics has seconds."""
_MOST_S = 1e10
_ALIKE = 3
"""Two brokers never have this many scrapes at the same milliseconds: Prometheus spreads its targets."""
_LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)?(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+(?P<at>\S+))?\s*")
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")


class Series:
    """The ends of one replica's log: the times of scrapes (ms since 1970, rising), and the offsets."""

    __slots__ = ("ends", "times")

    def __init__(self) -> None:
        self.times = array("q")
        self.ends = array("q")

    def before(self, at_ms: int) -> int | None:
        """The number of the last scrape at or before a time."""
        place = bisect_right(self.times, at_ms) - 1
        return place if place >= 0 else None

    def at(self, at_ms: int) -> int | None:
        """The value scraped at exactly this time."""
        place = self.before(at_ms)
        return None if place is None or self.times[place] != at_ms else self.ends[place]


@dataclass(slots=True)
class Scrapes:
    """Everything that was read: the logs of each broker."""

    by_node: dict[int, dict[Place, Series]] = field(default_factory=dict)
    samples: int = 0

    def times_of(self, node: int) -> list[int]:
        """When a broker was scraped, ms, rising."""
        return sorted({at for series in self.by_node[node].values() for at in series.times})

    def period_ms(self) -> int:
        """The usual time from one scrape to the next, of the broker where it is largest."""
        found = [
            int(median(b - a for a, b in pairwise(times)))
            for node in self.by_node
            if len(times := self.times_of(node)) > 1
        ]
        if not found:
            raise Unreadable("no broker was scraped twice, so that nothing says how far apart scrapes are")
        return max(1, *found)


class Reader:
    """Takes answers and texts, one after the other, and returns all of them as `Scrapes`."""

    def __init__(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._parts: dict[tuple[int, Place], dict[str, dict[int, int]]] = {}
        """The scraped values with their times, by replica and the series' own labels."""
        self._samples = 0

    def take_text(self, name: str, lines: Iterable[str]) -> None:
        """Take a text with a time in each line.

        Raises:
            Unreadable: with the line.
        """
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            try:
                self._take_line(text)
            except Unreadable as error:
                raise Unreadable(f"{name}:{number}: {error}") from error

    def take_answer(self, name: str, content: bytes) -> int:
        """Take an answer of Prometheus's API; returns how many series are in it.

        Raises:
            Unreadable: it is an error, or not a matrix.
        """
        try:
            said = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"{name}: no JSON of Prometheus: {error!s:.100}") from error
        try:
            if said["status"] != "success":
                raise Unreadable(f"{name}: Prometheus answered: {said.get('error')!s:.200}")
            if said["data"]["resultType"] != "matrix":
                raise Unreadable(
                    f"{name}: the answer is a {said['data']['resultType']!s:.20} and must be a matrix: ask "
                    "/api/v1/query for a range, such as kafka_log_log_logendoffset[1h]"
                )
            for one in said["data"]["result"]:
                self._take_result(name, one["metric"], one["values"])
            return len(said["data"]["result"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unreadable(f"{name}: the answer has not the form of Prometheus's API") from error

    def found(self) -> Scrapes:
        """Everything that was taken.

        Raises:
            Unreadable: there is nothing, it contradicts itself, or it is no record of scrapes.
        """
        if not self._parts:
            forms = " and no ".join(map(str, self._mapping.forms))
            raise Unreadable(f"there is no {forms}; name what your exporter has in --prometheus-mapping")
        scrapes = Scrapes(samples=self._samples)
        for (node, place), parts in sorted(self._parts.items()):
            scrapes.by_node.setdefault(node, {})[place] = _joined(node, place, parts)
        _check_scraped(scrapes)
        return scrapes

    def _take_result(self, name: str, labels: Labels, values: Iterable[Any]) -> None:
        try:
            if self._mapping.is_end(labels):
                self._take_series(labels, values)
        except Unreadable as error:
            raise Unreadable(f"{name}: {error}") from error

    def _take_line(self, text: str) -> None:
        found = _LINE.fullmatch(text)
        if found is None:
            raise Unreadable(f"{text!r:.80} is not a line of a metric")
        labels = dict(_labels(found["labels"] or ""))
        if found["name"] is not None:
            labels[NAME] = found["name"]
        if not self._mapping.is_end(labels):
            return
        if found["at"] is None:
            raise Unreadable(
                "the line has no time, and one scrape does not say when it was; give what promtool tsdb "
                "dump-openmetrics prints, or an answer of /api/v1/query"
            )
        at = _number(found["at"], "time")
        self._take_series(labels, [(at / 1000 if at >= _LEAST_MS else at, found["value"])])

    def _take_series(self, labels: Labels, values: Iterable[Any]) -> None:
        key = self._mapping.node_of(labels), self._mapping.place_of(labels)
        part = self._parts.setdefault(key, {}).setdefault(json.dumps(labels, sort_keys=True), {})
        for at_s, text in values:
            value = _number(text, "value")
            if math.isnan(value):
                # The mark of a scrape that failed.
                continue
            if not (0 <= value < _MOST_OFFSET and value.is_integer()):
                raise Unreadable(f"{text!s:.40} of {_shown(*key)} is not an offset; another metric is meant")
            since_s = _number(at_s, "time")
            # NaN is not within the bounds either.
            if not 0 < since_s < _MOST_S:
                raise Unreadable(f"{at_s!s:.40} is not a time in seconds since 1970")
            at_ms = round(since_s * 1000)
            self._samples += at_ms not in part
            part[at_ms] = int(value)
        if self._samples > MOST_SAMPLES:
            raise Unreadable(f"more than {MOST_SAMPLES:,} samples; give --from and --to, or fewer brokers")


def _joined(node: int, place: Place, parts: dict[str, dict[int, int]]) -> Series:
    """The joined series of one replica, which has other labels after a restart in another place."""
    series = Series()
    for labels, part in sorted(parts.items(), key=lambda item: min(item[1], default=0)):
        if not part:
            continue
        if series.times and min(part) <= series.times[-1]:
            raise Unreadable(
                f"two series are of {_shown(node, place)} at the same time, one of them {labels:.300}; choose one "
                "under [where] in --prometheus-mapping"
            )
        for at_ms in sorted(part):
            series.times.append(at_ms)
            series.ends.append(part[at_ms])
    return series


def _check_scraped(scrapes: Scrapes) -> None:
    several = [(node, scrapes.times_of(node)) for node in sorted(scrapes.by_node)]
    for (one, times), (other, others) in pairwise(several):
        if len(times) >= _ALIKE and times[:_ALIKE] == others[:_ALIKE]:
            raise Unreadable(
                f"nodes {one} and {other} have values at the same milliseconds: these are steps, as query_range makes "
                "them, and no scrapes; ask /api/v1/query for a range, such as kafka_log_log_logendoffset[1h]"
            )


def _labels(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None:
            raise Unreadable(f"{text[at:]!r:.60} are not labels")
        yield found[1], _ESCAPED.sub(lambda one: "\n" if one[1] == "n" else one[1], found[2])
        at = found.end()


def _number(text: Any, what: str) -> float:
    try:
        return float(text)
    except (ValueError, TypeError) as error:
        raise Unreadable(f"{text!s:.40} is no {what}") from error


def _shown(node: int, place: Place) -> str:
    return f"{place[0]}-{place[1]} on node {node}"
