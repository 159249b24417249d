"""The closed loop's rows as one table: speed, latency, CPU and memory of each party, by shape of the requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bars import KAFKA, NATS, NATS_SYNCED, OURS, STRIPPED, SYNCED
from cells import column, figures_of, names, span, table

Row = Mapping[str, Any]

INTRO = """All parties run on one machine in interleaved rounds: each measures every party once per shape, in turn.
A closed loop keeps `window` requests outstanding; acks=all with three replicas for us and Kafka, R3 on file for NATS.
Before each measurement the disk is idle, and free memory is filled with pages of the cache, as after a day's work.
NATS and Kafka have their defaults, without fsync per message: compare with `page-cache`, `sync: always` with `fsync`.
Kafka's client is its own Java producer, one record per batch, one process for all measurements.
The stripped pipeline is our stack with nothing of a product in it (`tests/bench/party_stripped.py`).
"""
SHAPES = ("64 KiB, window 1", "64 KiB, window 5", "256 KiB, window 5")
PARTIES = (OURS, SYNCED, NATS, NATS_SYNCED, KAFKA, STRIPPED)
_HEAD = (
    "requests",
    "party",
    "MB/s",
    "p50 ms",
    "p99.9 ms",
    "CPU ms/MB, all processes",
    "leader's RSS MiB",
)


def throughput_table(rows: Sequence[Row]) -> str:
    """A line per shape and party that bars are about."""
    lines = []
    for shape in filter(SHAPES.__contains__, names(rows, "shape")):
        for party in PARTIES:
            found = figures_of(rows, shape=shape, party=party)
            if found:
                cpu = [sum(one["cpu_ms_per_mb"].values()) for one in found]
                speed = span(column(found, "megabytes_per_s"))
                latencies = [span(column(found, name), 2) for name in ("p50_ms", "p999_ms")]
                memory = span([one["rss_mib"]["leader"] for one in found if "leader" in one["rss_mib"]], 0)
                lines.append([shape, party, speed, *latencies, span(cpu), memory])
    return "\n".join(table(_HEAD, lines))
