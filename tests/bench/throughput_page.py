"""The closed loop's rows as tables: speed and latency, CPU and memory of each process, ratios within rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bars import KAFKA, NATS, NATS_SYNCED, STRIPPED, ratios
from cells import ABSENT, column, figures_of, names, span, table

Row = Mapping[str, Any]
PEERS = (NATS, NATS_SYNCED, KAFKA, STRIPPED)
"""The parties that ours is divided by, where they were measured."""
_PROCESSES = ("leader", "follower0", "follower1", "server", "client")

INTRO = """All parties run on one machine in interleaved rounds: each measures every party once per shape, in turn.
A closed loop keeps `window` requests outstanding; acks=all with three replicas for us and Kafka, R3 on file for NATS.
What one party left to be written to the disk is written before the next one is measured.
Free memory is filled with pages of the cache before each measurement, as on a server that has run for a day.
Without that a page costs three to twelve times as much, by chance (`tests/bench/used_memory.py`).
Parties that are not measured are up and without load; what other processes used during a measurement is in its row.
NATS and Kafka have their defaults, which do not fsync per message; compare them with ours under `page-cache`.
With `sync: always` NATS syncs each message, and is compared with ours under `fsync`.
Kafka's client is its own Java producer, one record per batch, one process for all measurements.
The stripped pipeline is our stack with nothing of a product in it (`tests/bench/party_stripped.py`).
"""


def throughput_tables(rows: Sequence[Row]) -> str:
    """A section per shape, then one per peer."""
    lines: list[str] = []
    for shape in names(rows, "shape"):
        lines += [f"## {shape}", "", *_speeds(rows, shape), *_processes(rows, shape)]
    for peer in PEERS:
        if figures_of(rows, party=peer):
            lines += [f"## Ratio to {peer}, round by round", "", *_ratios(rows, peer)]
    return "\n".join(lines)


def _speeds(rows: Sequence[Row], shape: str) -> list[str]:
    head = [
        "party",
        "MB/s",
        "requests",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "CPU ms/MB, all processes",
        "others, % of a core",
    ]
    lines = []
    for party in names(rows, "party"):
        found = figures_of(rows, shape=shape, party=party)
        if found:
            cpu = [sum(one["cpu_ms_per_mb"].values()) for one in found]
            latencies = [span(column(found, name), 2) for name in ("p50_ms", "p99_ms", "p999_ms")]
            others = span(column(found, "others_percent"), 0)
            speed, requests = span(column(found, "megabytes_per_s")), span(column(found, "requests"), 0)
            lines.append([party, speed, requests, *latencies, span(cpu), others])
    return table(head, lines)


def _processes(rows: Sequence[Row], shape: str) -> list[str]:
    """CPU ms/MB and RSS in MiB of each process."""
    lines = []
    for party in names(rows, "party"):
        found = figures_of(rows, shape=shape, party=party)
        if found:
            lines.append([party, *(_process(found, name) for name in _PROCESSES)])
    head = ["party: CPU ms/MB; RSS MiB", *_PROCESSES]
    return table(head, lines)


def _process(found: Sequence[Row], name: str) -> str:
    cpu = [one["cpu_ms_per_mb"][name] for one in found if name in one["cpu_ms_per_mb"]]
    rss = [one["rss_mib"][name] for one in found if name in one["rss_mib"]]
    return f"{span(cpu)}; {span(rss, 0)}" if cpu else ABSENT


def _ratios(rows: Sequence[Row], peer: str) -> list[str]:
    lines = []
    for shape in names(rows, "shape"):
        for party in names(rows, "party"):
            found = ratios(rows, _speed, {"shape": shape, "party": party}, {"shape": shape, "party": peer})
            if party != peer and found:
                lines.append([shape, party, span(found, 2)])
    return table(["shape", "party", "MB/s, ratio"], lines)


def _speed(figures: Row) -> float:
    return float(figures["megabytes_per_s"])
