"""Reads Spark's own event log: each step's stages, what they moved, and whether they spilled or were skewed.

A step is a job description, set before its queries are run. The skew of a stage is how much longer its longest task ran
than the median one; stages of fewer than four tasks, or of less than a second, are not counted. Bytes, rows and time of
the processor hardly depend on what else a machine does; the time that a task ran does.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

DESCRIPTION = "spark.job.description"
_BEGUN = "SparkListenerStageSubmitted"
_ENDED = "SparkListenerTaskEnd"
_HEAD = 64
"""A line names its event within so many characters."""
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
    """What was done, by step.

    - ``stages``, ``tasks``: how many there were.
    - ``cpu_s``: time of the processor in tasks.
    - ``read_mib``: of files and of kept tables; ``shuffled_mib``: written for other stages; ``spilled_mib``: to disk.
    - ``skew``: the largest of its stages; None: none was large enough.
    - ``largest``: MiB that the largest task read, and the median one of its stage; None: no stage had enough tasks.
    """
    names: dict[int, str] = {}
    tasks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in _events(folder):
        if event["Event"] == _BEGUN:
            reported = event.get("Properties") or {}
            names[event["Stage Info"]["Stage ID"]] = reported.get(DESCRIPTION, "")
        elif event["Event"] == _ENDED and event.get("Task Metrics"):
            tasks[event["Stage ID"]].append(event["Task Metrics"])
    of_step: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for stage, metrics in tasks.items():
        of_step[names.get(stage, "")].append(_of_stage(metrics))
    return {name: _of_step(stages) for name, stages in of_step.items()}


def _of_stage(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    read = [sum(_bytes_read(one)) / (1 << 20) for one in metrics]
    return {
        "tasks": len(metrics),
        "cpu_s": sum(one["Executor CPU Time"] for one in metrics) / 1e9,
        "read_mib": sum(_bytes_read(one)[0] for one in metrics) / (1 << 20),
        "shuffled_mib": sum(one["Shuffle Write Metrics"]["Shuffle Bytes Written"] for one in metrics) / (1 << 20),
        "spilled_mib": sum(one["Disk Bytes Spilled"] for one in metrics) / (1 << 20),
        "skew": _skew([one["Executor Run Time"] for one in metrics]),
        "largest": [round(max(read), 1), round(median(read), 1)] if len(read) >= _LEAST_TASKS else None,
    }


def _bytes_read(of_task: dict[str, Any]) -> tuple[int, int]:
    """Of files and kept tables, and of other stages."""
    shuffled = of_task["Shuffle Read Metrics"]
    return of_task["Input Metrics"]["Bytes Read"], shuffled["Remote Bytes Read"] + shuffled["Local Bytes Read"]


def _of_step(stages: list[dict[str, Any]]) -> dict[str, Any]:
    sums = ("tasks", "cpu_s", "read_mib", "shuffled_mib", "spilled_mib")
    found: dict[str, Any] = {"stages": len(stages)}
    found |= {name: round(sum(stage[name] for stage in stages), 1) for name in sums}
    return found | {
        name: max((stage[name] for stage in stages if stage[name] is not None), default=None)
        for name in ("skew", "largest")
    }


def _skew(times_ms: list[int]) -> float | None:
    if len(times_ms) < _LEAST_TASKS or max(times_ms) < _LEAST_MS:
        return None
    return round(max(times_ms) / max(1, median(times_ms)), 1)


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    """The events that are counted: a log has gigabytes of plans besides, which are neither kept nor parsed."""
    for path in sorted(folder.iterdir()):
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if any(name in line[:_HEAD] for name in (_BEGUN, _ENDED)))
