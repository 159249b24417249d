"""The bars that the speed of Strandline is held against: a figure per round, the median of the rounds, met or missed.

A bar whose peer was not measured in the run is listed as not measured, and a missed one stays as it is. A ratio is one
of two figures of the same round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Figures = Mapping[str, Any]
Row = Mapping[str, Any]
Results = Mapping[str, Any]

OURS, SYNCED = "Strandline stream, page-cache", "Strandline stream, fsync"
NATS, NATS_SYNCED = "NATS JetStream R3", "NATS JetStream R3, sync: always"
GRPCIO_CLIENT, OVER_TLS = f"{OURS}, grpcio client", f"{OURS}, TLS"
STRIPPED, STRIPPED_GRPCIO, KAFKA = "stripped pipeline", "stripped pipeline, grpcio", "Kafka"
CLIENT_CACHED, CLIENT_SYNCED = "strandline.client, page-cache", "strandline.client, fsync"
AIOKAFKA, JAVA = "aiokafka to Kafka", "Kafka's Java producer"
PARTIES = (OURS, GRPCIO_CLIENT, OVER_TLS, SYNCED, NATS, NATS_SYNCED, KAFKA, STRIPPED, STRIPPED_GRPCIO)
SHAPES = _ALONE, _SMALL, _LARGE = "64 KiB, window 1", "64 KiB, window 5", "256 KiB, window 5"
"""What the page shows."""
MET, MISSED = "met", "**missed**"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What ``reduced`` makes of the ``values`` of a run is at least, or at most, ``wanted``."""

    measure: str
    what: str
    values: Callable[[Results], Sequence[float]]
    wanted: float
    at_least: bool = False
    reduced: Callable[[Sequence[float]], float] = median
    digits: int = 2
    rounds: int = 5
    """Of fewer it is judged with a remark."""

    def verdict(self, values: Sequence[float]) -> str:
        """Met, missed or not measured."""
        if not values:
            return "not measured"
        obtained = self.reduced(values)
        is_met = obtained >= self.wanted if self.at_least else obtained <= self.wanted
        remark = "" if len(values) >= self.rounds else f", of fewer than {self.rounds} rounds"
        return f"{MET if is_met else MISSED}{remark}"

    def line(self, results: Results) -> list[object]:
        """The cells of its row."""
        values = self.values(results)
        wanted = f"{'at least' if self.at_least else 'at most'} {self.wanted:g}"
        found = [f"{f(values):.{self.digits}f}" for f in (self.reduced, min, max) if values]
        obtained = "{} [{}-{}]".format(*found) if found else ""
        return [self.measure, self.what, wanted, obtained, self.verdict(values)]


def having(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def ratios(rows: Sequence[Row], figure: Callable[[Figures], float], ours: Row, theirs: Row) -> list[float]:
    """The figure of the rows that have ``ours``, divided by that of ``theirs``, for each round that has both."""
    over, under = ({row["round"]: figure(row["figures"]) for row in having(rows, **one)} for one in (ours, theirs))
    return [over[number] / under[number] for number in sorted(over.keys() & under.keys()) if under[number]]


def speed(figures: Figures) -> float:
    """MB/s."""
    return float(figures["megabytes_per_s"])


def all_cpu(figures: Figures) -> float:
    """CPU ms/MB of all processes. Not by ``sum``, whose result for floats differs from Python 3.12 on."""
    return math.fsum(figures["cpu_ms_per_mb"].values())


def _p50(figures: Figures) -> float:
    return float(figures["p50_ms"])


def _server_rss(figures: Figures) -> float:
    return float(max(mib for name, mib in figures["rss_mib"].items() if name != "client"))


def _of_throughput(
    shape: str, what: str, figure: Callable[[Figures], float], party: str, peer: str, wanted: float
) -> Bar:
    def values(results: Results) -> list[float]:
        rows = results.get("throughput", ())
        return ratios(rows, figure, {"shape": shape, "party": party}, {"shape": shape, "party": peer})

    what = f"{what} of {party} to {peer}"
    return Bar(measure=shape, what=what, values=values, wanted=wanted, at_least=figure is speed)


def _of_clients(verb: str, party: str, peer: str, wanted: float) -> Bar:
    name = {"sent": "records_per_s", "read": "read_per_s"}[verb]

    def values(results: Results) -> list[float]:
        rows = [row for row in results.get("clients", ()) if name in row["figures"]]
        return ratios(rows, lambda figures: float(figures[name]), {"client": party}, {"client": peer})

    what = f"records/s of {party} to {peer}"
    return Bar(measure=f"full client, 1 KiB records, {verb}", what=what, values=values, wanted=wanted, at_least=True)


def gaps_of(results: Results, fault: str, session_ms: int) -> list[float]:
    """The gaps in ms by this fault."""
    rows = having(results.get("failover", ()), fault=fault, session_timeout_ms=session_ms)
    return [gap for row in rows for gap in row["gaps_ms"]]


def _of_kills(what: str, reduced: Callable[[Sequence[float]], float], wanted: float) -> Bar:
    def values(results: Results) -> list[float]:
        return gaps_of(results, "kill", 9_000)

    measure = "failover under load, kill -9"
    return Bar(measure=measure, what=what, values=values, wanted=wanted, reduced=reduced, digits=0, rounds=20)


def _of_vanishing(session_ms: int) -> Bar:
    def values(results: Results) -> list[float]:
        return [gap - session_ms for gap in gaps_of(results, "vanish", session_ms)]

    what = f"ms of the gap beyond the session of {session_ms} ms"
    return Bar(measure="failover under load, vanished address", what=what, values=values, wanted=0, digits=0)


def _idle(results: Results) -> list[float]:
    rows = [row["figures"]["cpu_percent"] for row in having(results.get("idle", ()), partitions=1_000)]
    return [max(percent for name, percent in row.items() if name.startswith("node")) for row in rows]


def _stripped_cpu(results: Results) -> list[float]:
    rows = having(results.get("throughput", ()), shape=_SMALL, party=STRIPPED)
    return [all_cpu(row["figures"]) for row in rows]


_ALL_CPU = "CPU ms/MB, all processes,"

BARS = (
    _of_throughput(_SMALL, _ALL_CPU, all_cpu, OURS, STRIPPED, 1.8),
    _of_throughput(_SMALL, _ALL_CPU, all_cpu, OVER_TLS, OURS, 1.8),
    Bar(measure=_SMALL, what=f"{_ALL_CPU} of {STRIPPED}", values=_stripped_cpu, wanted=4.8),
    _of_throughput(_SMALL, "MB/s", speed, OURS, NATS, 1.2),
    _of_throughput(_SMALL, "MB/s", speed, OURS, KAFKA, 1.3),
    _of_throughput(_LARGE, "MB/s", speed, OURS, NATS, 1.5),
    _of_throughput(_LARGE, "MB/s", speed, OURS, KAFKA, 1.2),
    _of_throughput(_ALONE, "MB/s", speed, OURS, NATS, 1.0),
    _of_throughput(_ALONE, "p50", _p50, OURS, NATS, 1.0),
    _of_throughput(_SMALL, "MB/s", speed, SYNCED, NATS_SYNCED, 1.0),
    _of_throughput(_SMALL, "RSS of the largest server", _server_rss, OURS, KAFKA, 0.12),
    _of_clients("sent", CLIENT_SYNCED, AIOKAFKA, 1.5),
    _of_clients("sent", CLIENT_SYNCED, JAVA, 1.0),
    _of_clients("read", CLIENT_CACHED, AIOKAFKA, 1.3),
    _of_kills("median gap, ms", median, 80),
    _of_kills("longest gap, ms", max, 150),
    _of_vanishing(9_000),
    _of_vanishing(2_000),
    Bar(measure="idle, 1,000 partitions", what="CPU of the busiest node, % of a core", values=_idle, wanted=0.7),
)
