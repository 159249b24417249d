"""What really happened to a cluster, counted from the state events that its processes wrote (criterion V5).

Invariant: only events count, never the intended effect of a fault.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

EVENTS = "events.jsonl"
NO_LEADER = (None, -1)
"""How an event says that there is no leader."""


def rows(directory: Path) -> Iterator[dict[str, Any]]:
    """The state events of one process's data directory, oldest first; a torn last line is left out."""
    for path in (directory / f"{EVENTS}.1", directory / EVENTS):
        try:
            lines = path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            row["event_type"] = row.get("event_type", row.get("event"))
            yield row


def ended_sessions(controllers: Iterable[Path]) -> int:
    """How many sessions of nodes ended so far, as the controllers' events say."""
    found = (row for directory in controllers for row in rows(directory))
    return sum(row["event_type"] == "NODE_SESSION" and row.get("phase") == "fence" for row in found)


def counted(controllers: list[Path], nodes: list[Path]) -> Counter[str]:
    """How often each thing happened; the names are those that a scenario's ``demands`` use."""
    found: Counter[str] = Counter()
    for directory in controllers:
        for row in rows(directory):
            _count_decision(row, found)
    for directory in nodes:
        for row in rows(directory):
            if row["event_type"] == "TRUNCATION":
                found["truncations"] += 1
                found["truncated_records"] += max(0, row["from_leo"] - row["to_leo"])
                found["committed_cut"] += row.get("committed_cut") or 0
            elif row["event_type"] == "PARTITION_FAILED":
                found["failed_partitions"] += 1
            elif row["event_type"] == "ALTER_PARTITION":
                found["alter_partitions"] += 1
    return found


def _count_decision(row: dict[str, Any], found: Counter[str]) -> None:
    if row["event_type"] == "LEADER_CHANGE" and row.get("old_leader_epoch") is not None:
        found["leader_epochs"] += 1
        if row.get("new_leader") in NO_LEADER:
            found["offline"] += 1
        elif row.get("new_leader") != row.get("old_leader"):
            found["elections"] += 1
    elif row["event_type"] == "ISR_CHANGE" and row.get("old_isr"):
        before, after = set(row["old_isr"]), set(row["new_isr"])
        found["isr_shrinks"] += bool(before - after)
        found["isr_grows"] += bool(after - before)
    elif row["event_type"] == "NODE_SESSION":
        found[f"session_{row.get('phase', row.get('outcome', 'change'))}"] += 1
