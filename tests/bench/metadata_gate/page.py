"""The block of docs/BENCHMARKS.md that says what subscribers cost when a node dies."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

from metadata_gate.measured import NODES, Gate, Killed
from metadata_gate.stalls import Stall

CONTROLLER_STALL_MS, NODE_STALL_MS, CURRENT_S, MORE_MIB = 50, 100, 1.0, 200
"""What is wanted: each figure is to be below its limit (C67)."""


def gate_block(gate: Gate, commit: str, busy: str = "") -> str:
    """Figures and verdicts as Markdown; ``busy`` says what else the machine did."""
    size, followed = gate.size, gate.followed
    where = f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    alone, watched = gate.alone, gate.watched
    more_mib = gate.snapshots_mib + watched.node_more_mib
    is_current = followed.last_s < CURRENT_S and not followed.behind
    last = f"{followed.last_s:.2f} s" + (f", {followed.behind} never" if followed.behind else "")
    return "\n".join(
        [
            "## Metadata: a node dies under a thousand subscribers",
            "",
            f"Measured at commit {commit} on {datetime.now(UTC).date().isoformat()}; {where}; load average "
            f"{gate.load_before:.1f} before.",
            *([busy] if busy else []),
            f"{size.topics} topics of {size.partitions} partitions with {_replicas(size.replicas)} on {NODES} nodes, "
            f"durability=fsync; `kill -9` of the node that leads {gate.led:,} of them, without subscribers and with "
            f"{size.subscribers:,}, each of one topic and with a connection of its own.",
            "",
            "| figure | wanted | without subscribers | with them | |",
            "|---|---|---|---|---|",
            _stall_row("longest stall of the controller's loop", CONTROLLER_STALL_MS, alone, watched, "controller"),
            _stall_row("longest stall of a surviving node's loop", NODE_STALL_MS, alone, watched, "node"),
            f"| first subscriber knows of it, after the kill | | | {followed.first_s:.2f} s | |",
            f"| last subscriber knows it | below {CURRENT_S:.0f} s | | {last} | {_verdict(is_current)} |",
            f"| memory of a node beyond that without subscribers | below {MORE_MIB} MiB | | {more_mib:.0f} MiB "
            f"| {_verdict(more_mib < MORE_MIB)} |",
            f"| bytes to all subscribers, their first state included | | | {followed.bytes_in / 1e6:.1f} MB | |",
        ]
    )


def _stall_row(what: str, limit_ms: float, alone: Killed, watched: Killed, field: str) -> str:
    before: Stall = getattr(alone, field)
    after: Stall = getattr(watched, field)
    verdict = _verdict(after.late_ms < limit_ms)
    return f"| {what} | below {limit_ms} ms | {_stall(before)} | {_stall(after)} | {verdict} |"


def _stall(stall: Stall) -> str:
    return f"{stall.late_ms:.0f} ms: {stall.busy_ms:.0f} on a processor, {stall.queued_ms:.0f} waiting for one"


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"
