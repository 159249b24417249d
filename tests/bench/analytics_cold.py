"""What a question over an export of minutes costs from a cold start, and from a running service.

Run by `make bench WHAT=analytics-cold`. The export is that of one simulated seed. Rounds take turns: in each, every
command runs once without an archive of classes, once with one, and once against `strandline analytics serve`; so does,
without a service, the way of a real Kafka cluster's files (run A) to a report: an import, and a report of it. Processor
time is that of the command and all its children; of a service, that of the command alone is reported beside the wall
time. Writes its block of docs/BENCHMARKS.md at the end.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kept import DOCS, keep, measured_commit
from run_a_files import import_words

STRANDLINE = str(Path(sys.executable).with_name("strandline"))
LIMIT_S = 900
SEED = "7"
_NO_CACHE = os.devnull
_ADOPTING = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
code = subprocess.call(sys.argv[1:])
try:
    while True:
        os.waitpid(-1, 0)
except ChildProcessError:
    sys.exit(code)
"""
_KAFKA = "import and report of run A"
WANTED_S = {"explain": (10, 3), "timeline": (10, 3), "report": (15, 3), _KAFKA: (20, 3)}
"""Seconds wanted from a cold start, and from a running service."""

Figures = dict[tuple[str, str], list[tuple[float, float, float]]]
"""By command and way: wall, processor time, load average before; each run."""


def measured(words: list[str], cache: str) -> tuple[float, float, float]:
    """One command: wall s, processor time s of it and its children, load average before."""
    load = os.getloadavg()[0]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # The JVM outlives the process that started it for a moment, so a process between adopts and awaits what is left.
    command = [sys.executable, "-c", _ADOPTING, STRANDLINE, "analytics", *words]
    variables = os.environ | {"XDG_CACHE_HOME": cache}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=variables)
    wall_s = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-2_000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, cpu_s, load


@contextmanager
def serving(export: str, cache: str) -> Iterator[str]:
    """The address of a service over the export."""
    command = [STRANDLINE, "analytics", "serve", "--input", export, "--no-warm"]
    variables = os.environ | {"XDG_CACHE_HOME": cache}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=variables) as own:
        try:
            assert own.stdout is not None
            yield next(line for line in own.stdout if line.startswith("serving on ")).split()[-1]
        finally:
            own.terminate()


def kafka_report(words: list[str], folder: Path, cache: str) -> tuple[float, float, float]:
    """An import of Kafka's files and a report of it, one after the other, as `measured` gives one command."""
    history = folder / "history"
    shutil.rmtree(history, ignore_errors=True)
    imported = measured([*words, "--out", str(history)], cache)
    reported = measured(["report", "--input", str(history), "--out", str(folder / "history.html")], cache)
    return imported[0] + reported[0], imported[1] + reported[1], imported[2]


def run(folder: Path, rounds: int) -> Figures:
    """Every command in every way, in turns."""
    export, cache = str(folder / "export"), str(folder / "cache")
    subprocess.run([STRANDLINE, "sim", "replay", SEED, "--export", export], check=True, stdout=subprocess.DEVNULL)
    measured(["archive-classes", "--input", export], cache)
    commands = {
        "explain": ["explain", "--topic", "t", "--partition", "0"],
        "timeline": ["timeline"],
        "report": ["report", "--out", str(folder / "report.html")],
    }
    kafka = import_words(folder)
    found: Figures = defaultdict(list)
    with serving(export, cache) as address:
        for words in commands.values():
            # The first question opens the tables.
            measured([*words, "--service", address], cache)
        for _ in range(rounds):
            for name, words in commands.items():
                found[name, "cold"].append(measured([*words, "--input", export], _NO_CACHE))
                found[name, "cold, with an archive of classes"].append(measured([*words, "--input", export], cache))
                found[name, "of a running service"].append(measured([*words, "--service", address], cache))
            found[_KAFKA, "cold"].append(kafka_report(kafka, folder, _NO_CACHE))
            found[_KAFKA, "cold, with an archive of classes"].append(kafka_report(kafka, folder, cache))
    return found


def text_of(found: Figures, rounds: int) -> str:
    """The block of the page."""
    loads = [load for runs in found.values() for _, _, load in runs]
    lines = [
        "## A question over an export of minutes",
        "",
        f"The export of seed {SEED} (`strandline sim replay {SEED} --export DIR`); {rounds} rounds in turns, the "
        "median with the range in brackets. From the start of the command to its end; CPU is of the command and its "
        "children, and with a service of the command alone.",
        "The report of the service is one that it has made before and kept.",
        "Run A is what the three nodes of a real Kafka cluster left: metadata logs and brokers' logs.",
        f"Measured {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC at {measured_commit()}, {os.cpu_count()} CPUs, "
        f"with a load average of {min(loads):.1f} to {max(loads):.1f} before a run.",
        "",
        "| command | how | wall s | CPU s | wanted s |",
        "|---|---|---|---|---|",
    ]
    for (name, way), runs in found.items():
        wanted = WANTED_S[name]["service" in way]
        columns = " | ".join(_spread([each[place] for each in runs]) for place in (0, 1))
        lines.append(f"| {name} | {way} | {columns} | {wanted} |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} [{min(values):.1f}-{max(values):.1f}]"


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where measured.json is")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-cold-") as folder:
        text = text_of(run(Path(folder), asked.rounds), asked.rounds)
    keep("analytics-cold", text, asked.docs)
    print(text)


if __name__ == "__main__":
    main()
