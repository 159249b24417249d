"""How fast Strandline is beside its peers, from `docs/benchmarks.json`: a block of README.md and docs/COMPARISON.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

CACHED, SYNCED = "Strandline stream, page-cache", "Strandline stream, fsync"
NATS, KAFKA = "NATS JetStream R3", "Kafka"
SHAPES = ("64 KiB, window 1", "64 KiB, window 5")

Rows = Sequence[Mapping[str, Any]]


def speed_sentence(measured: Mapping[str, Any]) -> str:
    """The ratios of throughput, each the median over the rounds in which both were measured."""
    rows: Rows = measured["throughput"]
    kafka = f", and {_both(rows, CACHED, KAFKA)} of Kafka's" if any(row["party"] == KAFKA for row in rows) else ""
    return (
        "With one and with five requests of 64 KiB outstanding, Strandline reached "
        f"{_both(rows, CACHED, NATS)} of the throughput of NATS JetStream{kafka}, on one machine in the same rounds, "
        "where none of them syncs before it answers. "
        f"With fsync, the default, it reached {_both(rows, SYNCED, NATS)} of NATS JetStream, which still does not sync."
    )


def _both(rows: Rows, ours: str, peer: str) -> str:
    return " and ".join(f"{_ratio(rows, shape, ours, peer):.2f}" for shape in SHAPES)


def _ratio(rows: Rows, shape: str, ours: str, peer: str) -> float:
    over, under = (
        {
            row["round"]: row["figures"]["megabytes_per_s"]
            for row in rows
            if row["party"] == party and row["shape"] == shape
        }
        for party in (ours, peer)
    )
    return median(over[number] / under[number] for number in over.keys() & under.keys())
