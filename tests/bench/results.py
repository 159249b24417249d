"""`benchmarks.json`: the rows of each measure, and for each the conditions under which they were obtained.

Invariant: it is written whole or not at all, after every measure and when a run is interrupted; a measure that was not
part of a run keeps its rows with their own commit and date.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kept import measured_commit

FILE = "benchmarks.json"
Results = dict[str, Any]


def read(folder: Path) -> Results:
    """What earlier runs left; empty without any."""
    try:
        found: Results = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return {}
    return found


def write(folder: Path, results: Results) -> None:
    """Replace the file."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{FILE}.new"
    fresh.write_text(json.dumps(results, indent=1) + "\n")
    fresh.replace(folder / FILE)


def put(results: Results, part: str, about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace one measure's rows and conditions."""
    if "parts" not in results:
        _give_every_part_its_conditions(results)
    results["parts"][part] = dict(about)
    results[part] = list(rows)


def _give_every_part_its_conditions(results: Results) -> None:
    """Files from before measures could be repeated one by one have one set of conditions for all."""
    about = results.pop("about", None)
    results["parts"] = {part: about for part, rows in results.items() if rows and about}


def conditions() -> dict[str, Any]:
    """What is needed to read figures of this moment and machine."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": measured_commit(),
        "cpus": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "grpcio": version("grpcio"),
        "nats": _nats_version(),
        "nice": os.nice(0),
        "scheduler": {os.SCHED_OTHER: "normal", os.SCHED_RR: "round robin"}.get(os.sched_getscheduler(0), "other"),
        "load_before": round(os.getloadavg()[0], 1),
    }


def _nats_version() -> str:
    binary = Path(sys.executable).parent / "nats-server"
    if not binary.exists():
        return "no NATS"
    return subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True).stdout.strip()
