"""The sizing of a data node, from `docs/benchmarks.json`: a block of docs/OPERATIONS.md."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

PARTY = "Strandline stream, fsync"


def sizing_table(measured: Mapping[str, Any]) -> str:
    """One row per shape of load, and where it was measured."""
    about = measured.get("parts", {}).get("throughput") or measured["about"]
    rows = [row for row in measured["throughput"] if row["party"] == PARTY]
    lines = [
        "| requests | MB/s | CPU of the leader, ms/MB | of a follower, ms/MB | memory of the leader, MiB |",
        "|---|---|---|---|---|",
    ]
    for shape in dict.fromkeys(row["shape"] for row in rows):
        found = [row["figures"] for row in rows if row["shape"] == shape]
        followers = [cpu for one in found for name, cpu in one["cpu_ms_per_mb"].items() if name.startswith("follower")]
        cells = (
            f"{median(one['megabytes_per_s'] for one in found):.0f}",
            f"{median(one['cpu_ms_per_mb']['leader'] for one in found):.1f}",
            f"{median(followers):.1f}",
            f"{max(one['rss_mib']['leader'] for one in found):.0f}",
        )
        lines.append(f"| {shape} | {' | '.join(cells)} |")
    where = f"Measured {about['date']} on one machine with {about['cpus']} CPUs that ran all three nodes and the client"
    return "\n".join([*lines, "", f"{where}; {about['kernel']}, Python {about['python']}; medians, memory at most."])
