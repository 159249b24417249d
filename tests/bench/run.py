"""`make bench`: interleaved rounds of Strandline's paths and the peers, then leader kills; JSON and a page in docs/.

Bounded in rounds and seconds, and it stops by itself. Loopback only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import report
from bars import bars_table
from page_blocks import blocks_of, measured_commit
from parties import Pace, Party, Shape, Strandline, cluster, echo_server, nats_servers, stripped_pipeline
from party_kafka import KafkaAbsent, kafka_servers
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
SHAPES = [Shape(64, 1), Shape(64, 5), Shape(256, 1), Shape(256, 5)]
FAILOVERS = [(9_000, 2_000), (2_000, 500)]


def arguments() -> argparse.Namespace:
    """Rounds, seconds, and what to leave out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-s", type=float, default=1.0)
    parser.add_argument("--run-s", type=float, default=3.0)
    parser.add_argument("--kills", type=int, default=10, help="leader kills per session time-out; 0 leaves them out")
    parser.add_argument("--no-throughput", action="store_true")
    parser.add_argument("--kafka-warm-s", type=float, default=180.0, help="how long Kafka is warmed; 0 leaves it out")
    parser.add_argument("--out", type=Path, default=DOCS, help="where benchmarks.json and BENCHMARKS.md go")
    return parser.parse_args()


def throughput(rounds: int, pace: Pace, directory: Path, kafka_warm_s: float) -> list[dict[str, Any]]:
    """Every party, every shape, every round, interleaved."""
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack, _progress() as progress:
        cached = stack.enter_context(cluster(directory / "page-cache", "page-cache"))
        synced = stack.enter_context(cluster(directory / "fsync", "fsync"))
        parties: list[Party] = [
            Strandline(cached, "stream", "page-cache"),
            Strandline(cached, "unary", "page-cache"),
            Strandline(synced, "stream", "fsync"),
            Strandline(synced, "unary", "fsync"),
            stack.enter_context(nats_servers(directory)),
            stack.enter_context(stripped_pipeline(directory / "stripped")),
            stack.enter_context(echo_server()),
        ]
        try:
            if kafka_warm_s:
                parties.append(stack.enter_context(kafka_servers(directory, kafka_warm_s)))
        except KafkaAbsent as why:
            progress.console.print(f"Kafka is absent: {why}")
        bar = progress.add_task("measuring", total=rounds * len(SHAPES) * len(parties))
        for number in range(rounds):
            for shape in SHAPES:
                for party in parties[number % len(parties) :] + parties[: number % len(parties)]:
                    progress.update(bar, description=f"round {number + 1}: {party.name}, {shape.name}")
                    figures = party.measure(shape, pace)
                    rows.append({"round": number, "shape": shape.name, "party": party.name, "figures": figures})
                    progress.advance(bar)
    order = [party.name for party in parties]
    return sorted(rows, key=lambda r: (r["round"], [s.name for s in SHAPES].index(r["shape"]), order.index(r["party"])))


def failovers(kills: int, directory: Path) -> list[dict[str, Any]]:
    """Leader kills with Kafka's default session and with a short one."""
    measured = []
    for session_ms, heartbeat_ms in FAILOVERS if kills else []:
        print(f"killing the leader {kills} times with a session time-out of {session_ms} ms", flush=True)
        home = directory / f"failover-{session_ms}"
        command = [sys.executable, str(HERE / "failover_gap.py"), str(home)]
        command += [str(n) for n in (kills, session_ms, heartbeat_ms)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * kills, check=True)
        measured.append(json.loads(done.stdout.splitlines()[-1]))
    return measured


def about(options: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The conditions that are needed to read the figures."""
    binary = Path(sys.executable).parent / "nats-server"
    nats_version = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": measured_commit(),
        "cpus": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "grpcio": version("grpcio"),
        "nats": nats_version.strip(),
        "nice": os.nice(0),
        "rounds": options.rounds,
        "warm_s": options.warm_s,
        "run_s": options.run_s,
        "kafka_warm_s": options.kafka_warm_s if any(r["party"] == "Kafka" for r in rows) else 0,
        "steal_percent": max((r["figures"]["steal_percent"] for r in rows), default=0.0),
    }


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn())


def main() -> None:
    """Measure, write, show."""
    options = arguments()
    directory = Path(tempfile.mkdtemp(prefix="strandline-bench-"))
    try:
        pace = Pace(options.warm_s, options.run_s)
        rows = [] if options.no_throughput else throughput(options.rounds, pace, directory, options.kafka_warm_s)
        results = {"throughput": rows, "failover": failovers(options.kills, directory)}
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    results = {"about": about(options, rows), **results}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "benchmarks.json").write_text(json.dumps(results, indent=1) + "\n")
    page = options.out / "BENCHMARKS.md"
    text = report.page(results, bars_table(rows))
    page.write_text("\n".join(part for part in (text, blocks_of(page)) if part))
    print(text)


if __name__ == "__main__":
    main()
