"""What runs that take minutes measured: `docs/measured.json` has blocks of text by name, `docs/benchmarks.json` the
rows of each measure of `make bench` with the conditions under which they were obtained.

Invariant: each file is written whole or not at all, and what a run did not measure keeps what it had.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
Results = dict[str, Any]


def keep(name: str, text: str, docs: Path = DOCS) -> None:
    """Keep the text of a block; `make docs` puts it into the pages."""
    blocks = _read(docs / "measured.json") | {name: text.strip().splitlines()}
    _write(docs / "measured.json", json.dumps(blocks, indent=1, ensure_ascii=False, sort_keys=True))


def kept(name: str) -> str:
    """The text of a block, as its last run kept it."""
    return "\n".join(_read(DOCS / "measured.json")[name])


def read_results(docs: Path = DOCS) -> Results:
    """The rows that earlier runs left; empty without any."""
    return _read(docs / "benchmarks.json")


def keep_rows(part: str, about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], docs: Path = DOCS) -> Results:
    """Replace the rows and the conditions of one measure; returns all of them."""
    results = read_results(docs)
    results.setdefault("parts", {})[part] = dict(about)
    results[part] = list(rows)
    _write(docs / "benchmarks.json", json.dumps(results, indent=1))
    return results


def _read(path: Path) -> Results:
    found: Results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{content}\n", encoding="utf-8")
    fresh.replace(path)


@cache
def measured_commit() -> str:
    """The commit that a run measures: figures of another one say little about the current one.

    Asked once: what the run itself writes into docs/ does not make its commit dirty.
    """
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def conditions() -> dict[str, Any]:
    """What is needed to read figures of this moment and machine."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": measured_commit(),
        "cpus": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "grpcio": version("grpcio"),
        "transport": "asyncio",
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
