"""The block of docs/BENCHMARKS.md that says what larger deployments need."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from growth.model import (
    BUSY_SHARE,
    Check,
    Costs,
    Deployment,
    Line,
    changes_per_s,
    controller_us_per_s,
    dead_machine_s,
    machines_for,
    metadata_bytes,
    most_partitions,
    node_us_per_s,
    nodes_for,
    uses,
)

from strandline.rpc.channels import MAX_MESSAGE_BYTES

GIB = 1 << 30
CORES, WORKERS = 8, 7
"""Of the machine that several nodes share."""
TARGETS = (
    Deployment(name="1 GiB/s", bytes_per_s=GIB, batch_kib=256, partitions=1_000, nodes=3, clients=1_000),
    Deployment(
        name="1 GiB/s in small batches", bytes_per_s=GIB, batch_kib=32, partitions=1_000, nodes=3, clients=1_000
    ),
    Deployment(
        name="100,000 partitions", bytes_per_s=GIB / 10, batch_kib=64, partitions=100_000, nodes=3, clients=1_000
    ),
    Deployment(name="1,000 nodes", bytes_per_s=10 * GIB, batch_kib=256, partitions=10_000, nodes=1_000, clients=10_000),
)
"""What is asked of the model; where it says three nodes, the model says how many are needed."""


def growth_block(costs: Costs, checks: Sequence[Check], commit: str) -> str:
    """Costs, checks and predictions as Markdown."""
    where = f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    return "\n".join(
        [
            "## Growth on paper",
            "",
            f"Fitted to measurements of commit {commit} on {datetime.now(UTC).date().isoformat()}; {where}.",
            "Every cost is a straight line over what causes it, durability=fsync, three replicas.",
            "",
            *_cost_rows(costs),
            "",
            "Two points that no line was fitted to:",
            "",
            "| | predicted | measured | off by |",
            "|---|---|---|---|",
            *(
                f"| {one.what} | {one.predicted:,.0f} {one.unit} | {one.measured:,.0f} {one.unit} | {one.off_by:+.0%} |"
                for one in checks
            ),
            "",
            f"A node uses one core, of which {BUSY_SHARE:.0%} are planned; load and partitions are spread evenly. "
            "Changes are single ones (an ISR, a leader, a setting) that one controller can decide and send to all.",
            "",
            "| deployment | batches | nodes | of a node's core | state in one message | changes | first to break |",
            "|---|---|---|---|---|---|---|",
            *(_target_row(costs, wanted) for wanted in TARGETS),
            "",
            *_what_breaks(costs),
            "",
            *_with_workers(costs),
        ]
    )


def _cost_rows(costs: Costs) -> list[str]:
    def row(what: str, line: Line, unit: str, per: str) -> str:
        return f"| {what} | {line.at_nothing:,.1f} {unit} | {line.slope:,.2f} {unit} {per} |"

    return [
        "| cost | without any | for each |",
        "|---|---|---|",
        row("leader, one acknowledged batch", costs.leader_batch, "us", "per KiB"),
        row("one follower, one batch", costs.follower_batch, "us", "per KiB"),
        row("data node, idle", costs.idle_partitions, "us/s", "per partition it holds"),
        row("leader, idle", costs.idle_clients, "us/s", "per waiting consumer"),
        row("controller, idle", costs.idle_nodes, "us/s", "per data node"),
        row("controller, idle", costs.watching_clients, "us/s", "per client"),
        row("controller, one change", costs.changes, "us", "per node or client that receives it"),
        row("controller, elections", costs.controller_elections, "us", "per partition"),
        row("surviving node, elections", costs.node_elections, "us", "per partition"),
        row("memory of a data node", costs.partition_kib, "KiB", "per partition it holds"),
        row("memory of a leader", costs.client_kib, "KiB", "per waiting consumer"),
        row("state of the cluster, encoded", costs.metadata_by_partitions, "bytes", "per partition"),
        row("state of the cluster, encoded", costs.metadata_by_nodes, "bytes", "per node"),
    ]


def _planned(costs: Costs, wanted: Deployment) -> Deployment:
    return replace(wanted, nodes=max(wanted.nodes, nodes_for(costs, wanted)))


def _with_workers(costs: Costs) -> list[str]:
    """What changes where a machine runs several nodes."""
    return [
        f"A machine of {CORES} cores runs one node, or {WORKERS} (`--workers {WORKERS}`). Workers lower the number of "
        "machines and not that of nodes; a dead machine is as many dead nodes. What the cores of one machine share "
        "(memory, disk, network) is not in the model.",
        "",
        f"| deployment | machines with one node | machines with {WORKERS} workers | core of the controller | "
        f"controller's time for one dead machine, 1 and {WORKERS} workers |",
        "|---|---|---|---|---|",
        *(_worker_row(costs, wanted) for wanted in TARGETS),
    ]


def _worker_row(costs: Costs, wanted: Deployment) -> str:
    alone, shared = (machines_for(costs, wanted, workers) for workers in (1, WORKERS))
    nodes = (alone, shared * WORKERS)
    cores = " and ".join(f"{controller_us_per_s(costs, replace(wanted, nodes=n)) / 1e6:.0%}" for n in nodes)
    dead = " and ".join(f"{dead_machine_s(costs, wanted, workers):,.3g} s" for workers in (1, WORKERS))
    return f"| {wanted.name} | {alone:,} | {shared:,} ({nodes[1]:,} nodes) | {cores} | {dead} |"


def _target_row(costs: Costs, wanted: Deployment) -> str:
    planned = _planned(costs, wanted)
    first = uses(costs, planned)[0]
    batches = f"{planned.bytes_per_s / 1024 / planned.batch_kib:,.0f}/s of {planned.batch_kib} KiB"
    core = f"{node_us_per_s(costs, planned) / 1e6:.0%}"
    state = f"{metadata_bytes(costs, planned) / MAX_MESSAGE_BYTES:.0%} of the limit"
    verdict = f"{first.resource}, at {first.share:.0%} of its limit"
    changes = f"{changes_per_s(costs, planned):,.3g}/s"
    return f"| {wanted.name} | {batches} | {planned.nodes:,} | {core} | {state} | {changes} | {verdict} |"


def _what_breaks(costs: Costs) -> list[str]:
    planned = [_planned(costs, wanted) for wanted in TARGETS]
    broken = [
        f"- **{wanted.name}**: {use.resource} would need {use.used:,.3g} {use.unit} of {use.limit:,.3g}."
        for wanted in planned
        for use in uses(costs, wanted)
        if use.share > 1
    ]
    most = most_partitions(costs, 10)
    return [
        f"A watch of the metadata begins with the whole state in one message, so a cluster of ten nodes holds at most "
        f"{most:,} partitions.",
        "",
        *(broken or ["None of these deployments exceeds a limit that the model knows."]),
    ]
