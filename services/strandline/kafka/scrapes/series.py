"""The ends of replicas' logs as Prometheus recorded them: when a broker was scraped, and what it answered.

Read are an answer of Prometheus's API (a matrix) and a text with a time in each line, as `promtool tsdb
dump-openmetrics` prints it.

Invariant: at most `MOST_SAMPLES` are held. Moments are those of scrapes: a series that was evaluated at steps, as
query_range does, repeats old values at times of its own, and is refused.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from strandline.kafka.history.wire import Unreadable
from strandline.kafka.scrapes.mapping import NAME, Labels, Mapping, Place

MOST_SAMPLES = 10_000_000
"""Of 10,000 partitions in three replicas, some 80 minutes at 15 s."""
_MOST_OFFSET = float(1 << 53)
"""Beyond it a float is no whole number."""
_LEAST_MS = 1e11
"""A time that is larger is in milliseconds, as in Prometheus's own format; OpenMetrics has seconds."""
_MOST_S = 1e10
_ALIKE = 3
"""So many scrapes of two brokers are never at the same milliseconds: Prometheus spreads its targets."""
_LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)?(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+(?P<at>\S+))?\s*")
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")


class Series:
    """The end of one replica's log: at which scrapes (ms since 1970, rising), and where."""

    __slots__ = ("ends", "times")

    def __init__(self) -> None:
        self.times = array("q")
        self.ends = array("q")

    def before(self, at_ms: int) -> int | None:
        """The number of the last scrape at or before a time."""
        place = bisect_right(self.times, at_ms) - 1
        return place if place >= 0 else None

    def at(self, at_ms: int) -> int | None:
        """What was scraped at exactly this time."""
        place = self.before(at_ms)
        return None if place is None or self.times[place] != at_ms else self.ends[place]


@dataclass(slots=True)
class Scrapes:
    """Everything that was read: for each broker, the logs that it has."""

    by_node: dict[int, dict[Place, Series]] = field(default_factory=dict)
    samples: int = 0

    def times_of(self, node: int) -> list[int]:
        """When a broker was scraped, ms, rising."""
        return sorted({at for series in self.by_node[node].values() for at in series.times})

    def period_ms(self) -> int:
        """From one scrape to the next: the usual distance, of the broker where it is largest."""
        found = [
            int(median(b - a for a, b in pairwise(times)))
            for node in self.by_node
            if len(times := self.times_of(node)) > 1
        ]
        if not found:
            raise Unreadable("no broker was scraped twice, so that nothing says how far apart scrapes are")
        return max(1, *found)


class Reader:
    """Takes answers and texts, one after the other, and gives all of them as `Scrapes`."""

    def __init__(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._parts: dict[tuple[int, Place], dict[str, dict[int, int]]] = {}
        """By replica and the series' own labels: what was scraped when."""
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
            Unreadable: it is an error, or no matrix.
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
            Unreadable: it is nothing, contradicts itself, or is no record of scrapes.
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
            raise Unreadable(f"{text!r:.80} is no line of a metric")
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
                raise Unreadable(f"{text!s:.40} of {_shown(*key)} is no offset; another metric is meant")
            since_s = _number(at_s, "time")
            # What is no number is not within either.
            if not 0 < since_s < _MOST_S:
                raise Unreadable(f"{at_s!s:.40} is no time in seconds since 1970")
            at_ms = round(since_s * 1000)
            self._samples += at_ms not in part
            part[at_ms] = int(value)
        if self._samples > MOST_SAMPLES:
            raise Unreadable(f"more than {MOST_SAMPLES:,} samples; give --from and --to, or fewer brokers")


def _joined(node: int, place: Place, parts: dict[str, dict[int, int]]) -> Series:
    """The series of one replica, which has other labels after a restart in another place."""
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
            raise Unreadable(f"{text[at:]!r:.60} are no labels")
        yield found[1], _ESCAPED.sub(lambda one: "\n" if one[1] == "n" else one[1], found[2])
        at = found.end()


def _number(text: Any, what: str) -> float:
    try:
        return float(text)
    except (ValueError, TypeError) as error:
        raise Unreadable(f"{text!s:.40} is no {what}") from error


def _shown(node: int, place: Place) -> str:
    return f"{place[0]}-{place[1]} on node {node}"
