"""Reads Spark's own event log: each step's stages, and whether they spilled or were skewed.

A step is a job description, set before its queries are run. The skew of a stage is how much longer its longest task ran
than the median one; stages of fewer than four tasks, or of less than a second, are not counted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

DESCRIPTION = "spark.job.description"
_LEAST_TASKS = 4
_LEAST_MS = 1_000


def settings(folder: Path) -> dict[str, str]:
    """The settings that make Spark write its event log into a folder."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def steps_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Per step: stages, tasks, spilled_mib, skew (the largest of its stages; None: none was large enough)."""
    names: dict[int, str] = {}
    tasks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in _events(folder):
        if event["Event"] == "SparkListenerStageSubmitted":
            reported = event.get("Properties") or {}
            names[event["Stage Info"]["Stage ID"]] = reported.get(DESCRIPTION, "")
        elif event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
            tasks[event["Stage ID"]].append(event["Task Metrics"])
    found: dict[str, dict[str, Any]] = {}
    for stage, metrics in tasks.items():
        step = found.setdefault(names.get(stage, ""), {"stages": 0, "tasks": 0, "spilled_mib": 0.0, "skew": None})
        step["stages"] += 1
        step["tasks"] += len(metrics)
        step["spilled_mib"] += round(sum(one["Disk Bytes Spilled"] for one in metrics) / (1 << 20), 1)
        skew = _skew([one["Executor Run Time"] for one in metrics])
        step["skew"] = max((each for each in (step["skew"], skew) if each is not None), default=None)
    return found


def _skew(times_ms: list[int]) -> float | None:
    if len(times_ms) < _LEAST_TASKS or max(times_ms) < _LEAST_MS:
        return None
    return round(max(times_ms) / max(1, median(times_ms)), 1)


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    lines: Iterable[str] = (line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines())
    return (json.loads(line) for line in lines)
