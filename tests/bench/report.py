"""Writes the measurements of `run.py` as `docs/BENCHMARKS.md`: medians, ranges, ratios within rounds, as measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

Row = Mapping[str, Any]

BELIEVABLE_STEAL_PERCENT = 3.0
PEERS = ("NATS JetStream R3", "Kafka", "stripped pipeline")
"""The parties that ours is divided by, where they were measured."""

HEAD = """# Measurements

Written by `make bench` from `benchmarks.json`, which lies beside this page.

All parties ran on one machine in interleaved rounds: each round measures every party once per shape, in turn.
A closed loop keeps `window` requests outstanding; acks=all with three replicas for us and Kafka, R3 on file for NATS.
Each cell is the median over the rounds, with the range in brackets.
Only ratios within one run count; the machine has few cores and is shared with the clients, so identical repeats differ.
NATS and Kafka have their defaults, which do not fsync per message; compare them with ours under `page-cache`.
Kafka's client is its own Java producer, one record per batch, one process for all measurements.
The stripped pipeline is our stack with nothing of a product in it (`tests/bench/party_stripped.py`).
"""


def _span(values: Sequence[float], digits: int = 1) -> str:
    return f"{median(values):.{digits}f} [{min(values):.{digits}f}-{max(values):.{digits}f}]"


def _of(rows: Iterable[Row], party: str, shape: str) -> list[Row]:
    return [r for r in rows if r["party"] == party and r["shape"] == shape]


def _names(rows: Iterable[Row], key: str) -> list[str]:
    return list(dict.fromkeys(r[key] for r in rows))


def _cpu(figures: Row) -> float:
    return float(sum(figures["cpu_ms_per_mb"].values()))


def throughput_table(rows: Sequence[Row]) -> str:
    """MB/s, latencies, CPU and memory per party and shape."""
    lines = []
    for shape in _names(rows, "shape"):
        lines += [
            f"## {shape}",
            "",
            "| party | MB/s | p50 ms | p99 ms | CPU ms/MB, all parties | of it client | leader RSS MiB |",
        ]
        lines.append("|---|---|---|---|---|---|---|")
        for party in _names(rows, "party"):
            found = [r["figures"] for r in _of(rows, party, shape)]
            if not found:
                continue
            rss = [f["rss_mib"].get("leader", f["rss_mib"].get("server", 0.0)) for f in found]
            cells = [
                _span([f["megabytes_per_s"] for f in found]),
                _span([f["p50_ms"] for f in found], 2),
                _span([f["p99_ms"] for f in found], 2),
                _span([_cpu(f) for f in found]),
                _span([f["cpu_ms_per_mb"]["client"] for f in found]),
                _span(rss, 0),
            ]
            lines.append(f"| {party} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def ratio_table(rows: Sequence[Row], peer: str) -> str:
    """Strandline's throughput divided by the peer's of the same round."""
    lines = [f"## Ratio to {peer}, round by round", "", "| shape | party | median | range |", "|---|---|---|---|"]
    for shape in _names(rows, "shape"):
        theirs = {r["round"]: r["figures"]["megabytes_per_s"] for r in _of(rows, peer, shape)}
        for party in _names(rows, "party"):
            ours = {r["round"]: r["figures"]["megabytes_per_s"] for r in _of(rows, party, shape)}
            ratios = [ours[n] / theirs[n] for n in ours if n in theirs]
            if party != peer and ratios:
                lines.append(f"| {shape} | {party} | {median(ratios):.2f} | {min(ratios):.2f}-{max(ratios):.2f} |")
    return "\n".join([*lines, ""])


_CONDITIONS = (
    "One partition, one small record under way at a time, acks=all, a cluster without other load on one machine.\n"
    "The closed connection tells the controller of a killed process at once; a machine that vanishes costs the session "
    "time-out more.\n"
)
FAILOVER = (
    _CONDITIONS + "The silence that the producer sees: from the last acknowledgement before the kill to the first "
    "acknowledgement of a record that was sent after it."
)
FAILOVER_BEFORE = (
    _CONDITIONS + "These figures are of an earlier measure, which looked from 20 ms after the last acknowledgement on: "
    "where service was back sooner, the figure is an ordinary gap between two acknowledgements.\n"
    "`make bench` now takes the silence that the producer sees, from the last acknowledgement before the kill to the "
    "first of a record that was sent after it."
)
"""For figures that do not say which gap they are."""


def failover_table(measured: Sequence[Row]) -> str:
    """Gaps of acknowledgements per leader kill."""
    lines = ["## Failover: silence of acknowledgements per `kill -9` of the leader", ""]
    lines += [FAILOVER if all("measure" in one for one in measured) else FAILOVER_BEFORE, ""]
    lines += ["| session time-out | heartbeat | kills | median ms | range ms |", "|---|---|---|---|---|"]
    for one in measured:
        gaps = one["gaps_ms"]
        lines.append(
            f"| {one['session_timeout_ms']} ms | {one['heartbeat_interval_ms']} ms | {len(gaps)} "
            f"| {median(gaps):.0f} | {min(gaps):.0f}-{max(gaps):.0f} |"
        )
    return "\n".join([*lines, ""])


def _commit(about: Row) -> str:
    if "commit" in about:
        return f" at commit {about['commit']}"
    return " at a commit that was not recorded (the data path has changed since)"


def page(results: Row, bars: str) -> str:
    """The whole page; ``bars`` is the table of `bars.bars_table`."""
    about = results["about"]
    facts = f"\nMeasured {about['date']}{_commit(about)} on {about['cpus']} CPUs, {about['kernel']}, "
    facts += f"Python {about['python']}, "
    facts += f"grpcio {about['grpcio']}, {about['nats']}, everybody at nice {about['nice']}; {about['rounds']} rounds, "
    facts += f"{about['run_s']} s each after {about['warm_s']} s of warming; "
    if about.get("kafka_warm_s"):
        facts += f"Kafka warmed for {about['kafka_warm_s']:g} s before the first round; "
    facts += f"worst steal time in a measurement {about['steal_percent']} %.\n"
    if about["steal_percent"] > BELIEVABLE_STEAL_PERCENT:
        facts += "The host took much of the processor: repeat the run before you rely on a figure.\n"
    rows = results["throughput"]
    parts = [HEAD, facts, throughput_table(rows)]
    parts += [ratio_table(rows, peer) for peer in PEERS if any(r["party"] == peer for r in rows)]
    parts.append(bars)
    if results["failover"]:
        parts.append(failover_table(results["failover"]))
    return "\n".join(parts)
