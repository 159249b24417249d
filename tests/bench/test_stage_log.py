"""What is counted of Spark's event log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stage_log import DESCRIPTION, steps_of

MIB = 1 << 20


def task(stage: int, *, read: int = 0, fetched: int = 0, written: int = 0) -> dict[str, Any]:
    """The end of a task that read of a table, fetched of other stages, and wrote for others, MiB."""
    metrics = {
        "Executor CPU Time": 500_000_000,
        "Executor Run Time": 900,
        "Disk Bytes Spilled": 0,
        "Input Metrics": {"Bytes Read": read * MIB},
        "Shuffle Read Metrics": {"Remote Bytes Read": 0, "Local Bytes Read": fetched * MIB},
        "Shuffle Write Metrics": {"Shuffle Bytes Written": written * MIB},
    }
    return {"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Metrics": metrics}


def test_bytes_of_a_step_are_those_of_its_stages(tmp_path: Path) -> None:
    """Sums are over all stages of a step; the largest task is that of the stage in which one read most."""
    begun = [
        {"Event": "SparkListenerStageSubmitted", "Stage Info": {"Stage ID": stage}, "Properties": {DESCRIPTION: "s01"}}
        for stage in (1, 2)
    ]
    tasks = [task(1, read=2, written=1) for _ in range(4)] + [task(2, fetched=mib) for mib in (0, 1, 1, 9)]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, (*begun, *tasks))))

    step = steps_of(tmp_path)["s01"]

    assert (step["stages"], step["tasks"], step["cpu_s"]) == (2, 8, 4.0)
    assert (step["read_mib"], step["shuffled_mib"], step["spilled_mib"]) == (8, 4, 0)
    assert step["largest"] == [9, 1]
